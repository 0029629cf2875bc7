"""A server's container for as long as somebody works in it: started, awaited, and removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from imagebuild.errors import WorkError
from imagebuild.run.launch import Launch
from imagebuild.run.servers import Server

_LOOK_EVERY = 0.2  # seconds
_TO_START = 120.0  # seconds; the first container of a large image has its layers to prepare
_TO_STOP = 10  # seconds, before it is killed


class Live:
    """A container that was started, and whose name is known."""

    def __init__(self, podman: Sequence[str], launch: Launch, variables: Mapping[str, str]) -> None:
        """Start it. What it says goes to standard error, unless it is detached.

        Raises:
            WorkError: podman is not there, or another container has the name.
        """
        self._podman = list(podman)
        self._launch = launch
        if self._ask("container", "exists", launch.name) == 0:
            hint = f"`podman rm -f {launch.name}` ends it; --name gives this one another name"
            raise WorkError(f"there is a container {launch.name} already", hint=hint)
        # A session of its own: Ctrl-C is for us, and we stop the container as it should be stopped.
        self._process = subprocess.Popen(
            [*podman, *launch.arguments()], env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
            start_new_session=True, stdout=subprocess.DEVNULL if launch.detach else sys.stderr.fileno(),
        )  # fmt: skip

    @property
    def _ended(self) -> bool:
        """Whether it is gone: podman ends with what it runs, or once it left it alone."""
        code = self._process.poll()
        if code is None:
            return False
        return not self._launch.detach or code != 0 or self._ask("container", "exists", self._launch.name) != 0

    def await_ready(self, server: Server) -> None:
        """Wait until the server answers.

        Raises:
            WorkError: it ended, or does not answer in time.
        """
        deadline = time.monotonic() + _TO_START
        while not server.is_ready():
            if self._ended:
                hint = "without --detach you see what it says" if self._launch.detach else "what it said is above"
                raise WorkError(f"{self._launch.name} ended before it was ready", hint=hint)
            if time.monotonic() > deadline:
                message = f"{self._launch.name} does not answer after {_TO_START:.0f} s"
                raise WorkError(message, hint="is the machine busy? what it said is above")
            time.sleep(_LOOK_EVERY)

    def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        return self._process.wait()

    def output_of(self, *command: str) -> str:
        """What a command says that is run in the container."""
        done = subprocess.run(
            [*self._podman, "exec", self._launch.name, *command], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise WorkError(f"cannot run {command[0]} in {self._launch.name}: {done.stderr.strip()}")
        return done.stdout

    def remove(self) -> None:
        """Stop and remove it, and do not be interrupted in that; one that is gone is fine."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._ask("rm", "--force", "--ignore", f"--time={_TO_STOP}", self._launch.name)
            self._process.wait()
        finally:
            signal.signal(signal.SIGINT, before)

    def _ask(self, *words: str) -> int:
        command, quiet = [*self._podman, *words], subprocess.DEVNULL
        try:
            return subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, check=False).returncode
        except OSError as error:
            raise WorkError(f"cannot run {command[0]}: {error.strerror}", hint="run scripts/setup") from None


@contextmanager
def live(podman: Sequence[str], launch: Launch, server: Server) -> Iterator[Live]:
    """A ready server. Leaving the block removes it, whatever happened inside, unless it is detached and ready."""
    with _ends_like_ctrl_c(signal.SIGTERM, signal.SIGHUP):
        container = Live(podman, launch, server.variables)
        ready = False
        try:
            container.await_ready(server)
            ready = True
            yield container
        finally:
            if not (launch.detach and ready):
                container.remove()


@contextmanager
def _ends_like_ctrl_c(*signals: signal.Signals) -> Iterator[None]:
    """A terminal that is closed and a job that is ended leave no container either."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {one: signal.signal(one, end) for one in signals}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
