"""Small projects for tests: the real templates and images with a matrix of the test's own."""

from __future__ import annotations

import shutil
from pathlib import Path

from imagebuild.plan.plan import Plan
from imagebuild.spec import matrix

ROOT = Path(__file__).parents[1]

MATRIX = """\
version: 1.0.0
epoch: 2026-11-30
project: drl
defaults: {os: debian12, base: bootstrap, python: "3.11", sb3: 2.9.2, sb3_contrib: 2.9.2, gymnasium: 1.2.3,
           mujoco: 3.3.7, numpy: 2.3.5, onnx: 1.19.1, onnxruntime: 1.26.0}
rows:
  cpu: {variant: cpu, torch: 2.13.0}
  cu128: {variant: cu128, torch: 2.9.1, wheels: pypi}
  cu118:
    {os: rockylinux8, base: "docker.io/nvidia/cuda:11.8.0-cudnn8-devel-rockylinux8", variant: cu118, torch: 2.0.1,
     sb3: 2.3.2, sb3_contrib: 2.3.0, gymnasium: 0.29.1, mujoco: 2.3.7, numpy: 1.26.4, onnx: 1.15.0, onnxruntime: 1.18.0}
"""


def project(folder: Path, text: str = MATRIX) -> Path:
    """A project folder with the real templates and images and this matrix."""
    for name in ("templates", "images"):
        shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True)
    (folder / "matrix.yaml").write_text(text, encoding="utf-8")
    return folder


def plan(folder: Path) -> Plan:
    """The plan of a project folder as it is now."""
    return Plan(folder, matrix.load(folder / "matrix.yaml"))
