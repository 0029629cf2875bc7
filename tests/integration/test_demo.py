"""The demo on a fresh clone: what a newcomer sees the first time and the second, and the releases that follow."""

from __future__ import annotations

import re
import subprocess

from imagebuild.engine.podman import Podman
from imagebuild.engine.registry import Registry
from imagebuild.spec.reference import stage_repository
from tests.integration.tiny import Demo, run_demo

STAGES = ("base", "train", "diag-tools", "inference")


def test_the_demo_builds_tests_pushes_and_promotes(demo: Demo) -> None:
    for stage in STAGES:
        assert re.search(rf"^{stage}-cpu$", demo.first, re.MULTILINE), demo.first
    assert "skipped" not in demo.first
    assert re.search(r"drl/train:cpu-prod is now 1\.0\.0: sha256:[0-9a-f]{64}", demo.first)
    tags = Registry(demo.registry).list_tags(stage_repository(demo.registry, "drl", "train"))
    assert {"cpu", "cpu-1.0.0", "cpu-1.0.0-prod", "cpu-prod"} <= set(tags)


def test_the_second_run_builds_nothing_and_says_why(demo: Demo) -> None:
    second = run_demo(demo.folder, demo.environment)
    assert second.count("up to date: in the registry as cpu-in-") == 4
    assert second.count("tested before: ") == 4
    assert "cpu-prod is 1.0.0 already" in second
    assert "STEP" not in second


def test_inference_is_at_most_a_fifth_of_train(demo: Demo, podman: Podman) -> None:
    sizes = {stage: podman.image(demo.image(stage)).size for stage in STAGES}  # type: ignore[union-attr]
    assert sizes["inference"] <= 0.2 * sizes["train"], sizes


def test_run_gives_what_the_row_promises(demo: Demo) -> None:
    done = demo(
        "run",
        "train-cpu",
        "--",
        "sh",
        "-c",
        "df -m --output=size /dev/shm | tail -1; id -u; python -c 'import torch; print(torch.__version__)'",
    )
    assert done.code == 0, done.err
    assert done.out.split() == ["8192", "1000", "2.13.0+cpu"]


def test_releases_go_forward_and_back(demo: Demo) -> None:
    assert demo("rollback", "train-cpu").code == 3  # there is only one release
    matrix = demo.folder / "matrix.yaml"
    text = matrix.read_text()
    try:
        matrix.write_text(text.replace("version: 1.0.0", "version: 1.0.1", 1))
        dry = demo("promote", "--dry-run", "train-cpu")
        assert dry.code == 0, dry.err
        assert "would move" in dry.out
        # The very same image under a new version: nothing is built, the pointer moves.
        promoted = demo("promote", "train-cpu")
        assert promoted.code == 0, promoted.err
        assert "is now 1.0.1" in promoted.out
        back = demo("rollback", "train-cpu", "--reason", "a test")
        assert back.code == 0, back.err
        assert "is now 1.0.0" in back.out
        history = demo("history", "train-cpu", "--json").json
        assert [(one["action"], one["version"], one["state"]) for one in history] == [
            ("rollback", "1.0.0", "done"), ("promote", "1.0.1", "done"), ("promote", "1.0.0", "done"),
        ]  # fmt: skip
        assert history[0]["note"] == "a test"
        assert all(one["who"] and one["when"] and one["candidate"] for one in history)
    finally:
        matrix.write_text(text)


def test_an_untested_image_cannot_be_promoted(demo: Demo) -> None:
    matrix = demo.folder / "matrix.yaml"
    text = matrix.read_text()
    try:
        matrix.write_text(text.replace("numpy: 2.4.6", "numpy: 2.4.4", 1))
        refused = demo("promote", "train-cpu")
        assert refused.code == 3
        assert "is not in the registry" in refused.err
    finally:
        matrix.write_text(text)


def test_clean_stops_only_what_the_clone_started(demo: Demo) -> None:
    done = subprocess.run(
        [demo.folder / "scripts" / "clean"], env=demo.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    Registry(demo.registry).ping()  # the test's own registry: not the clone's to stop
