"""`buildkit diff` on a real registry: the packages that the smoke checks wrote down, as evidence of two images."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import buildkit
from imagebuild.engine.registry import Registry
from imagebuild.run import evidence
from imagebuild.run.decide import address
from imagebuild.run.evidence import SmokeCase, SmokeReport
from imagebuild.spec.reference import Reference
from tests.projects import MATRIX, plan, project
from tests.registry_server import RegistryServer
from tests.release_shop import START, push_image

BEFORE = {"os": {"libssl3": "3.0.11", "tini": "0.19"}, "python": {"torch": "2.13.0"}}
AFTER = {"os": {"libssl3": "3.0.15", "tini": "0.19"}, "python": {"torch": "2.13.0", "rich": "14"}}


def push(registry: Registry, reference: Reference, packages: object) -> None:
    """An image with a green smoke report that has a list of packages."""
    image = push_image(registry, reference.repository, str(packages), reference.tag)
    report = SmokeReport(
        target="train-cpu", image_id=registry.get_manifest(reference).config_digest, started=START,
        cases=(SmokeCase(name="90-packages", outcome="passed"),),
    )  # fmt: skip
    content = json.dumps(packages).encode()
    evidence.attach(registry, reference.repository, image, report, {"packages.json": content})


def diff(folder: Path, registry: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, buildkit.__file__, "-C", str(folder), "diff", *arguments]
    environment = {"BUILDKIT_REGISTRY": registry, "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path, registry_server: RegistryServer) -> Path:
    """A project whose train-cpu is in the registry, beside the image that is prod."""
    made = project(tmp_path, MATRIX.replace("project: drl", "project: diffs"))
    now = address(plan(made)["train-cpu"], registry_server.host)
    with Registry(registry_server.host) as registry:
        push(registry, now, AFTER)
        push(registry, now.repository.tagged("cpu-prod"), BEFORE)
    return made


def test_what_changed_since_prod(folder: Path, registry_server: RegistryServer) -> None:
    shown = diff(folder, registry_server.host, "train-cpu")
    assert shown.returncode == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert shown.stdout.startswith("train-cpu: cpu-prod -> cpu-in-")
    assert lines[2:] == [["os", "libssl3", "3.0.11", "3.0.15"], ["python", "rich", "-", "14"]]
    found = json.loads(diff(folder, registry_server.host, "--json", "--against", "cpu-prod", "train-cpu").stdout)
    assert found["changes"][1] == {"kind": "python", "package": "rich", "before": None, "after": "14"}


def test_the_same_image_and_one_that_is_not_there(folder: Path, registry_server: RegistryServer) -> None:
    now = plan(folder)["train-cpu"].tag
    assert "no packages changed" in diff(folder, registry_server.host, "--against", now, "train-cpu").stdout
    absent = diff(folder, registry_server.host, "--against", "staging", "train-cpu")
    assert (absent.returncode, "cpu-staging is not in the registry" in absent.stderr) == (1, True)
