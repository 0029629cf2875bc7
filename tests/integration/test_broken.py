"""Each property that the images promise, broken on purpose: the real checks fail, and say what to do."""

from __future__ import annotations

import shutil
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest

from imagebuild.engine.container import ContainerSettings
from imagebuild.engine.podman import Podman
from imagebuild.events import silent
from imagebuild.plan.targets import Target
from imagebuild.run import smoke
from imagebuild.run.evidence import SmokeCase
from imagebuild.spec import matrix
from tests.integration.tiny import Demo, Tiny


def test_64_mb_of_shared_memory(demo: Demo, podman: Podman, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default of containers, which costs people days."""
    assert check(demo, podman, "20-shm.py").outcome == "passed"
    given = ContainerSettings
    monkeypatch.setattr(smoke, "ContainerSettings", lambda **settings: replace(given(**settings), shm_bytes=2**26))
    case = check(demo, podman, "20-shm.py")
    assert case.outcome == "failed"
    assert case.message == (
        "/dev/shm holds 67108864 bytes, not 8589934592: start the container with --shm-size=8g (buildkit run does)"
    )


def test_a_row_that_promises_64_mb_of_shared_memory(demo: Demo, podman: Podman) -> None:
    case = check(demo, podman, "20-shm.py", shm_size="64m")
    assert case.outcome == "failed"
    assert case.message.startswith("the row promises 67108864 bytes of /dev/shm")
    assert case.message.endswith("raise `shm_size:` in matrix.yaml; 8g is usual")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"torch": "2.12.0"}, "torch is 2.13.0, not 2.12.0: the row and the image disagree: rebuild"),
        ({"variant": "cu126"}, "onnxruntime-gpu is None, not 1.32.0: the row and the image disagree: rebuild"),
        ({"variant": "cu126", "onnxruntime": None},
         r"torch's build is 2.13.0+cpu, not 2.13.0+cu126: the wheel is of another build; look at `wheels:`"),
        ({"sb3": "2.0.0"}, "stable-baselines3 is 2.9.2, not 2.0.0: the row and the image disagree: rebuild"),
    ],
    ids=["torch", "onnxruntime", "build", "sb3"],
)  # fmt: skip
def test_another_version_than_the_rows(demo: Demo, podman: Podman, change: dict[str, Any], message: str) -> None:
    case = check(demo, podman, "10-versions.py", **change)
    assert case.outcome == "failed"
    assert case.message.startswith(message)


def test_an_image_that_runs_as_root(tiny: Tiny, demo: Demo) -> None:
    for name in ("base/smoke/30-user.py", "common/smoke/smokelib.py"):
        shutil.copy(demo.folder / "images" / name, tiny.folder / "images" / "base" / "smoke")
    template = tiny.folder / "templates" / "base.Containerfile.j2"
    template.write_text(template.read_text().replace("USER 1000:1000", "USER 0:0"))
    failed = tiny("build", "--smoke", "--push", "base-tiny")
    assert failed.code == 1
    assert "30-user: the image runs as root: the template must end with USER 1000:1000" in failed.err
    assert "is not in the registry" in tiny("promote", "base-tiny").err


def check(demo: Demo, podman: Podman, name: str, **change: Any) -> SmokeCase:
    """Run one of the train image's own checks, against a row that promises something else."""
    row = matrix.load(demo.folder / "matrix.yaml").rows["cpu"].model_copy(update=change)
    suite = smoke.Suite.load(demo.folder, "train")
    files = {path: data for path, data in suite.files.items() if path == name or not path[0].isdigit()}
    request = smoke.Request(Target("train", row), demo.image("train"), "sha256:x", smoke.Suite(files))
    (case,) = smoke.run_smoke(podman, request, silent, StringIO()).report.cases
    return case
