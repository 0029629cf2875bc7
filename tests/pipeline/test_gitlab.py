"""The real `.gitlab-ci.yml`, run by gitlab-ci-local: around a stand-in for buildkit, then on the cpu row for real."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest
import yaml

from imagebuild.views.gitlab import TargetView, child_pipeline
from tests.clones import ROOT, GitlabProject, copy_project, make_repository
from tests.registry_server import RegistryServer

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


def test_the_cpu_row_is_built_pushed_and_promoted(tmp_path: Path) -> None:
    project, registry_folder = tmp_path / "project", tmp_path / "registry"
    project.mkdir()
    copy_project(project, without="tests/unit/test_[!s]*.py")  # a few unit tests show that the job runs them
    with RegistryServer(registry_folder) as registry:
        variables = PROTECTED | {"BUILDKIT_REGISTRY": registry.host, "BUILDKIT_TARGETS": "cpu"}
        run = GitlabProject(project, variables).run("--manual", "promote-train-cpu", timeout=1200)
        assert run.returncode == 0, run.output
        targets = {f"{stage}-cpu" for stage in ("base", "train", "diag-tools", "inference")}
        assert targets | {"promote-train-cpu"} <= run.jobs("PASS"), run.output
        for stage in ("base", "train", "diag-tools", "inference"):
            tags = tags_of(registry, stage)
            assert any(tag.startswith("cpu-in-") for tag in tags), tags
            assert ("cpu-prod" in tags) == (stage == "train"), tags
    reports = {report.stem for report in (project / ".buildkit/reports").glob("*.xml")}
    assert targets | {"unit"} <= reports


def tags_of(registry: RegistryServer, stage: str) -> list[str]:
    project = yaml.safe_load((ROOT / "matrix.yaml").read_text())["project"]
    answer = httpx.get(f"http://{registry.host}/v2/{project}/{stage}/tags/list", trust_env=False)
    answer.raise_for_status()
    tags: list[str] = answer.json()["tags"]
    return tags
