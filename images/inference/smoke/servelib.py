"""A policy server for a check: started as the image starts it, and stopped whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import policy_client as client
import smokelib

_START_SECONDS = 60.0
ANSWER_SECONDS = 5.0  # for one answer: how long it takes is reported, not judged
_OVER_THE_SOCKET = 500
_WRONG = "was the normalisation folded into the graph? train and inference must come from the same row"
REMEDY = "look at the server's messages above, and at images/inference/files/policy_server"


class Server:
    """A running `policy-server`; `folder` is its run folder."""

    def __init__(self, policy: Path, folder: str, *options: str) -> None:
        self.folder = folder
        command = ["policy-server", "--policy", str(policy), "--run", folder, *options]
        self._process = subprocess.Popen(command)
        until = time.monotonic() + _START_SECONDS
        while not self.is_healthy():
            ended = self._process.poll()
            smokelib.require(ended is None, f"the server ended at once with exit code {ended}", REMEDY)
            smokelib.require(time.monotonic() < until, f"the server did not serve after {_START_SECONDS:.0f} s", REMEDY)
            time.sleep(0.1)

    def is_healthy(self) -> bool:
        """Ask as the health check of a container asks."""
        command = ["policy-server", "health", "--run", self.folder]
        return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0

    def children(self) -> list[int]:
        """Return its processes: the control loop, then the socket."""
        pid = self._process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def wait(self) -> int:
        """Wait for its end and return its exit code."""
        return self._process.wait(timeout=30)

    def stop(self) -> int:
        """Stop it as `podman stop` does, and return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End all of it at once, as the loss of a container does: nobody is left to say a last word."""
        self._process.send_signal(signal.SIGSTOP)
        for process in (*self.children(), self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.wait()

    def end(self) -> None:
        """Leave nothing running."""
        if self._process.poll() is None:
            self.kill()


@contextlib.contextmanager
def served(policy: Path, *options: str) -> Iterator[Server]:
    """Serve a policy in a folder in memory."""
    with tempfile.TemporaryDirectory(prefix="policy-", dir="/tmp") as folder:
        server = Server(policy, folder, *options)
        try:
            yield server
        finally:
            server.end()


def percentiles(name: str, nanoseconds: list[int]) -> None:
    """Print how long decisions took."""
    p50, p99, most = (numpy.percentile(nanoseconds, at) / 1e3 for at in (50, 99, 100))
    print(f"{name}: {len(nanoseconds)} decisions, p50 {p50:.0f} us, p99 {p99:.0f} us, longest {most:.0f} us")


def agree(name: str, actions: list[Any], wanted: Any, tolerance: float) -> None:
    """End as failed unless the actions are torch's."""
    found = numpy.array(actions).reshape(wanted[: len(actions)].shape)
    difference = abs(found - wanted[: len(actions)]).max()
    print(f"{name}: {len(actions)} actions, largest difference {difference:.2e}")
    limit = tolerance if wanted.dtype.kind == "f" else 0
    smokelib.require(difference <= limit, f"{name}: actions differ from torch's by {difference}", _WRONG)


def drive(folder: str, observations: Any, wanted: Any, tolerance: float) -> None:
    """Ask for every action over shared memory, and for some over the socket; end as failed unless they are torch's."""
    actions, took = [], []
    with client.ControlClient(folder) as control:
        for observation in observations:
            began = time.monotonic_ns()
            actions.append(control.decide(observation, ANSWER_SECONDS))
            took.append(time.monotonic_ns() - began)
    percentiles("shared memory", took)
    agree("shared memory", actions, wanted, tolerance)
    some = observations[:_OVER_THE_SOCKET].tolist()
    with client.SocketClient(folder) as talker:
        agree("socket", [talker.decide(observation) for observation in some], wanted, tolerance)
        agree("socket, all at once", talker.decide_many(some), wanted, tolerance)
