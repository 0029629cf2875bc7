"""What keeps a host's GPUs out of containers: CDI specifications read, and one diagnosis for each obstacle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuild.engine import cdi, gpu_host
from imagebuild.engine.cdi import CdiSpec
from imagebuild.engine.gpu_host import GpuHost, HostUser, Owner, look, obstacles
from imagebuild.errors import WorkError
from imagebuild.run import gpu, launch
from imagebuild.spec import matrix
from imagebuild.views.doctor import gpu_findings
from tests.projects import ROOT

DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
SPEC = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
- name: all
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  deviceNodes: [{path: /dev/nvidiactl, hostPath: /dev/nvidiactl}]
  mounts: [{hostPath: /usr/lib64/libcuda.so.535.104.05, containerPath: /usr/lib64/libcuda.so.535.104.05}]
"""
GOOD = CdiSpec(Path("/etc/cdi/nvidia.yaml"), cdi.KIND, ("0", "all"), ("/dev/nvidiactl", "/dev/nvidia0"),
               ("/usr/lib64/libcuda.so.535.104.05",))  # fmt: skip
NODES = {"/dev/nvidia0": Owner(0o666, 0, 0), "/dev/nvidiactl": Owner(0o666, 0, 0)}
HOST = GpuHost(cards=1, driver="535.104.05", specs=(GOOD,), nodes=NODES, user=HostUser("ci", 1001, frozenset({1001})),
               podman="4.9.4")  # fmt: skip


def writes(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def machine(root: Path) -> Path:
    """A machine with one card, its driver and a specification that fits."""
    writes(root, {
        "proc/driver/nvidia/version": DRIVER, "etc/cdi/nvidia.yaml": SPEC, "dev/nvidia0": "", "dev/nvidiactl": "",
        "usr/lib64/libcuda.so.535.104.05": "", "sys/bus/pci/devices/0000:3b:00.0/vendor": "0x10de\n",
        "sys/bus/pci/devices/0000:3b:00.0/class": "0x030200\n", "sys/bus/pci/devices/0000:00:1f.0/vendor": "0x8086\n",
    })  # fmt: skip
    return root


def test_a_specification_is_read_whole_as_yaml_or_json(tmp_path: Path) -> None:
    writes(tmp_path, {"a.yaml": SPEC, "b.json": json.dumps({"kind": cdi.KIND, "devices": [{"name": "all"}]})})
    writes(tmp_path, {"other.yaml": "kind: vendor.com/nic\n# nvidia.com/gpu\n", "note.txt": "kind: nvidia.com/gpu\n"})
    first, second = cdi.read_specs([tmp_path, tmp_path / "none"])
    assert replace(first, path=GOOD.path) == GOOD
    assert (first.driver, second.driver, second.devices) == ("535.104.05", None, ("all",))


def test_a_gpu_is_offered_by_what_a_file_names(tmp_path: Path) -> None:
    assert not cdi.has_cdi_gpu([tmp_path, tmp_path / "none"])
    writes(tmp_path, {"other.yaml": "kind: vendor.com/nic\n"})
    assert not cdi.has_cdi_gpu([tmp_path])
    writes(tmp_path, {"nvidia.yaml": "kind: nvidia.com/gpu\n"})
    assert cdi.has_cdi_gpu([tmp_path])


@pytest.mark.parametrize("text", ["kind: [", "- a\n- b\n", "kind: nvidia.com/gpu\ndevices: 3\ncontainerEdits: x\n"])
def test_a_file_that_makes_no_sense_ends_nothing(tmp_path: Path, text: str) -> None:
    writes(tmp_path, {"a.yaml": text})
    (spec,) = cdi.read_specs([tmp_path])
    assert bool(spec.fault) == (spec.kind != cdi.KIND)


def test_a_machine_where_everything_fits_has_no_obstacle(tmp_path: Path) -> None:
    host = look(root=machine(tmp_path))
    assert (host.cards, host.driver, host.absent) == (1, "535.104.05", frozenset())
    assert set(host.nodes) == set(NODES)
    assert obstacles(host) == []


def test_a_specification_that_names_what_is_gone(tmp_path: Path) -> None:
    (machine(tmp_path) / "dev/nvidia0").unlink()
    (found,) = obstacles(look(root=tmp_path))
    assert found.code == "absent"
    assert "/dev/nvidia0, which is not there" in found.what


@pytest.mark.parametrize(
    ("host", "code", "words"),
    [
        (GpuHost(), "no-gpu", "no NVIDIA GPU"),
        (GpuHost(cards=2), "no-driver", "2 NVIDIA GPUs, and the NVIDIA kernel driver is not loaded"),
        (replace(HOST, specs=()), "no-spec", "nvidia-ctk cdi generate"),
        (replace(HOST, podman="4.0.2"), "podman-too-old", "4.0.2"),
        (replace(HOST, specs=(CdiSpec(Path("/etc/cdi/x.yaml"), fault="Permission denied"), GOOD)), "spec-unreadable",
         "/etc/cdi/x.yaml: Permission denied"),
        (replace(HOST, specs=(replace(GOOD, devices=("0", "1")),)), "no-device", "offers 0, 1, and not `all`"),
        (replace(HOST, specs=(replace(GOOD, path=Path("/etc/cdi/a.yaml")), GOOD)), "conflict", "rm /etc/cdi/a.yaml"),
        (replace(HOST, driver="550.54.15"), "stale-spec", "made for driver 535.104.05, and 550.54.15 runs"),
        (replace(HOST, absent=frozenset({"/usr/lib64/libcuda.so.535.104.05"})), "absent", "libcuda.so.535"),
        (replace(HOST, nodes=NODES | {"/dev/nvidia0": Owner(0o660, 0, 44)}), "permissions", "user ci may not open"),
        (replace(HOST, selinux_enforcing=True), "selinux", "label=disable"),
    ],
)  # fmt: skip
def test_each_obstacle_has_its_own_diagnosis_and_remedy(host: GpuHost, code: str, words: str) -> None:
    found = {one.code: one for one in obstacles(host)}
    assert code in found
    assert words in f"{found[code].what} {found[code].remedy}"
    assert found[code].remedy
    assert found[code].blocks == (code != "selinux")


def test_what_is_no_obstacle() -> None:
    assert obstacles(HOST) == []
    assert obstacles(replace(HOST, selinux_enforcing=True, may_use_devices=True)) == []
    in_group = replace(HOST, nodes=NODES | {"/dev/nvidia0": Owner(0o660, 0, 1001)})
    assert obstacles(in_group) == []
    # The folder with more weight wins: an old file in the other one is in nobody's way.
    old = replace(GOOD, path=Path("/etc/cdi/nvidia.yaml"), mounts=("/usr/lib64/libcuda.so.470.82.01",))
    assert obstacles(replace(HOST, specs=(old, replace(GOOD, path=Path("/var/run/cdi/nvidia.yaml"))))) == []


def test_a_driver_is_measured_against_a_rows_cuda() -> None:
    assert obstacles(HOST, cuda="12.8", minimum="525.60.13") == []
    (found,) = obstacles(HOST, cuda="13.0", minimum="580")
    assert (found.code, found.what) == ("driver-too-old", "driver 535.104.05 is too old: CUDA 13.0 needs 580 or newer")
    names = {finding.name for finding in gpu_findings(HOST, matrix.load(ROOT / "matrix.yaml").rows.values())}
    assert names == {"gpu", "row cu130"}


def test_the_user_is_the_one_whose_podman_it_is() -> None:
    user = gpu_host._user("")
    assert user is not None
    assert gpu_host._user("unix:///no/such/socket") is None


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all", "nvidia-ctk cdi generate"),
        ('failed to inject devices: failed to stat CDI host device "/dev/nvidia9": no such file', "/dev/nvidia9"),
        ("error creating device nodes: mount /dev/nvidia9:/var/lib/x/merged/dev/nvidia9 (via /proc): no such file",
         "/dev/nvidia9"),
        ('error mounting "/usr/lib64/libcuda.so.1" to rootfs at "/x": no such file or directory', "libcuda.so.1"),
        ("crun: cannot stat `/usr/lib64/libcuda.so.535`: No such file or directory", "/usr/lib64/libcuda.so.535"),
        ("CDI: something new", "buildkit doctor"),
    ],
)  # fmt: skip
def test_podmans_refusals_are_put_into_words(said: str, words: str) -> None:
    assert words in cdi.hint_for(said)
    assert cdi.hint_for("no space left on device") == ""


def test_what_would_stop_the_start_is_told_before_podman_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    row = matrix.load(ROOT / "matrix.yaml").rows["cu128"]
    monkeypatch.setattr(launch, "has_cdi_gpu", lambda: True)
    monkeypatch.setattr(gpu, "look", lambda *_: replace(HOST, absent=frozenset({"/dev/nvidia0"})))
    with pytest.raises(WorkError, match="/dev/nvidia0, which is not there") as caught:
        launch._gpu("auto", row, "")
    assert "--gpu off" in caught.value.hint
    # Whether a node opens, only the attempt tells for certain.
    closed = {"/dev/nvidia0": Owner(0o660, 0, 44)}
    monkeypatch.setattr(gpu, "look", lambda *_: replace(HOST, nodes=NODES | closed))
    assert launch._gpu("auto", row, "") == ["--device=nvidia.com/gpu=all", "--security-opt=label=disable"]
    assert launch._gpu("off", row, "") == []


def test_a_required_gpu_names_the_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    row = matrix.load(ROOT / "matrix.yaml").rows["cu130"]
    monkeypatch.setattr(gpu, "look", lambda *_: HOST)
    with pytest.raises(WorkError, match=r"driver 535\.104\.05 is too old: CUDA 13\.0 needs 580"):
        launch._gpu("require", row, "")
    monkeypatch.setattr(gpu, "look", lambda *_: replace(HOST, driver="580.65.06", specs=()))
    with pytest.raises(WorkError, match="no CDI specification") as caught:
        launch._gpu("require", row, "")
    assert "nvidia-ctk" in caught.value.hint
    assert gpu.first_obstacle(row, "").code == "no-spec"
    monkeypatch.setattr(gpu, "look", lambda *_: replace(HOST, driver="580.65.06", specs=(replace(GOOD, mounts=()),)))
    assert launch._gpu("require", row, "") == ["--device=nvidia.com/gpu=all", "--security-opt=label=disable"]
    assert gpu.first_obstacle(row, "").code == "unknown"
