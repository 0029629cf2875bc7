"""What `buildkit diff` compares, and the smoke check that writes it down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from imagebuild.engine.registry import Registry
from imagebuild.errors import WorkError
from imagebuild.release.diff import Change, Packages, changes, packages_at, read
from imagebuild.run import evidence
from imagebuild.run.evidence import SmokeCase, SmokeReport
from imagebuild.spec.reference import Repository
from tests.memory_registry import MemoryRegistry
from tests.projects import ROOT
from tests.release_shop import START, push_image

OLD = Packages(os={"libssl3": "3.0.11-1", "tini": "0.19.0"}, python={"numpy": "2.4.5", "torch": "2.13.0"})
NEW = Packages(os={"libssl3": "3.0.15-1", "zlib1g": "1.2.13"}, python={"numpy": "2.4.5", "torch": "2.13.0"})


def test_changes_are_what_came_went_and_moved() -> None:
    assert list(changes(OLD, NEW)) == [
        Change("os", "libssl3", "3.0.11-1", "3.0.15-1"),
        Change("os", "tini", "0.19.0", None),
        Change("os", "zlib1g", None, "1.2.13"),
    ]
    assert list(changes(OLD, OLD)) == []


@pytest.mark.parametrize("content", [b"", b"[]", b'{"os": {}}', b'{"os": {}, "python": {"a": 1}}'])
def test_a_list_that_is_none_is_an_error(content: bytes) -> None:
    with pytest.raises(WorkError, match="the list of packages in x is not readable"):
        read({"packages.json": content}, "x")
    with pytest.raises(WorkError, match="nobody wrote down the packages in x"):
        read({}, "x")


def test_the_packages_come_from_the_evidence_of_an_image() -> None:
    registry = Registry(MemoryRegistry.host, transport=MemoryRegistry().transport())
    repository = Repository(registry.host, "demo/train")
    image = push_image(registry, repository, "one", "cpu-1.0.0")
    report = SmokeReport(
        target="train-cpu", image_id=registry.get_manifest(repository.at(image.digest)).config_digest, started=START,
        cases=(SmokeCase(name="90-packages", outcome="passed"),),
    )  # fmt: skip
    with pytest.raises(WorkError, match="nobody wrote down the packages"):
        packages_at(registry, repository.tagged("cpu-1.0.0"))
    evidence.attach(registry, repository, image, report, {"packages.json": OLD.model_dump_json().encode()})
    assert packages_at(registry, repository.tagged("cpu-1.0.0")) == OLD
    with pytest.raises(WorkError, match=r"cpu-prod is not in the registry"):
        packages_at(registry, repository.tagged("cpu-prod"))


# --- the check, run on this machine ---------------------------------------------------------------

DPKG = """\
Package: tini
Status: install ok installed
Version: 0.19.0-1

Package: removed
Status: deinstall ok config-files
Version: 1.0

Package: libssl3
Status: install ok installed
Description: a text
 Version: 9 of it
Version: 3.0.15-1
"""


def check(tmp_path: Path, stage: str, database: str | None) -> subprocess.CompletedProcess[str]:
    """Run the check with a database of dpkg's, or none, and without any rpm."""
    (tmp_path / "expect.json").write_text(json.dumps({"stage": stage}))
    source = (ROOT / "images/common/smoke/90-packages.py").read_text()
    source = source.replace("/var/lib/dpkg/status", str(tmp_path / "status")).replace('which("rpm")', 'which("no-rpm")')
    if database is not None:
        (tmp_path / "status").write_text(database)
    environment = {**os.environ, "SMOKE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT / "images/common/smoke")}
    return subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=False)


def test_the_check_writes_down_what_is_installed(tmp_path: Path) -> None:
    done = check(tmp_path, "train", DPKG)
    assert done.returncode == 0, done.stderr
    written = read({"packages.json": (tmp_path / "out/packages.json").read_bytes()}, "here")
    assert written.os == {"tini": "0.19.0-1", "libssl3": "3.0.15-1"}
    assert written.python["pytest"] == pytest.__version__


def test_only_the_slim_image_may_have_no_database(tmp_path: Path) -> None:
    failed = check(tmp_path, "train", None)
    assert failed.returncode == 1
    assert "the system's packages are not known" in failed.stderr
    assert check(tmp_path, "inference", None).returncode == 0
