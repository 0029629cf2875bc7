"""Tiny projects that build in a second on the demo's base image, and the demo's own clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import buildkit
from imagebuild.plan.plan import Plan
from imagebuild.spec import matrix

_MATRIX = """\
version: 1.0.0
epoch: 2026-11-30
project: {project}
defaults: {{os: debian12, python: "3.11", torch: 2.13.0, sb3: 2.9.2, sb3_contrib: 2.9.2, gymnasium: 1.4.0,
           mujoco: 4.0.0, numpy: 2.4.6, onnxruntime: 1.32.0, shm_size: 256m, base: "{base}"}}
rows:
  tiny: {{variant: cpu, stages: [base, train]}}
"""
_CUDA_ROW = "  cu128: {variant: cu128, torch: 2.9.1, wheels: pypi, onnxruntime: 1.26.0, opset: 18, stages: [base]}\n"
_BASE = "FROM {{ base_image }}\nUSER 0:0\nCOPY files/ /opt/files/\nRUN %s\nUSER 1000:1000\n"
_TRAIN = 'FROM {{ parents["base"] }}\nUSER 0:0\nRUN echo {{ row.torch }} > /opt/torch\nUSER 1000:1000\n'


@dataclass(frozen=True)
class Answer:
    """What a call of buildkit gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


@dataclass
class Tiny:
    """A project folder with one row; `command` is what its base runs."""

    folder: Path
    registry: str
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path, base: str, registry: str) -> Tiny:
        """Write one, with a project name of its own."""
        project = f"tiny-{uuid.uuid4().hex[:8]}"
        for name in ("templates", "images/base/files", "images/base/smoke", "images/train/smoke"):
            (folder / name).mkdir(parents=True)
        (folder / "matrix.yaml").write_text(_MATRIX.format(project=project, base=base))
        (folder / "images/base/files/note.txt").write_text(f"a note of {project}\n")
        (folder / "templates/train.Containerfile.j2").write_text(_TRAIN)
        self = cls(folder, registry, {**os.environ, "BUILDKIT_REGISTRY": registry})
        self.base_runs("echo hello")
        for stage in ("base", "train"):
            self.check(stage, "10-ok.py", "print('fine')\n")
        return self

    @property
    def project(self) -> str:
        """The project's name."""
        return self.plan().matrix.header.project

    def add_cuda_row(self) -> None:
        """Add a row that promises a GPU."""
        with (self.folder / "matrix.yaml").open("a") as file:
            file.write(_CUDA_ROW)

    def base_runs(self, command: str) -> None:
        """Change what the base image runs."""
        (self.folder / "templates/base.Containerfile.j2").write_text(_BASE % command)

    def edit_matrix(self, old: str, new: str) -> None:
        """Change the matrix."""
        path = self.folder / "matrix.yaml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))

    def check(self, stage: str, name: str, text: str) -> None:
        """Write a smoke check."""
        (self.folder / "images" / stage / "smoke" / name).write_text(text)

    def plan(self) -> Plan:
        """The plan as it is now."""
        return Plan(self.folder, matrix.load(self.folder / "matrix.yaml"))

    def command(self, *arguments: str) -> list[str]:
        """The command line of a call."""
        return [sys.executable, buildkit.__file__, "-C", str(self.folder), *arguments]

    def __call__(self, *arguments: str) -> Answer:
        """Call buildkit in a process of its own."""
        done = subprocess.run(self.command(*arguments), env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, timeout=300)  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return Answer(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Demo:
    """The clone in which the demo ran; `first` is what it printed."""

    folder: Path
    registry: str
    environment: dict[str, str]
    first: str

    def command(self, *arguments: str) -> list[str]:
        """The command line of a call."""
        return [str(self.folder / ".venv/bin/buildkit"), "-C", str(self.folder), *arguments]

    def __call__(self, *arguments: str) -> Answer:
        """Call the clone's own buildkit."""
        done = subprocess.run(self.command(*arguments), env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, timeout=900)  # fmt: skip
        return Answer(done.returncode, done.stdout, done.stderr)

    def image(self, stage: str) -> str:
        """The local name of one of its images."""
        return Plan(self.folder, matrix.load(self.folder / "matrix.yaml"))[f"{stage}-cpu"].local_name


def run_demo(folder: Path, environment: dict[str, str]) -> str:
    """Run scripts/demo; its output, which is shown as it comes when pytest runs with -s."""
    done = subprocess.run(
        [folder / "scripts" / "demo"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, timeout=1500,
    )  # fmt: skip
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout
