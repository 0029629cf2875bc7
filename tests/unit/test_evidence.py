"""What a smoke report says, and how it is written and read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from imagebuild.run.evidence import Gpu, Outcome, SmokeCase, SmokeReport

STARTED = datetime(2026, 3, 1, 12, tzinfo=UTC)


def report(*cases: tuple[str, Outcome], gpu: bool = False) -> SmokeReport:
    made = tuple(SmokeCase(name=name, outcome=outcome) for name, outcome in cases)
    return SmokeReport(target="train-cu118", image_id="sha256:1", gpu=Gpu(present=gpu), started=STARTED, cases=made)


@pytest.mark.parametrize(
    ("cases", "green"),
    [
        ([], False),
        ([("10-a", "skipped")], False),
        ([("10-a", "passed"), ("20-gpu-b", "skipped")], True),
        ([("10-a", "passed"), ("20-b", "failed")], False),
    ],
)
def test_green(cases: list[tuple[str, Outcome]], green: bool) -> None:
    assert report(*cases).green is green


@pytest.mark.parametrize(
    ("cases", "gpu", "green"),
    [
        ([("10-a", "passed")], True, False),
        ([("10-gpu-a", "passed")], True, True),
        ([("10-gpu-a", "passed")], False, False),
        ([("10-gpu-a", "passed"), ("20-gpu-b", "skipped")], True, False),
        ([("10-gpu-a", "passed"), ("20-gpu-b", "failed")], True, False),
    ],
)
def test_gpu_checks_count_only_when_all_really_ran(cases: list[tuple[str, Outcome]], gpu: bool, green: bool) -> None:
    assert report(*cases, gpu=gpu).gpu_green is green


def test_json_round_trip() -> None:
    made = SmokeReport(
        target="train-cpu",
        image_id="sha256:1",
        manifest_digest="sha256:2",
        suite_digest="sha256:3",
        gpu=Gpu(mode="require", present=True, name="H200"),
        host={"kernel": "6.1"},
        started=STARTED,
        cases=(SmokeCase(name="10-a", outcome="failed", seconds=1.5, message="no ä", output="\x1b[0m"),),
    )
    assert SmokeReport.from_json(made.to_json()) == made
    assert b'"2026-03-01T12:00:00Z"' in made.to_json()


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"target": "a", "image_id": "b", "started": "2026-03-01T12:00:00"}']
)
def test_anything_else_is_not_a_report(content: bytes) -> None:
    with pytest.raises(ValueError):
        SmokeReport.from_json(content)
