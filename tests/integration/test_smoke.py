"""Smoke runs in real containers: each ending that a check can have, absent GPUs, and broken promises."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest

from imagebuild.engine.container import ContainerSettings
from imagebuild.engine.podman import Podman
from imagebuild.events import silent
from imagebuild.plan.targets import Target
from imagebuild.run import smoke
from imagebuild.run.evidence import SmokeReport
from imagebuild.spec import matrix
from tests.integration.test_build import left_over
from tests.integration.tiny import Demo, Tiny


def test_each_ending_of_a_check_is_one_case(tiny: Tiny, podman: Podman) -> None:
    tiny.check("base", "20-skips.py", "import sys\nprint('skip: no camera here')\nsys.exit(77)\n")
    tiny.check("base", "30-fails.py", "import sys\nprint('details')\nsys.exit('the cable is out: plug it in')\n")
    tiny.check("base", "40-dies.py", "import os\nos.kill(os.getpid(), 9)\n")
    tiny.check("base", "50-control.py", "print('bell \\x07 and \\x00')\n")
    tiny.check("base", "lib.py", "raise SystemExit('not a check')\n")
    failed = tiny("build", "--smoke", "--push", "base-tiny")
    assert failed.code == 1
    assert "30-fails: the cable is out: plug it in" in failed.err
    assert "its smoke failed" in failed.err
    suite = ElementTree.parse(tiny.folder / ".buildkit/reports/base-tiny.xml").getroot()
    assert suite.attrib["tests"] == "5"
    assert (suite.attrib["failures"], suite.attrib["skipped"]) == ("2", "1")
    cases = {case.attrib["name"]: case for case in suite.iter("testcase")}
    assert cases["20-skips"].find("skipped").attrib["message"] == "no camera here"  # type: ignore[union-attr]
    assert "details" in (cases["30-fails"].findtext("system-out") or "")
    assert left_over(podman, tiny.project) == []


def test_a_stage_without_checks_is_not_tested(tiny: Tiny) -> None:
    (tiny.folder / "images/base/smoke/10-ok.py").unlink()
    failed = tiny("build", "--smoke", "--push", "base-tiny")
    assert failed.code == 1
    assert "base has no smoke checks" in failed.err


def test_a_check_that_hangs_is_ended(tiny: Tiny, podman: Podman, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.check("base", "20-hangs.py", "import time\nprint('waiting', flush=True)\ntime.sleep(900)\n")
    tiny("build", "base-tiny")
    monkeypatch.setattr(smoke, "CHECK_TIMEOUT", 3.0)
    report = run(tiny.folder, tiny.plan().targets["base-tiny"], tiny.plan()["base-tiny"].local_name, podman)
    assert [case.outcome for case in report.cases] == ["passed", "failed"]
    assert report.cases[1].message == "took longer than 3 s"
    assert left_over(podman, tiny.project) == []


def test_a_result_counts_until_a_check_or_a_promise_changes(tiny: Tiny) -> None:
    assert "1 passed" in tiny("build", "--smoke", "base-tiny").err
    assert "tested before: 1 passed" in tiny("smoke", "base-tiny").err
    assert "tested before" not in tiny("smoke", "--again", "base-tiny").err
    tiny.edit_matrix("shm_size: 256m", "shm_size: 128m")
    assert "tested before" not in tiny("smoke", "base-tiny").err
    tiny.check("base", "20-more.py", "pass\n")
    assert "2 passed" in tiny("smoke", "base-tiny").err


def test_a_missing_gpu_is_skipped_counted_and_never_satisfies_the_gate(tiny: Tiny) -> None:
    tiny.add_cuda_row()
    tiny.check("base", "60-gpu-there.py", "raise SystemExit('only a GPU can run this')\n")
    built = tiny("build", "--smoke", "--push", "base-cu128")
    assert built.code == 0, built.err
    assert "1 passed, 1 skipped (no GPU here)" in built.err
    refused = tiny("promote", "base-cu128")
    assert refused.code == 3
    assert "gate gpu refused" in refused.err
    required = tiny("smoke", "--gpu", "require", "base-cu128")
    assert required.code == 1
    assert "a GPU is required and none is here" in required.err
    assert "nvidia-ctk cdi generate" in required.err
    passed_over = tiny("promote", "base-cu128", "--override", "gpu", "--reason", "tried by hand")
    assert passed_over.code in (0, 3), passed_over.err


def test_dev_shm_is_what_the_row_promises(demo: Demo, podman: Podman, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default of 64 MB, which costs people days, fails the train image's own check."""
    target = matrix.load(demo.folder / "matrix.yaml").rows["cpu"]
    monkeypatch.setattr(smoke.Suite, "checks", lambda *_, **__: ["20-shm.py"])
    promised = Target("train", target)
    report = run(demo.folder, promised, demo.image("train"), podman)
    assert report.green, report.cases
    settings = ContainerSettings
    monkeypatch.setattr(smoke, "ContainerSettings", lambda **given: replace(settings(**given), shm_bytes=2**26))
    broken = run(demo.folder, promised, demo.image("train"), podman)
    assert not broken.green
    assert "shm" in broken.cases[0].message


def test_an_inference_image_that_could_be_written_fails(
    demo: Demo, podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target("inference", matrix.load(demo.folder / "matrix.yaml").rows["cpu"])
    monkeypatch.setattr(smoke.Suite, "checks", lambda *_, **__: ["15-read-only.py"])
    assert run(demo.folder, target, demo.image("inference"), podman).green
    settings = ContainerSettings
    monkeypatch.setattr(smoke, "ContainerSettings", lambda **given: replace(settings(**given), read_only=False))
    broken = run(demo.folder, target, demo.image("inference"), podman)
    assert not broken.green
    assert "can be written: inference must run with `--read-only`" in broken.cases[0].message


def test_an_image_that_is_not_what_the_row_says_fails(
    demo: Demo, podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = matrix.load(demo.folder / "matrix.yaml").rows["cpu"].model_copy(update={"torch": "2.12.0"})
    monkeypatch.setattr(smoke.Suite, "checks", lambda *_, **__: ["10-versions.py"])
    report = run(demo.folder, Target("train", row), demo.image("train"), podman)
    assert report.cases[0].outcome == "failed"
    assert "2.12.0" in report.cases[0].message


def run(folder: Path, target: Target, image: str, podman: Podman) -> SmokeReport:
    """Run a target's suite in an image."""
    suite = smoke.Suite.load(folder, target.stage)
    return smoke.run_smoke(podman, smoke.Request(target, image, "sha256:x", suite), silent, StringIO()).report
