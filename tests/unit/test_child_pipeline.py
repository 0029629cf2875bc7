"""The GitLab pipeline: the generated child follows the DAG, the hand-written part keeps promotion manual."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml

from imagebuild.views.gitlab import TargetView, child_pipeline

ROOT = Path(__file__).parents[2]

CPU = [
    TargetView("base-cpu", "base", "cpu"),
    TargetView("train-cpu", "train", "cpu", ["base-cpu"]),
    TargetView("diag-tools-cpu", "diag-tools", "cpu", ["train-cpu"]),
    TargetView("inference-cpu", "inference", "cpu", ["base-cpu", "train-cpu"]),
]
TRAIN_CU118 = TargetView("train-cu118", "train", "cu118", ["base-cu118"], is_cuda=True)


def load(text: str) -> dict[str, Any]:
    document = yaml.safe_load(text)
    assert isinstance(document, dict)
    return document


def needed(job: dict[str, Any]) -> list[str]:
    needs = job["needs"]
    assert isinstance(needs, list)
    return needs


def test_each_job_waits_for_the_jobs_of_its_parents() -> None:
    child = load(child_pipeline(CPU))
    for target in CPU:
        assert needed(child[target.name]) == list(target.parents)
        assert child[target.name]["variables"]["TARGET"] == target.name


@pytest.mark.parametrize("order", list(permutations(CPU)))
def test_no_job_needs_one_of_a_later_stage_whatever_the_order(order: tuple[TargetView, ...]) -> None:
    child = load(child_pipeline(order))
    for name, job in child.items():
        if isinstance(job, dict):
            for need in needed(job):
                assert child["stages"].index(child[need]["stage"]) <= child["stages"].index(job["stage"]), (name, need)


def test_a_parent_outside_the_selection_is_not_needed() -> None:
    assert needed(load(child_pipeline([TRAIN_CU118]))["train-cu118"]) == []


@pytest.mark.parametrize(("gpu_tags", "expected"), [([], "auto"), (["podman", "gpu"], "require")])
def test_a_cuda_row_insists_on_a_gpu_only_where_runners_have_one(gpu_tags: list[str], expected: str) -> None:
    child = load(child_pipeline([*CPU, TRAIN_CU118], gpu_tags=gpu_tags))
    assert child["train-cu118"]["variables"]["GPU"] == expected
    assert child["train-cu118"].get("tags", []) == gpu_tags
    assert child["train-cpu"]["variables"]["GPU"] == "off"
    assert "tags" not in child["train-cpu"]


def test_a_pipeline_without_targets_has_one_job_that_says_why() -> None:
    child = load(child_pipeline([], project="robots"))
    jobs = [job for job in child.values() if isinstance(job, dict) and "script" in job]
    assert len(jobs) == 1
    assert jobs[0]["script"] == [
        'echo "Nothing to build: no target of robots matches the selection, or none can be built here."'
    ]


def test_every_image_can_be_promoted_after_its_own_job() -> None:
    child = load(child_pipeline(CPU))
    for target in CPU:
        promote = child[f"promote-{target.name}"]
        assert promote["extends"] == ".promote"
        assert needed(promote) == [target.name]
        assert promote["stage"] == child["stages"][-1] == "release"


def test_promotion_is_manual_protected_and_one_at_a_time() -> None:
    promote = load((ROOT / ".gitlab/jobs.yml").read_text())[".promote"]
    (rule,) = promote["rules"]
    assert rule["when"] == "manual"
    assert '$CI_COMMIT_REF_PROTECTED == "true"' in rule["if"]
    assert "$CI_DEFAULT_BRANCH" in rule["if"]
    assert promote["environment"]["name"] == promote["resource_group"] == "production"
    assert promote["interruptible"] is False
    assert promote["retry"] == 0


def test_the_templates_that_the_child_extends_exist() -> None:
    child = load(child_pipeline(CPU))
    templates = load((ROOT / child["include"][0]["local"].lstrip("/")).read_text())
    assert {job["extends"] for job in child.values() if isinstance(job, dict)} <= templates.keys()


def test_the_pipeline_runs_what_it_generated() -> None:
    pipeline = load((ROOT / ".gitlab-ci.yml").read_text())
    (include,) = pipeline["images"]["trigger"]["include"]
    assert pipeline["images"]["trigger"]["strategy"] == "depend"
    assert include["artifact"] in pipeline[include["job"]]["artifacts"]["paths"]
    assert include["job"] in pipeline["images"]["needs"]
    for name, job in pipeline.items():
        if isinstance(job, dict) and "stage" in job:
            assert job["stage"] in pipeline["stages"], name
