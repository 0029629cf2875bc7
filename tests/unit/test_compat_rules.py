"""Each rule, by rows that cost people days and by rows that only look wrong."""

from __future__ import annotations

from typing import Any

import pytest

from imagebuild.spec.compat import Fleet, check_fleet
from tests.compat_rows import GOOD, NVIDIA, errors, findings, rules

REFUSED: list[tuple[str, dict[str, Any]]] = [
    # wheels that do not exist
    ("torch-variant", {"torch": "2.12.0", "variant": "cu129"}),  # only 2.12.1 has it
    ("torch-variant", {"torch": "2.8.0", "variant": "cu118"}),
    ("torch-variant", {"torch": "2.6.0", "variant": "cu121"}),
    ("torch-variant", {"torch": "2.7.0", "variant": "cu124"}),
    ("torch-variant", {"torch": "2.15.0", "variant": "cu126"}),
    ("torch-variant", {"torch": "2.12.1", "variant": "cu128"}),
    ("torch-variant", {"torch": "2.14.0", "variant": "cu129"}),
    ("torch-variant", {"torch": "2.8.0", "variant": "cu130"}),
    ("torch-variant", {"torch": "2.11.0", "variant": "cu132"}),
    ("torch-variant", {"torch": "2.14.1", "variant": "cu131"}),
    ("torch-variant", {"torch": "2.14.1", "variant": "cu134"}),
    ("torch-variant", {"variant": "cu125"}),
    ("torch-variant", {"torch": "2.99.0", "variant": "cu118"}),  # unknown release, but cu118 does not come back
    ("torch-variant", {"torch": "2.9.1", "variant": "rocm6.4"}),
    ("not-released", {"torch": "2.9.2", "variant": "cpu"}),
    ("not-released", {"torch": "2.4.2"}),
    ("version", {"torch": "2.9.1+cu128", "variant": "cu128"}),
    ("wheels-pypi", {"torch": "2.9.1", "variant": "cu130", "wheels": "pypi"}),
    ("wheels-pypi", {"torch": "2.9.1", "variant": "cpu", "wheels": "pypi"}),
    ("torchvision", {"torch": "2.9.1", "torchvision": "0.24.0"}),
    ("torchvision", {"torch": "2.13.0", "torchvision": "0.29.1"}),
    ("yanked", {"torch": "2.0.0", "torchvision": "0.15.0"}),
    ("not-released", {"torchvision": "0.24.5"}),
    # Python
    ("python", {"torch": "2.9.1", "python": "3.9"}),
    ("python", {"torch": "2.15.0", "python": "3.10"}),
    ("python", {"torch": "2.8.0", "python": "3.14"}),
    ("python", {"torch": "2.5.1", "python": "3.13"}),
    ("python", {"torch": "1.13.1", "python": "3.11"}),
    ("python", {"sb3": "2.9.2", "python": "3.9"}),
    ("python", {"sb3": "2.5.0", "python": "3.8"}),
    ("python", {"sb3_contrib": "2.8.0", "python": "3.9"}),
    ("python", {"gymnasium": "1.2.0", "python": "3.9"}),
    ("python", {"mujoco": "4.0.0", "python": "3.10"}),
    ("python", {"mujoco": "2.3.7", "python": "3.12"}),
    ("python", {"mujoco": "3.2.0", "python": "3.14"}),  # neither of its neighbours has one
    ("python", {"ray": "2.40.0", "python": "3.13"}),
    ("python", {"ort": "1.24.4", "python": "3.10"}),
    ("python", {"ort": "1.19.2", "python": "3.13"}),
    ("python", {"numpy": "1.26.4", "python": "3.13"}),
    ("python", {"numpy": "2.4.6", "python": "3.10"}),
    ("python", {"torchvision": "0.27.0", "python": "3.14.1"}),
    ("os-python", {"os": "rockylinux8", "python": "3.10"}),
    ("os-python", {"os": "debian12", "base": "bootstrap", "python": "3.12"}),
    # C library
    ("glibc", {"torch": "2.7.1", "variant": "cu118", "image": "11.8.0-cudnn8-devel-centos7"}),
    ("glibc", {"torch": "2.6.0", "variant": "cu126", "image": "12.3.2-base-centos7"}),
    ("glibc", {"mujoco": "3.4.0", "image": "11.8.0-base-ubi7"}),
    ("glibc", {"ort": "1.17.1", "image": "11.8.0-cudnn8-runtime-centos7"}),
    # GPUs
    ("sm", {"torch": "2.7.1", "variant": "cu128", "gpu": "V100"}),
    ("sm", {"torch": "2.11.0", "variant": "cu128", "gpu": "Tesla V100-SXM2-16GB"}),
    ("sm", {"torch": "2.14.1", "variant": "cu126", "gpu": "B200"}),
    ("sm", {"torch": "2.14.1", "variant": "cu126", "gpu": "NVIDIA GeForce RTX 5090"}),
    ("sm", {"torch": "2.0.1", "variant": "cu117", "gpu": "H100"}),
    ("sm", {"torch": "2.8.0", "variant": "cu128", "gpu": "P100"}),
    ("sm", {"torch": "2.99.0", "variant": "cu130", "gpu": "7.0"}),
    ("sm", {"ort": "1.27.0", "image": "13.0.0-cudnn-runtime-rockylinux8", "gpu": "V100"}),
    ("sm", {"ort": "1.26.0", "image": "12.4.1-cudnn-runtime-rockylinux8", "gpu": "B200"}),
    ("sm", {"tensorrt": "tensorrt-cu12==10.5.0", "gpu": "V100"}),
    # drivers
    ("driver", {"torch": "2.4.1", "variant": "cu121", "driver": "470.256.02"}),
    ("driver", {"torch": "2.4.1", "variant": "cu124", "driver": "525.60.12"}),
    ("driver", {"torch": "2.9.1", "variant": "cu130", "driver": "575.57.08", "gpu": "H100"}),
    ("driver", {"torch": "2.9.1", "variant": "cu128", "driver": ["580.65.06", "515.43.04"]}),  # every driver counts
    ("driver", {"torch": "2.7.1", "variant": "cu118", "driver": "418.226.00"}),
    ("driver", {"torch": "2.7.1", "variant": "cu118", "image": "13.0.0-base-rockylinux8", "driver": "470.256.02"}),
    ("driver", {"ort": "1.31.1", "image": "13.0.0-cudnn-runtime-rockylinux8", "driver": "525.60.13", "gpu": "L4"}),
    ("driver", {"ort": "1.31.1", "image": "13.0.0-cudnn-runtime-rockylinux8", "driver": "550.54.15", "gpu": "RTX4090"}),
    ("driver", {"tensorrt": "tensorrt-cu12==10.9.0.34", "driver": "525.60.13"}),
    ("driver", {"variant": "cu128", "driver": "sometimes"}),
    # images
    ("image", {"image": "12.4.1-cudnn8-devel-rockylinux8"}),
    ("image", {"image": "12.4.1-cudnn9-devel-rockylinux8"}),
    ("image", {"image": "12.3.2-cudnn-devel-rockylinux8"}),
    ("image", {"image": "12.1.1-cudnn-devel-rockylinux8"}),
    ("image", {"image": "11.8.0-cudnn9-devel-rockylinux8"}),
    ("image", {"image": "12.4.0-cudnn-devel-rockylinux8"}),
    ("image", {"image": "12.5.0-cudnn-runtime-ubuntu22.04"}),
    ("image", {"image": "12.5.1-cudnn-devel-ubuntu24.04"}),
    ("image", {"image": "13.0.0-cudnn-devel-rockylinux10"}),
    ("image", {"image": "12.8.1-cudnn-base-rockylinux8"}),
    ("image", {"image": "12.7.0-base-rockylinux8"}),
    ("image", {"image": "12.4.1-base-ubuntu24.04"}),
    ("image", {"image": "13.0.0-base-ubuntu20.04"}),
    ("image", {"image": "12.4.1-base-centos7"}),
    ("image", {"image": "11.8.0-base-ubi9"}),
    ("image", {"image": "12.8.1-base-debian12"}),
    ("image", {"image": "12.8.1-base-rockylinux10"}),
    ("image", {"image": "12.8-base-rockylinux8"}),
    ("image", {"image": "latest"}),
    ("image", {"image": "12.8.1-devel-cudnn-rockylinux8"}),
    ("image", {"base": "docker.io/nvidia/cuda"}),
    ("image", {"inference_base": f"{NVIDIA}12.4.1-cudnn8-runtime-rockylinux8"}),
    ("base-os", {"os": "rockylinux9", "image": "12.8.1-base-rockylinux8"}),
    ("base-os", {"os": "debian12", "inference_base": f"{NVIDIA}12.8.1-cudnn-runtime-rockylinux8"}),
    # the learning stack
    ("sb3-torch", {"sb3": "2.5.0", "torch": "2.2.2"}),
    ("sb3-torch", {"sb3": "2.9.0", "torch": "2.7.1"}),
    ("sb3-gymnasium", {"sb3": "2.8.0", "gymnasium": "1.3.0"}),
    ("sb3-gymnasium", {"sb3": "2.0.0", "gymnasium": "0.29.1"}),
    ("sb3-gymnasium", {"sb3": "2.5.0", "gymnasium": "1.1.1"}),
    ("sb3-gymnasium", {"sb3": "2.4.1", "gymnasium": "0.28.1"}),
    ("sb3-gymnasium", {"sb3": "1.8.0", "gymnasium": "0.28.1"}),
    ("sb3-contrib", {"sb3": "2.8.0", "sb3_contrib": "2.9.2"}),
    ("sb3-contrib", {"sb3": "2.9.0", "sb3_contrib": "2.9.2"}),
    ("not-released", {"sb3": "2.9.1"}),
    ("yanked", {"sb3": "2.3.1"}),
    ("yanked", {"numpy": "2.4.0"}),
    ("gymnasium-mujoco", {"gymnasium": "0.29.1", "mujoco": "3.1.6"}),
    ("gymnasium-mujoco", {"gymnasium": "0.28.1", "mujoco": "3.0.1"}),
    ("gymnasium-mujoco", {"gymnasium": "0.26.3", "mujoco": "2.3.7"}),
    ("ray-gymnasium", {"ray": "2.50.0", "gymnasium": "1.0.0"}),
    ("ray-gymnasium", {"ray": "2.38.0", "gymnasium": "1.0.0"}),
    ("numpy", {"numpy": "2.2.6", "torch": "2.2.2"}),
    ("numpy", {"numpy": "2.0.2", "sb3": "2.4.1"}),
    ("numpy", {"numpy": "2.0.2", "sb3": "2.3.2"}),
    ("numpy", {"numpy": "2.0.2", "ort": "1.18.1"}),
    ("numpy", {"numpy": "1.21.0", "gymnasium": "1.4.0"}),
    # serving
    ("ort-image", {"ort": "1.19.2", "image": "12.2.2-cudnn8-runtime-rockylinux8"}),
    ("ort-image", {"ort": "1.26.0", "torch": "2.9.1", "variant": "cu128", "image": "13.0.0-base-rockylinux8"}),
    ("ort-image", {"ort": "1.18.1", "image": "12.4.1-cudnn-runtime-rockylinux8"}),
    ("ort-image", {"ort": "1.27.0", "image": "12.8.1-cudnn-runtime-rockylinux8"}),
    ("ort-image", {"ort": "1.26.0", "image": "13.0.0-cudnn-runtime-rockylinux8"}),
    ("ort-image", {"ort": "1.26.0", "image": "12.8.1-runtime-rockylinux8"}),
    ("ort-image", {"ort": "1.26.0", "image": "12.8.1-base-rockylinux8"}),
    ("ort-image", {"ort": "1.26.0", "base": "bootstrap", "variant": "cu130", "torch": "2.9.1"}),
    ("ort-image", {"ort": "1.18.1", "base": "bootstrap", "variant": "cu118", "torch": "2.7.1"}),  # it has cuDNN 9
    ("not-released", {"ort": "1.32.0", "image": "13.0.0-cudnn-runtime-rockylinux8"}),
    ("tensorrt", {"ort": "1.31.1", "tensorrt": "tensorrt-cu13==11.4.0.106", "image": "13.0.0-cudnn-runtime-ubi8"}),
    ("tensorrt", {"ort": "1.26.0", "tensorrt": "10.14.1.48", "image": "12.8.1-cudnn-runtime-ubi8"}),  # that is cu13
    ("tensorrt", {"ort": "1.17.1", "tensorrt": "tensorrt-cu11==10.0.1", "image": "11.8.0-cudnn8-runtime-ubi8"}),
    ("tensorrt", {"tensorrt": "tensorrt-cu11==10.14.1.48"}),
    ("tensorrt", {"tensorrt": "tensorrt-cu13==10.12.0.36"}),
    ("tensorrt", {"tensorrt": "10.9.0.34", "variant": "cpu"}),
    ("opset", {"ort": "1.20.2", "opset": 22}),
    ("opset", {"ort": "1.31.1", "opset": 27}),
]

ACCEPTED: list[dict[str, Any]] = [
    GOOD,
    # a wheel carries its CUDA: the image's may differ, and a base image is enough
    {
        "torch": "2.7.1",
        "variant": "cu118",
        "python": "3.11",
        "image": "12.8.1-base-rockylinux8",
        "driver": "535.104.05",
    },
    {"torch": "2.14.1", "variant": "cu132", "python": "3.12", "image": "13.0.0-base-ubi8", "driver": "580.65.06"},
    # a driver newer than the toolkit, and an older one by minor-version compatibility
    {"torch": "2.0.1", "variant": "cu117", "driver": "615.10", "gpu": "A100"},
    {"torch": "2.7.1", "variant": "cu118", "driver": "450.80.02", "gpu": "A100"},
    {"torch": "2.14.1", "variant": "cu126", "driver": "525.60.13", "gpu": "V100"},
    {"torch": "2.9.1", "variant": "cu130", "driver": "580", "gpu": ["T4", "H200", "B300", "RTX PRO 6000"]},
    {"torch": "2.14.1", "variant": "cu126", "driver": "525"},  # a branch stands for its newest release
    # Volta came back for three releases
    {"torch": "2.8.0", "variant": "cu128", "gpu": "V100"},
    {"torch": "2.10.0", "variant": "cu128", "gpu": ["V100", "RTX5090"]},
    {"torch": "2.14.1", "variant": "cu126", "gpu": ["P40", "M60", "L40S"]},
    # a cpu row asks nothing of GPUs and drivers
    {"torch": "2.15.0", "variant": "cpu", "python": "3.11", "driver": "390.157", "gpu": "K80", "ort": "1.32.0"},
    # old branches by cuda-compat on data-centre GPUs
    {"ort": "1.31.1", "image": "13.0.0-cudnn-runtime-rockylinux8", "driver": "535.104.05", "gpu": "L4"},
    {"torch": "2.7.1", "variant": "cu118", "image": "12.4.1-base-rockylinux8", "driver": "470.256.02", "gpu": "A100"},
    # tags
    {"image": "12.3.2-cudnn9-devel-rockylinux9"},
    {"image": "12.5.1-cudnn-devel-ubuntu22.04"},
    {"image": "12.5.0-devel-rockylinux8"},
    {"image": "12.9.1-base-ubuntu20.04"},
    {"image": "13.3.1-cudnn-devel-rockylinux8"},
    {"image": "12.4.0-devel-rockylinux8"},
    {"base": "mirror.example.com:5000/nvidia/cuda:11.8.0-cudnn8-devel-ubi8", "os": "ubi8"},
    {"base": f"{NVIDIA}12.8.1-base-rockylinux8@sha256:{'0' * 64}", "os": "rockylinux8"},
    {"base": "docker.io/library/python:3.12-slim-bookworm", "os": "debian12", "python": "3.12"},
    # two numbers name a line
    {"numpy": "2.4", "python": "3.12"},
    {"ort": "1.31", "python": "3.12", "opset": 26, "image": "13.0.0-cudnn-runtime-ubi8"},
    {"ray": "2.60", "gymnasium": "1.2.2"},
    {"ray": "2.9.3", "gymnasium": "0.28.1", "mujoco": "2.3.7", "python": "3.11"},
    # torchvision is free from 0.29.1 on
    {"torch": "2.15.0", "torchvision": "0.29.1", "python": "3.12"},
    {"torchvision": "0.27.0", "python": "3.14"},
    {"torch": "2.9.1", "variant": "cu128", "wheels": "pypi"},
    # the CUDA that ONNX Runtime needs comes with torch's wheel where the slim stage takes its files from there
    {"ort": "1.26.0", "torch": "2.9.1", "variant": "cu128", "base": "bootstrap"},
    {"ort": "1.31.1", "torch": "2.14.1", "variant": "cu130", "image": "13.0.3-base-rockylinux8"},
    {"ort": "1.19.2", "torch": "2.4.1", "variant": "cu121", "image": "12.1.1-cudnn8-devel-rockylinux8"},
    {"ort": "1.18.1", "image": "11.8.0-cudnn8-runtime-rockylinux8", "numpy": "1.26.4"},
    {"ort": "1.26.0", "image": "12.8.1-cudnn-runtime-rockylinux8", "gpu": ["V100", "RTX5090"], "driver": "570.26"},
    {"ort": "1.26.0", "image": "12.4.1-cudnn-runtime-rockylinux8"},  # any CUDA of the major
    {"ort": "1.31.1", "variant": "cpu", "base": "bootstrap"},
    {
        "ort": "1.26.0",
        "tensorrt": "10.9.0.34",
        "variant": "cu128",
        "torch": "2.9.1",
        "image": "12.8.1-cudnn-runtime-ubi8",
    },
    {"ort": "1.20.2", "tensorrt": "tensorrt-cu12==10.4.0", "image": "12.4.1-cudnn-runtime-ubi8", "gpu": "V100"},
    {"tensorrt": "tensorrt-cu13==11.4.0.106"},  # without ONNX Runtime
]


def name(case: Any) -> str:
    fields = case if isinstance(case, dict) else {}
    return "-".join(str(value).removeprefix(NVIDIA) for value in fields.values())[:80] or str(case)


@pytest.mark.parametrize(("rule", "fields"), REFUSED, ids=name)
def test_a_wrong_row_is_refused_for_the_right_reason(rule: str, fields: dict[str, Any]) -> None:
    found = errors(**fields)

    assert rules(found) == {rule} or (rule in rules(found) and len(rules(found)) == 2), found


@pytest.mark.parametrize("fields", ACCEPTED, ids=name)
def test_a_row_that_only_looks_wrong_is_accepted(fields: dict[str, Any]) -> None:
    assert errors(**fields) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"torch": "2.16.0"},
        {"torch": "2.16.0rc1"},
        {"torch": "1.12.1"},
        {"torch": "2.15.0", "variant": "cu134"},
        {"sb3": "2.10.0"},
        {"sb3_contrib": "3.0.0"},
        {"gymnasium": "1.5.0"},
        {"mujoco": "4.1.0"},
        {"mujoco": "4.0.0", "gymnasium": "1.2.0"},
        {"numpy": "3.0.0"},
        {"ray": "2.61.0"},
        {"ort": "1.40.0"},
        {"onnx": "1.30.0"},
        {"tensorrt": "tensorrt-cu13==12.0.0"},
        {"torchvision": "0.40.0"},
        {"image": "13.6.0-devel-rockylinux8"},
        {"image": "13.0.1-cudnn-devel-rockylinux8"},
        {"image": "13.4.1-base-rockylinux8"},
        {"image": "12.6.0-devel-rockylinux8"},
        {"os": "debian14"},
        {"gpu": "R200"},
    ],
    ids=name,
)
def test_what_the_facts_do_not_know_is_said_and_refused_under_strict(fields: dict[str, Any]) -> None:
    assert {(finding.rule, finding.severity) for finding in findings(**fields)} == {("unknown", "warning")}
    assert "unknown" in rules(errors(strict=True, **fields))


def test_strict_wants_the_driver_that_the_toolkit_was_made_for() -> None:
    classic = {"torch": "2.7.1", "variant": "cu118", "driver": "470.256.02"}

    assert errors(**classic) == []
    assert rules(errors(strict=True, **classic)) == {"driver"}
    assert errors(strict=True, **classic | {"driver": "520.61.05"}) == []


def test_all_problems_of_a_row_are_told_at_once() -> None:
    wrong = {
        "python": "3.9", "torch": "2.9.1", "variant": "cu118", "sb3": "2.9.1", "numpy": "2.4.0", "gymnasium": "0.29.1",
        "mujoco": "3.1.6", "image": "11.8.0-cudnn8-devel-rockylinux9", "opset": "high",
    }  # fmt: skip

    told = {"python", "torch-variant", "not-released", "yanked", "gymnasium-mujoco", "image", "opset"}
    assert told <= rules(errors(**wrong))


def test_a_clash_of_several_gets_a_change_of_its_own() -> None:
    wrong = {
        "torch": "2.9.1", "variant": "cu118", "ray": "2.60.0", "gymnasium": "1.4.0", "ort": "1.31.1", "opset": 27,
        "image": "11.8.0-cudnn8-devel-rockylinux9",
    }  # fmt: skip
    found = {finding.rule: finding for finding in errors(**wrong)}

    assert str(found["ray-gymnasium"].suggestions[0]) == "gymnasium: 1.4.0 -> 1.2.2"
    assert str(found["opset"].suggestions[0]) == "opset: 27 -> 26"
    assert not found["opset"].suggestions[0].complete


def test_two_fields_move_together_where_one_does_not_do() -> None:
    [found] = errors(sb3="2.9.2", sb3_contrib="2.9.2", torch="2.7.1", variant="cu118", python="3.11")

    assert [str(suggestion) for suggestion in found.suggestions] == [
        "torch: 2.7.1 -> 2.8.0 and variant: cu118 -> cu126",
        "sb3: 2.9.2 -> 2.8.0 and sb3_contrib: 2.9.2 -> 2.8.0",
    ]


def test_a_finding_points_at_a_field_of_the_row_and_names_what_it_clashes_with() -> None:
    [found] = errors(torch="2.9.1", variant="cu118", python="3.11")

    assert (found.field, found.others) == ("torch", ("variant",))
    assert "cu126" in found.message
    assert found.hint == "nearest that works: variant: cu118 -> cu126, or torch: 2.9.1 -> 2.7.1"


def test_a_volta_on_an_unknown_cudnn_is_told() -> None:
    assert rules(findings(torch="2.10.0", variant="cu129", gpu="V100")) == {"unknown"}


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("triton", {"torch": "2.2.2", "python": "3.12"}),
        ("torch-extension", {"torch": "2.7.1", "variant": "cu118", "image": "12.8.1-devel-rockylinux9"}),
        ("torch-extension", {"torch": "2.14.1", "variant": "cu130", "image": "13.0.0-devel-rockylinux8"}),
        ("cpu-on-cuda", {"torch": "2.14.1", "variant": "cpu", "image": "13.0.0-base-rockylinux8"}),
        ("os-eol", {"image": "11.8.0-base-centos7"}),
        ("os-python", {"os": "ubuntu22.04", "python": "3.12"}),
        ("opset", {"onnx": "1.23.2", "ort": "1.31.1", "variant": "cpu"}),
        ("ort-image", {"ort": "1.29.0", "image": "13.0.0-runtime-rockylinux8"}),
    ],
    ids=name,
)
def test_what_may_work_is_a_warning(rule: str, fields: dict[str, Any]) -> None:
    assert [(finding.rule, finding.severity) for finding in findings(**fields)] == [(rule, "warning")]


def test_a_fleet_that_cannot_be_is_told_once_and_not_for_each_row() -> None:
    told = check_fleet(Fleet(("470.256.02", "x"), ("H100", "H10O")))

    assert [(finding.field, finding.rule) for finding in told] == [
        ("drivers", "driver"), ("gpus", "unknown"), ("gpus", "driver"),
    ]  # fmt: skip
    assert "did you mean H100?" in told[1].message


def test_a_driver_branch_that_left_a_gpu_behind_is_told() -> None:
    assert rules(check_fleet(Fleet(("595.71.05",), ("V100",)))) == {"driver"}
    assert check_fleet(Fleet(("580.65.06", "595.71.05"), ("V100",))) == []
