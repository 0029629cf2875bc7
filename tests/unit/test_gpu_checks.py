"""The GPU checks without a GPU: how they end with a torch that stands for a good machine, and for each bad one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from imagebuild.spec import matrix
from imagebuild.spec.expected import expectations
from imagebuild.spec.facts import load
from tests.projects import ROOT

CHECKS = ROOT / "images/train/smoke"
# As much of torch as the first checks use; what it says comes from the environment.
TORCH = """
import json, os
said = json.loads(os.environ["FAKE_TORCH"])
__version__ = said.get("version", "2.9.1+cu128")
class version:
    cuda = said.get("cuda", "12.8")
class _Number:
    def item(self):
        if said.get("broken"):
            raise RuntimeError(said["broken"])
def ones(*_, **__):
    return _Number()
class cuda:
    is_available = staticmethod(lambda: not said.get("refusal"))
    get_device_name = staticmethod(lambda _: "H100")
    get_device_capability = staticmethod(lambda _: (9, 0))
    get_arch_list = staticmethod(lambda: said.get("architectures", ["sm_80", "sm_90"]))
    device_count = staticmethod(lambda: 1)
    mem_get_info = staticmethod(lambda _: (10, 100))
    @staticmethod
    def init():
        raise RuntimeError(said["refusal"])
class multiprocessing:
    pass
"""


def run(check: str, tmp_path: Path, *, by_hand: bool = False, **said: object) -> subprocess.CompletedProcess[str]:
    """Run a check with the fake torch; its last line is what a person reads first."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(TORCH)
    if not by_hand:
        row = matrix.load(ROOT / "matrix.yaml").rows["cu128"]
        expected = {"target": "train-cu128", "row": row.model_dump(mode="json"), "gpu_present": True,
                    "facts": expectations(row, load())}  # fmt: skip
        (tmp_path / "expect.json").write_text(json.dumps(expected))
    environment = {
        **os.environ,
        "SMOKE_DIR": str(tmp_path),
        "FAKE_TORCH": json.dumps(said),
        "PYTHONPATH": str(tmp_path),
    }
    # Without PYTHONPATH for smokelib: the scripts find it by themselves.
    return subprocess.run(
        [sys.executable, str(CHECKS / check)], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_good_machine_passes_in_the_image_and_by_hand(tmp_path: Path, by_hand: bool) -> None:
    done = run("60-gpu-torch.py", tmp_path, by_hand=by_hand)
    assert done.returncode == 0, done.stderr
    assert "H100, capability 9.0" in done.stdout
    assert "other processes hold more than half of it" in done.stdout


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"version": "2.9.1+cpu", "cuda": None}, "torch 2.9.1+cpu is a CPU build, so everything falls back to the CPU"),
        ({"refusal": "The NVIDIA driver on your system is too old (found version 11040)."},
         "the host's driver is too old"),
        ({"refusal": "CUDA driver version is insufficient for CUDA runtime version"},
         "CUDA 12.8 needs 525.60.13 or newer: update it"),
        ({"refusal": "No CUDA GPUs are available"}, "a GPU is promised, and torch does not use it (No CUDA GPUs"),
        ({"broken": "CUDA out of memory. Tried to allocate 2 MiB"}, "the GPU's memory is full"),
        ({"broken": "CUDA error: no kernel image is available"}, "this wheel has no code for this GPU"),
        ({"architectures": ["sm_70"]}, "no code for H100 (sm_90) in this wheel"),
    ],
)  # fmt: skip
def test_each_bad_machine_fails_with_what_to_do(tmp_path: Path, said: dict[str, Any], words: str) -> None:
    done = run("60-gpu-torch.py", tmp_path, **said)
    assert done.returncode == 1
    assert words in done.stderr.splitlines()[-1]
    assert ": " in done.stderr.splitlines()[-1]


def test_checks_that_do_not_apply_say_why(tmp_path: Path) -> None:
    done = run("64-gpu-nccl.py", tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (77, "skip: NCCL needs two GPUs, and here is 1")


def test_by_hand_there_may_be_no_policy_but_in_an_image_there_must(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert run("63-gpu-onnxruntime.py", tmp_path / "a", by_hand=True).returncode == 77
    (tmp_path / "b").mkdir()
    assert "no exported policy" in run("63-gpu-onnxruntime.py", tmp_path / "b").stderr
