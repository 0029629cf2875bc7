"""Builds on a real rootless Podman: what is skipped and why, failures, secrets, interruption, leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from imagebuild.engine.container import Container, ContainerSettings
from imagebuild.engine.podman import Podman
from imagebuild.plan.plan import INPUTS_LABEL
from tests.integration.tiny import Tiny

PASSWORD = "hunter2-hunter2"


def inside(podman: Podman, image: str, script: str) -> str:
    """What a shell script prints in a container of an image, as root."""
    with Container(podman, ContainerSettings(image, ["sleep", "600"], 2**26)) as container:
        answer = container.run(["sh", "-c", script], timeout=60)
    assert answer.exit_code == 0, answer.output
    return answer.output


def left_over(podman: Podman, project: str) -> list[str]:
    """Containers of a project's images or of builds on the demo's base, those of buildah included."""
    found = podman.json("get", "/containers/json", params={"all": "true", "external": "true"}, doing="list containers")
    return [one["Image"] for one in found if project in one["Image"] or one["Command"] == ["buildah"]]


def test_an_image_carries_its_digest_and_nothing_is_built_twice(tiny: Tiny, podman: Podman) -> None:
    first = tiny("build", "train-tiny")
    assert first.code == 0, first.err
    assert "2 done" in first.err
    planned = tiny.plan()["train-tiny"]
    image = podman.image(planned.local_name)
    assert image is not None
    assert image.labels[INPUTS_LABEL] == planned.digest
    assert image.created == "2026-11-30T00:00:00Z"
    second = tiny("build", "train-tiny")
    assert (second.code, second.err.count("up to date: in Podman's store")) == (0, 1)
    assert inside(podman, planned.local_name, "cat /opt/torch /opt/files/note.txt") == (
        f"2.13.0\na note of {tiny.project}\n"
    )


def test_a_changed_version_rebuilds_its_stage_and_says_which(tiny: Tiny) -> None:
    tiny("build", "train-tiny")
    tiny.edit_matrix("torch: 2.13.0", "torch: 2.12.1")
    planned = tiny("build", "--dry-run", "--json", "tiny").json
    assert {one["target"]: one["action"] for one in planned} == {"base-tiny": "nothing", "train-tiny": "build"}
    assert planned[1]["reason"] == "changed: torch 2.13.0 -> 2.12.1"
    again = tiny("build", "tiny")
    assert again.code == 0
    assert "1 up to date, 1 done" in again.err
    tiny.edit_matrix("torch: 2.12.1", "torch: 2.13.0")
    assert "2 up to date" in tiny("build", "tiny").err


def test_a_changed_file_rebuilds_parent_and_child(tiny: Tiny) -> None:
    tiny("build", "tiny")
    (tiny.folder / "images/base/files/note.txt").write_text("another note\n")
    planned = tiny("build", "--dry-run", "--json", "tiny").json
    assert planned[0]["reason"] == "changed: context:files/note.txt changed"
    assert planned[1]["reason"] == "its parent base-tiny changed"


def test_a_failed_step_names_its_log_and_skips_its_children_only(tiny: Tiny) -> None:
    tiny.base_runs("echo the cause is here; exit 7")
    tiny.add_cuda_row()
    failed = tiny("build", "--json", "base-tiny", "train-tiny")
    assert failed.code == 1
    statuses = {(one["task"], one["target"]): one["status"] for one in failed.json}
    assert statuses == {("build", "base-tiny"): "failed", ("build", "train-tiny"): "skipped"}
    assert "the cause is here" in failed.err
    assert "parent failed (base-tiny)" in failed.err
    log = tiny.folder / ".buildkit/logs/base-tiny.build.log"
    assert str(log) in failed.err
    assert "the cause is here" in log.read_text()
    assert failed.err.rstrip().endswith("1 failed, 1 skipped")
    tiny.base_runs("echo mended")
    assert tiny("build", "tiny").code == 0


def test_a_base_image_that_cannot_be_had_is_a_clear_failure(tiny: Tiny) -> None:
    tiny.edit_matrix('base: "localhost/', 'base: "127.0.0.1:1/')
    failed = tiny("build", "base-tiny")
    assert failed.code == 1
    assert "base image 127.0.0.1:1/" in failed.err
    assert "mirrors:" in failed.err


def test_secrets_are_in_no_layer_log_label_or_history(tiny: Tiny, podman: Podman) -> None:
    (tiny.folder / "site.yaml").write_text(f"python_index: https://ci:{PASSWORD}@mirror.invalid/simple\n")
    template = tiny.folder / "templates/base.Containerfile.j2"
    template.write_text(
        "FROM {{ base_image }}\nUSER 0:0\nCOPY . /all/\n"
        "RUN --mount=type=secret,id=uv --mount=type=secret,id=ca cat /run/secrets/uv && test -s /run/secrets/ca\n"
    )
    done = tiny("build", "-v", "base-tiny")
    assert done.code == 0, done.err
    log = (tiny.folder / ".buildkit/logs/base-tiny.build.log").read_text()
    assert "https://ci:****@mirror.invalid" in log
    assert PASSWORD not in log + done.err
    image = tiny.plan()["base-tiny"].local_name
    listed = inside(podman, image, "find /all /run/secrets -type f | sort")
    assert listed.split() == ["/all/Containerfile", "/all/files/note.txt"]
    history = podman.json("get", f"/images/{image.replace('/', '%2F')}/history", doing="read the history")
    assert PASSWORD not in str(history)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_nothing_and_can_be_repeated(
    tiny: Tiny, podman: Podman, number: signal.Signals
) -> None:
    marker = f"sleep 98{os.getpid()}{int(number)}"
    tiny.base_runs(f"echo begun && {marker}")
    process = subprocess.Popen(
        tiny.command("build", "-v", "tiny"), env=tiny.environment, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "| begun" in line:
            break
    began = time.monotonic()
    process.send_signal(number)
    rest = process.stderr.read()
    assert process.wait(60) == 130, rest
    assert time.monotonic() - began < 30
    assert "2 cancelled" in rest
    deadline = time.monotonic() + 20  # Podman removes the build's container a moment after its process is gone
    while left_over(podman, tiny.project) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left_over(podman, tiny.project) == []
    assert marker not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    tiny.base_runs("echo quick")
    assert tiny("build", "tiny").code == 0


def test_a_build_that_was_killed_is_no_hindrance(tiny: Tiny) -> None:
    tiny.base_runs("echo begun && sleep 5")
    process = subprocess.Popen(
        tiny.command("build", "-v", "tiny"), env=tiny.environment, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "| begun" in line:
            break
    process.kill()
    process.wait()
    again = tiny("build", "tiny")
    assert again.code == 0, again.err
    assert "2 done" in again.err


def test_two_builds_at_once_build_once(tiny: Tiny) -> None:
    tiny.base_runs("sleep 3")
    calls = [subprocess.Popen(tiny.command("build", "tiny"), env=tiny.environment, stderr=subprocess.PIPE, text=True)
             for _ in range(2)]  # fmt: skip
    said = [call.communicate(timeout=120)[1] for call in calls]
    assert [call.returncode for call in calls] == [0, 0], said
