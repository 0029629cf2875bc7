"""The real `.gitlab-ci.yml`, run by gitlab-ci-local: around a stand-in for buildkit, then for real, after the demo."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from imagebuild.engine.registry import Registry
from imagebuild.spec.reference import stage_repository
from imagebuild.views.gitlab import TargetView, child_pipeline
from tests.clones import ROOT, GitlabProject, change, copy_project, make_repository
from tests.integration.tiny import Demo

STAGES = ("base", "train", "diag-tools", "inference")
PROTECTED = {"CI_COMMIT_REF_PROTECTED": "true"}
TARGETS = [
    TargetView("base-cpu", "base", "cpu"),
    TargetView("train-cpu", "train", "cpu", ["base-cpu"]),
    TargetView("inference-cpu", "inference", "cpu", ["train-cpu"]),
]
# Writes down how it was called, and fails at the target that the file `broken` names.
STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >> calls
case "$*" in
    "ci generate"*) cat child.yml ;;
    *"$(cat broken 2>/dev/null || echo no-such-target)"*) exit 1 ;;
esac
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> GitlabProject:
    """A project with the real pipeline files, whose commands only write down that they were called."""
    shutil.copy(ROOT / ".gitlab-ci.yml", tmp_path)
    shutil.copytree(ROOT / ".gitlab", tmp_path / ".gitlab")
    for name in ("scripts/setup", "scripts/lint", ".venv/bin/pytest", ".venv/bin/buildkit"):
        command = tmp_path / name
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(STAND_IN)
        command.chmod(0o755)
    (tmp_path / ".buildkit").mkdir()
    (tmp_path / "child.yml").write_text(child_pipeline(TARGETS))
    make_repository(tmp_path)
    return GitlabProject(tmp_path, dict(PROTECTED))


def calls(project: GitlabProject, command: str) -> list[str]:
    lines = (project.folder / "calls").read_text().splitlines()
    return [line.strip() for line in lines if line.startswith(command)]


def test_the_pipeline_checks_generates_and_builds_along_the_dag(stand_in: GitlabProject) -> None:
    run = stand_in.run()
    assert run.returncode == 0, run.output
    assert calls(stand_in, "lint") == ["lint"]
    assert calls(stand_in, "buildkit") == ["buildkit lock --check", "buildkit ci generate pipeline"] + [
        f"buildkit build {target.name} --smoke --push --gpu off" for target in TARGETS
    ]


def test_a_failed_parent_fails_its_job_and_its_children_never_start(stand_in: GitlabProject) -> None:
    (stand_in.folder / "broken").write_text("train-cpu")
    run = stand_in.run()  # its exit code says nothing: gitlab-ci-local does not pass a child's failure up
    assert run.jobs("FAIL") == {"train-cpu"}, run.output
    assert run.jobs("PASS") == {"lint-and-unit", "generate", "images", "base-cpu"}, run.output
    assert [call.split()[2] for call in calls(stand_in, "buildkit build")] == ["base-cpu", "train-cpu"]


def test_a_manual_promotion_on_a_protected_branch_runs(stand_in: GitlabProject) -> None:
    run = stand_in.run("--manual", "promote-train-cpu")
    assert run.returncode == 0, run.output
    assert calls(stand_in, "buildkit promote") == ["buildkit promote train-cpu"]


def test_an_unprotected_branch_has_no_promotion(stand_in: GitlabProject) -> None:
    stand_in.variables["CI_COMMIT_REF_PROTECTED"] = "false"
    run = stand_in.run("--manual", "promote-train-cpu")
    assert not calls(stand_in, "buildkit promote"), run.output


def test_a_scheduled_pipeline_builds_the_cpu_row_twice_and_compares(stand_in: GitlabProject) -> None:
    stand_in.variables["CI_PIPELINE_SOURCE"] = "schedule"
    run = stand_in.run()
    assert run.returncode == 0, run.output
    assert calls(stand_in, "buildkit reproduce") == ["buildkit reproduce cpu"]


def test_other_pipelines_do_so_only_by_hand(stand_in: GitlabProject) -> None:
    assert stand_in.run().returncode == 0
    assert not calls(stand_in, "buildkit reproduce")
    assert stand_in.run("--manual", "reproduce").returncode == 0
    assert calls(stand_in, "buildkit reproduce") == ["buildkit reproduce cpu"]


def test_without_targets_the_pipeline_is_green_and_says_why(stand_in: GitlabProject) -> None:
    (stand_in.folder / "child.yml").write_text(child_pipeline([]))
    run = stand_in.run()
    assert run.returncode == 0, run.output
    assert "Nothing to build" in run.output


def test_a_change_is_built_pushed_and_promoted(demo: Demo, tmp_path: Path) -> None:
    """After the demo, into its registry: what the change does not concern is neither built nor tested again."""
    project = tmp_path / "project"
    project.mkdir()
    copy_project(project, without="tests/unit/test_[!s]*.py")  # a few unit tests show that the job runs them
    change(project, "matrix.yaml", "version: 1.0.0", "version: 2.0.0")
    change(project, "images/inference/files/policy_server/__init__.py", "Serves", "Offers")
    before = {stage: tags_of(demo.registry, stage) for stage in STAGES}
    variables = PROTECTED | {"BUILDKIT_REGISTRY": demo.registry, "BUILDKIT_TARGETS": "cpu"}
    run = GitlabProject(project, variables).run("--manual", "promote-train-cpu", timeout=1200)
    assert run.returncode == 0, run.output
    targets = {f"{stage}-cpu" for stage in STAGES}
    assert targets | {"promote-train-cpu"} <= run.jobs("PASS"), run.output
    new = {stage: tags_of(demo.registry, stage) - before[stage] for stage in STAGES}
    assert [stage for stage in STAGES if any(tag.startswith("cpu-in-") for tag in new[stage])] == ["inference"], new
    assert all("cpu-2.0.0" in tags for tags in new.values()), new
    assert [stage for stage in STAGES if "cpu-2.0.0-prod" in new[stage]] == ["train"]
    assert run.output.count("up to date: in the registry as") >= len(STAGES) - 1
    reports = {report.stem for report in (project / ".buildkit/reports").glob("*.xml")}
    assert targets | {"unit"} <= reports


def tags_of(registry: str, stage: str) -> set[str]:
    return set(Registry(registry).list_tags(stage_repository(registry, "drl", stage)))
