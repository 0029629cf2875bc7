"""Budgets: what is too heavy, in which words, and what metadata says of images that need not be built."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pytest

from imagebuild.engine.layers import Layer
from imagebuild.engine.manifest import Descriptor
from imagebuild.engine.podman import Image
from imagebuild.engine.registry import Registry
from imagebuild.errors import WorkError
from imagebuild.plan.plan import INPUTS_LABEL, Plan
from imagebuild.run import budget, evidence
from imagebuild.run.decide import Action, Decision, Presence, _by_inputs, address
from imagebuild.run.evidence import SmokeCase, SmokeReport
from imagebuild.run.results import SmokeResults
from imagebuild.run.state import BuildRecord, State
from tests.memory_registry import MemoryRegistry
from tests.projects import MATRIX, plan, project
from tests.release_shop import push_image

M = 2**20


@pytest.fixture
def planned(tmp_path: Path) -> Plan:
    text = MATRIX.replace(
        "cpu: {variant: cpu,", "cpu: {variant: cpu, budgets: {train: 10m, base: {size: 1m, pull: 1k}},"
    )
    return plan(project(tmp_path, text))


def check(of: Plan, name: str, **weights: int) -> None:
    steps = ["RUN small", "RUN large", "COPY /opt/venv/requirements.txt"]
    layers = [Layer(f"sha256:{size}", step, size * M, size) for step, size in zip(steps, (1, 9, 2), strict=True)]
    budget.check(of, of[name], weights, lambda _kind: layers)  # type: ignore[arg-type]


def test_what_is_within_its_budget_or_has_none_passes(planned: Plan) -> None:
    check(planned, "train-cpu", size=10 * M)
    check(planned, "train-cpu", pull=10**12)
    check(planned, "diag-tools-cpu", size=10**12)
    check(planned, "train-cu128", size=10**12)
    check(planned, "base-cpu")  # what is not known is not over


def test_what_is_over_says_by_how_much_where_and_what_is_heavy(planned: Plan) -> None:
    with pytest.raises(WorkError) as caught:
        check(planned, "train-cpu", size=12 * M)
    lines = caught.value.message.splitlines()
    place = planned.matrix.locate("cpu", "budgets", "train", "size")
    assert lines[0].startswith(f"13 MB, 2.1 MB over its budget of 10m (10 MB, {place})")
    assert lines[1:] == [
        "    9.4 MB  RUN large",
        "    2.1 MB  The Python packages of the row (COPY /opt/venv/requirements.txt)",
        "    1.0 MB  RUN small",
    ]
    assert "buildkit size train-cpu" in caught.value.hint
    with pytest.raises(WorkError, match=r"1\.1 kB to pull, 0\.1 kB over its budget of 1k \(1\.0 kB, matrix\.yaml:7:"):
        check(planned, "base-cpu", size=M, pull=1100)


# --- what metadata says -----------------------------------------------------------------------------


def no_podman() -> NoReturn:
    raise AssertionError("metadata needs no engine")


def push(registry: Registry, of: Plan, name: str) -> tuple[str, Descriptor]:
    reference = address(of[name], registry.host)
    return reference.tag, push_image(registry, reference.repository, name, reference.tag)


def test_weights_come_from_the_record_or_from_the_registry(planned: Plan, tmp_path: Path) -> None:
    registry = Registry(MemoryRegistry.host, transport=MemoryRegistry().transport())
    state = State(tmp_path)
    images = {name: push(registry, planned, name)[1] for name in ("base-cpu", "train-cpu", "train-cu128")}
    decisions = [
        Decision(planned[name], Action.NOTHING, "there", Presence(image.digest)) for name, image in images.items()
    ]  # fmt: skip
    known = budget.Known(planned, registry, state, SmokeResults(state, registry), no_podman)
    # Nobody wrote down what lies uncompressed; what travels is in the manifest. No budget, no question.
    assert known.weights(decisions) == {"base-cpu": {"size": 0, "pull": len("base-cpu")}, "train-cpu": {"size": 0}}

    repository = address(planned["base-cpu"], registry.host).repository
    config = registry.get_manifest(repository.at(images["base-cpu"].digest)).config_digest
    report = SmokeReport(target="base-cpu", image_id=config, started=datetime.now(UTC),
                         cases=(SmokeCase(name="10-a", outcome="passed"),))  # fmt: skip
    files = {"layers.json": json.dumps({"sha256:a": 5, "sha256:b": 6}).encode(), "policy.onnx": b"large"}
    evidence.attach(registry, repository, images["base-cpu"], report, files)
    state.remember_build(BuildRecord("train-cpu", planned["train-cpu"].digest, "", 1.0, 99))
    assert known.weights(decisions) == {"base-cpu": {"size": 11, "pull": 8}, "train-cpu": {"size": 99}}
    # A record of other inputs says nothing.
    state.remember_build(BuildRecord("train-cpu", "sha256:other", "", 1.0, 99))
    assert known.weights(decisions)["train-cpu"] == {"size": 0}
    build = [Decision(planned["train-cpu"], Action.BUILD, "changed", Presence())]
    assert known.weights(build) == {}


def test_only_the_wanted_files_of_the_evidence_are_read(planned: Plan) -> None:
    memory = MemoryRegistry()
    registry = Registry(memory.host, transport=memory.transport())
    image = push(registry, planned, "base-cpu")[1]
    repository = address(planned["base-cpu"], registry.host).repository
    config = registry.get_manifest(repository.at(image.digest)).config_digest
    report = SmokeReport(target="base-cpu", image_id=config, started=datetime.now(UTC))
    evidence.attach(registry, repository, image, report, {"layers.json": b"{}", "policy.onnx": b"large"})
    large = next(digest for digest, content in memory.blobs.items() if content == b"large")
    del memory.blobs[large]
    assert evidence.artifacts(registry, repository, image.digest, ("layers.json",)) == {"layers.json": b"{}"}


def test_an_image_is_not_taken_for_what_a_later_build_left_behind() -> None:
    digest = f"sha256:{'0123456789abcdef' * 4}"

    def image(name: str, size: int, *names: str) -> Image:
        return Image(name, names, {INPUTS_LABEL: digest}, size, "")

    named = image("named", 9, "localhost/drl/train:cpu-in-0123456789abcdef")
    left, small = image("left", 7), image("small", 5)
    for images in ([named, left, small], [small, left, named], [left, named, small]):
        assert _by_inputs(images) == {digest: "named"}
    assert _by_inputs([left, small]) == _by_inputs([small, left]) == {digest: "small"}
