"""What the facts say of a row's images, and the smoke checks' tools that look whether it is so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from imagebuild.run.smoke import Suite
from imagebuild.spec import matrix
from imagebuild.spec.expected import expectations
from imagebuild.spec.facts import load
from imagebuild.spec.models import Row
from tests.projects import ROOT

ROWS = matrix.load(ROOT / "matrix.yaml").rows
COMMON = ROOT / "images/common/smoke"


def known(row: Row) -> dict[str, Any]:
    return {name: one["value"] for name, one in expectations(row, load()).items()}


def test_a_cpu_row_is_about_the_system_and_the_floors_of_wheels() -> None:
    assert known(ROWS["cpu"]) == {
        "glibc": "2.36", "libstdcxx": "3.4.30", "torch_glibc": "2.28", "mujoco_glibc": "2.28",
        "onnxruntime_glibc": "2.28",
    }  # fmt: skip


def test_a_cuda_row_is_about_cudnn_and_architectures_too() -> None:
    assert known(ROWS["cu128"]) == known(ROWS["cpu"]) | {
        "torch_default": "cu128", "cudnn": "9.10.2.21", "onnxruntime_cuda": "12", "onnxruntime_cudnn": "9",
        "driver": "525.60.13", "toolkit_driver": "570.26",
        "architectures": ["7.0", "7.5", "8.0", "8.6", "9.0", "10.0", "12.0"],
    }  # fmt: skip
    assert known(ROWS["cu118"])["glibc"] == "2.28"
    assert known(ROWS["cu118"])["cudnn"] == "8.7.0.84"
    assert "torch_default" not in known(ROWS["cu118"])


def test_each_expectation_names_its_fact_and_its_source() -> None:
    for row in ROWS.values():
        for name, one in expectations(row, load()).items():
            assert one["name"] == name
            assert one["fact"].split()[0].split(".")[0] in {"os", "torch", "cuda", "mujoco", "onnxruntime"}
            assert one["source"].endswith(")")
    assert expectations(ROWS["cu128"], load())["cudnn"]["fact"] == "torch.releases 2.9.1 variants cu128"


def test_what_the_facts_do_not_know_is_left_out() -> None:
    unknown = ROWS["cpu"].model_copy(update={"torch": "9.0.0", "mujoco": "99.0.0", "onnxruntime": "9.0.0"})
    assert set(known(unknown)) == {"glibc", "libstdcxx"}


def test_other_facts_make_earlier_smoke_results_worthless(monkeypatch: pytest.MonkeyPatch) -> None:
    suite, row = Suite({}), ROWS["cpu"]
    before = suite.digest(row)
    assert before == Suite({}).digest(row)
    monkeypatch.setattr("imagebuild.run.smoke.expectations", lambda *_: {})
    assert suite.digest(row) != before


def test_a_row_runs_the_checks_of_what_it_promises_and_no_others() -> None:
    names = ["10-versions.py", "35-rllib.py", "60-gpu-torch.py", "smokelib.py"]
    suite = Suite(dict.fromkeys(names, b""))
    assert suite.checks(ROWS["cpu"]) == ["10-versions.py"]
    assert suite.checks(ROWS["cpu-rllib"]) == ["10-versions.py", "35-rllib.py"]
    assert suite.checks(ROWS["cu128"]) == ["10-versions.py", "60-gpu-torch.py"]


# --- inside the image -----------------------------------------------------------------------------


@pytest.fixture
def wheellib(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(COMMON))
    spec = spec_from_file_location("wheellib", COMMON / "wheellib.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_symbol_versions_are_whole_strings(wheellib: ModuleType, tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(b"\0GLIBC_2.14\0GLIBC_2.2.5\0GLIBC_PRIVATE\0see GLIBC_2.99\0GLIBCXX_3.4.22\0GLIBC_2.17\0")
    assert wheellib.newest([library], "GLIBC") == (2, 17)
    assert wheellib.newest([library], "GLIBCXX") == (3, 4, 22)
    assert wheellib.newest([library], "CXXABI") is None
    assert wheellib.newest([], "GLIBC") is None


def test_the_major_of_a_needed_library(wheellib: ModuleType, tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(b"\x7fELF\0libcudnn_ops.so.8\0libcublasLt.so.13\0libcublas.so.12\0libcudnn.so.9\0")
    assert wheellib.needed_major(library, "libcublas") == "12"
    assert wheellib.needed_major(library, "libcudnn") == "9"
    assert wheellib.needed_major(library, "libcufft") is None


@pytest.mark.parametrize(
    ("tag", "glibc"),
    [
        ("cp311-cp311-manylinux_2_28_x86_64", "2.28"),
        ("cp311-cp311-manylinux2014_x86_64", "2.17"),
        ("cp311-cp311-linux_x86_64", None),
        ("py3-none-any", None),
    ],
)
def test_the_glibc_of_a_wheel_tag(wheellib: ModuleType, tag: str, glibc: str | None) -> None:
    assert wheellib.glibc_of(tag) == glibc


def confirm(found: str, facts: dict[str, Any], tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "expect.json").write_text(json.dumps({"facts": facts}))
    code = f"import smokelib\nsmokelib.confirm('cudnn', {found!r}, lambda known: known == {found!r})"
    environment = {**os.environ, "SMOKE_DIR": str(tmp_path), "PYTHONPATH": str(COMMON)}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_a_disagreement_names_the_fact_that_is_wrong(tmp_path: Path) -> None:
    facts = expectations(ROWS["cu128"], load())
    assert confirm("9.10.2.21", facts, tmp_path).returncode == 0
    failed = confirm("9.19.0", facts, tmp_path)
    assert failed.returncode == 1
    assert "`torch.releases 2.9.1 variants cu128` says 9.10.2.21" in failed.stderr
    assert "correct imagebuild/spec/compat.yaml" in failed.stderr
    unknown = confirm("9.19.0", {}, tmp_path)
    assert (unknown.returncode, "the facts say nothing" in unknown.stdout) == (0, True)
