"""The inference image as a robot uses it: the server in its container, the control loop outside, memory between."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import tempfile
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuild.engine.service import find_socket
from tests.integration.tiny import Demo
from tests.serving import CLIENT, client

SECONDS = 10.0  # for one answer on a busy machine
TOLERANCE = 1e-5
HEALTH = '["policy-server", "health"]'


def podman(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Call Podman as docs/serving.md does."""
    command = ["podman", "--remote", "--url", find_socket(os.environ.get("BUILDKIT_PODMAN")), *arguments]
    return subprocess.run(command, check=check, capture_output=True, text=True)


@dataclass(frozen=True)
class Served:
    """A running container, its run folder on this side, and what torch decided."""

    container: str
    folder: Path
    observations: list[array[float]]
    actions: list[array[float]]


@pytest.fixture(scope="module")
def artifacts(demo: Demo) -> Path:
    """The folder with the policy that the demo's train image exported."""
    found = sorted((demo.folder / ".buildkit/smoke").glob("*/out/actions.npy"))
    assert found, "the demo's train image left no policy"
    return found[-1].parent


@pytest.fixture
def served(demo: Demo, artifacts: Path) -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="policy-", dir="/dev/shm") as name:
        folder = Path(name)
        folder.chmod(0o777)  # the service's user is another one than the test's
        shutil.copyfile(artifacts / "policy.onnx", folder / "policy.onnx")
        started = podman(
            "run", "--detach", "--read-only", "--cap-drop=all", "--network=none", f"--health-cmd={HEALTH}",
            f"--volume={folder}/policy.onnx:/policy/policy.onnx:ro", f"--volume={folder}:/run/policy",
            demo.image("inference"),
        )  # fmt: skip
        container = started.stdout.strip()
        try:
            await_health(container)
            yield Served(container, folder, rows(artifacts / "observations.npy"), rows(artifacts / "actions.npy"))
        finally:
            podman("rm", "--force", "--time=0", container)


def await_health(container: str) -> None:
    for _ in range(300):
        if podman("healthcheck", "run", container, check=False).returncode == 0:
            return
        time.sleep(0.1)
    pytest.fail(podman("logs", container).stderr)


def rows(path: Path) -> list[array[float]]:
    """A two-dimensional .npy of float32, without numpy."""
    data = path.read_bytes()
    start = 10 + int.from_bytes(data[8:10], "little")
    header = ast.literal_eval(data[10:start].decode())
    assert (header["descr"], header["fortran_order"]) == ("<f4", False)
    count, width = header["shape"]
    return [array("f", data[start + 4 * width * i : start + 4 * width * (i + 1)]) for i in range(count)]


def test_a_control_loop_outside_gets_torchs_actions_until_the_server_stops(served: Served) -> None:
    with client.ControlClient(str(served.folder)) as control:
        for observation, wanted in zip(served.observations, served.actions, strict=True):
            action = control.decide(observation, SECONDS)
            assert max(abs(a - b) for a, b in zip(action, wanted, strict=True)) <= TOLERANCE
        with client.SocketClient(str(served.folder)) as talker:
            assert talker.decide(list(served.observations[0])) == pytest.approx(list(served.actions[0]), abs=TOLERANCE)
            assert talker.ask({"ask": "health"})["decisions"] == len(served.observations)
        assert podman("stop", "--time=10", served.container).returncode == 0
        with pytest.raises(client.NotServingError, match="has stopped"):
            control.decide(served.observations[0], SECONDS)
    state = json.loads(podman("inspect", served.container).stdout)[0]["State"]
    assert state["ExitCode"] == 0
    assert podman("healthcheck", "run", served.container, check=False).returncode != 0


def test_the_image_says_how_it_is_served_and_asked(demo: Demo) -> None:
    config = json.loads(podman("image", "inspect", demo.image("inference")).stdout)[0]["Config"]
    assert config["User"] == "1000:1000"
    assert config["Entrypoint"] == ["/usr/bin/tini", "-g", "--"]
    assert config["Cmd"] == ["policy-server", "--policy", "/policy/policy.onnx", "--run", "/run/policy"]
    assert json.loads(config["Labels"]["io.buildkit.healthcheck"]) == json.loads(HEALTH)


def test_the_control_loop_in_c_runs_against_the_container(served: Served, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    assert compiler, "no C compiler here: scripts/setup --test installs one"
    program = tmp_path / "control_loop"
    sources = [CLIENT / "control_loop.c", CLIENT / "policy_client.c"]
    subprocess.run([compiler, "-O2", "-std=gnu11", "-o", program, *sources], check=True)
    done = subprocess.run([program, served.folder, "100", "1"], check=False, capture_output=True, text=True)
    assert json.loads(done.stdout)["steps"] == 100, done.stderr  # how many were in time is the machine's affair


def test_a_file_that_is_no_policy_ends_the_server_with_one_line(demo: Demo) -> None:
    with tempfile.TemporaryDirectory(prefix="policy-", dir="/dev/shm") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "policy.onnx").write_text("not a policy")
        done = podman(
            "run", "--rm", "--read-only", f"--volume={folder}/policy.onnx:/policy/policy.onnx:ro",
            f"--volume={folder}:/run/policy", demo.image("inference"), check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert "policy.onnx is no policy that ONNX Runtime" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
