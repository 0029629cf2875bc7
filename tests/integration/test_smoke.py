"""Smoke runs in real containers: each ending that a check can have, absent GPUs, and broken promises."""

from __future__ import annotations

import shutil
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
from tests.projects import ROOT


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
    cases = junit(tiny)
    assert list(cases) == ["10-ok", "20-skips", "30-fails", "40-dies", "50-control"]
    assert cases["20-skips"].find("skipped").attrib["message"] == "no camera here"  # type: ignore[union-attr]
    # Each with what it printed, whether it failed or not.
    output = {name: (case.findtext("system-out") or "").splitlines() for name, case in cases.items()}
    assert output["10-ok"] == ["fine"]
    assert output["20-skips"] == ["skip: no camera here"]
    assert output["30-fails"] == ["details", "the cable is out: plug it in"]
    assert output["50-control"] == ["bell ? and ?"]
    assert left_over(podman, tiny.project) == []


def test_a_stage_without_checks_is_not_tested(tiny: Tiny) -> None:
    (tiny.folder / "images/base/smoke/10-ok.py").unlink()
    failed = tiny("build", "--smoke", "--push", "base-tiny")
    assert failed.code == 1
    assert "base has no smoke checks" in failed.err


def test_a_check_that_hangs_is_ended_and_those_after_it_run(
    tiny: Tiny, podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.check("base", "20-hangs.py", "import time\nprint('waiting', flush=True)\ntime.sleep(900)\n")
    tiny.check("base", "30-after.py", "open('/smoke/out/kept', 'w').write('by 30-after')\n")
    tiny("build", "base-tiny")
    monkeypatch.setattr(smoke, "CHECK_TIMEOUT", 10.0)
    before = volumes(podman)
    report = run(tiny.folder, tiny.plan().targets["base-tiny"], tiny.plan()["base-tiny"].local_name, podman)
    assert [case.outcome for case in report.cases] == ["passed", "failed", "passed"]
    assert report.cases[1].message == "took longer than 10 s"
    assert volumes(podman) <= before
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


def test_a_sites_own_checks_join_the_suite_and_count(tiny: Tiny, tmp_path: Path) -> None:
    site = tmp_path / "checks"
    tiny.check("base", "smokelib.py", (ROOT / "images/common/smoke/smokelib.py").read_text())
    for name, text in (
        ("base/20-licence.py", "import smokelib, sitelib\nprint(sitelib.WORD, smokelib.row()['name'])\n"),
        ("base/60-gpu-fan.py", "raise SystemExit('not on a CPU row')\n"),
        ("common/sitelib.py", "WORD = 'licensed'\n"),
        ("train/10-of-train.py", "raise SystemExit('not for base')\n"),
    ):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    assert "1 passed" in tiny("build", "--smoke", "--push", "base-tiny").err
    tiny.environment["BUILDKIT_CHECKS"] = str(site)
    assert "2 passed" in tiny("smoke", "base-tiny").err  # another suite: what was tested before says too little
    cases = junit(tiny)
    assert list(cases) == ["10-ok", "site/20-licence"]
    assert cases["site/20-licence"].findtext("system-out") == "licensed tiny\n"
    assert "tested before: 2 passed" in tiny("smoke", "base-tiny").err
    (site / "base/20-licence.py").write_text("raise SystemExit('no licence server: open port 27000')\n")
    failed = tiny("build", "--smoke", "--push", "base-tiny")
    assert failed.code == 1
    assert "site/20-licence: no licence server: open port 27000" in failed.err
    refused = tiny("promote", "base-tiny")
    assert refused.code == 3
    assert "site/20-licence" in refused.err
    (site / "base/10-ok.py").write_text("")
    wrong = tiny("build", "--smoke", "base-tiny")
    assert wrong.code == 2
    assert f"{site}/base/10-ok.py: buildkit has a 10-ok.py in base already" in wrong.err


def test_a_result_from_the_registry_has_its_report_here(tiny: Tiny) -> None:
    """Another runner's: GitLab shows the report of the job that asked."""
    assert tiny("build", "--smoke", "--push", "base-tiny").code == 0
    shutil.rmtree(tiny.folder / ".buildkit")
    assert "tested before: 1 passed" in tiny("smoke", "base-tiny").err
    assert list(junit(tiny)) == ["10-ok"]


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


def junit(tiny: Tiny) -> dict[str, ElementTree.Element]:
    """The cases of the report about the base image."""
    suite = ElementTree.parse(tiny.folder / ".buildkit/reports/base-tiny.xml").getroot()
    return {case.attrib["name"]: case for case in suite.iter("testcase")}


def volumes(podman: Podman) -> set[str]:
    """The names of the volumes that there are."""
    return {one["Name"] for one in podman.json("get", "/volumes/json", doing="list volumes")}


def run(folder: Path, target: Target, image: str, podman: Podman) -> SmokeReport:
    """Run a target's suite in an image."""
    suite = smoke.Suite.load(folder, target.stage)
    return smoke.run_smoke(podman, smoke.Request(target, image, "sha256:x", suite), silent, StringIO()).report
