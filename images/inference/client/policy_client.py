"""Asks a policy server for actions: over shared memory from a control loop, or over the Unix socket from anywhere else.

Copy this file and policy_exchange.py to where the control loop is; they need nothing but Python 3.8 (numpy arrays are
welcome, and not needed). docs/serving.md tells how to start the server.

    with ControlClient("/dev/shm/policy") as policy:
        action = policy.decide(observation, timeout=0.005)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from array import array
from types import TracebackType
from typing import Any

import policy_exchange as px

_SAYS = ("is starting", "serves", "has stopped", "has failed")  # by status


class PolicyError(Exception):
    """There is no action. A control loop goes to its safe state on any of these."""


class NotServingError(PolicyError):
    """No server serves there: not yet, not any more, or it died. `connect` again once it is back."""


class BusyError(PolicyError):
    """Another control loop has this exchange; there can be one."""


class TooLateError(PolicyError):
    """The server did not answer in time. It may still do so; that answer is never taken for a later one."""


class RefusedError(PolicyError):
    """The server answered that it has no action: the observation, or the policy's action, is not finite."""


class ControlClient:
    """The one control loop of an exchange."""

    def __init__(self, run_folder: str, spin: float = 0.0) -> None:
        """Connect.

        Args:
            run_folder: the server's run folder, as it is seen here.
            spin: seconds to look for the answer before sleeping: lower latency for more CPU.

        Raises:
            NotServingError: there is no server.
            BusyError: another client has the exchange.
        """
        self._path = os.path.join(run_folder, px.FILE_NAME)
        self._spin_ns = int(spin * 1e9)
        self._exchange: px.Exchange | None = None
        self.connect()

    def connect(self) -> None:
        """Connect, also again after the server was started anew."""
        self.close()
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise NotServingError(
                f"there is no exchange at {self._path} ({error.strerror}): start policy-server"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._exchange = px.Exchange(descriptor)
        except BlockingIOError:
            os.close(descriptor)
            raise BusyError(f"another control loop has {self._path}: there can be one; others use the socket") from None
        except px.ExchangeError as error:
            os.close(descriptor)
            raise NotServingError(f"{self._path}: {error}") from None
        try:
            self.check()
        except NotServingError:
            self.close()
            raise
        self._response_address = self._exchange.address("response")
        self._request_address = self._exchange.address("request")
        self._format = px.FORMATS[self._exchange.layout.action_type]

    @property
    def layout(self) -> px.Layout:
        """The sizes of observation and action."""
        return self._connected().layout

    def check(self) -> None:
        """Raise NotServingError unless the server serves and lives."""
        header = self._connected().header
        if header.status != px.SERVING:
            raise NotServingError(f"the policy server {_SAYS[header.status]}")
        age = px.heartbeat_age(header)
        if age > px.GONE_AFTER_SECONDS:
            raise NotServingError(f"the policy server has given no sign of life for {age:.1f} s: it is gone, or hangs")

    def decide(self, observation: Any, timeout: float = 0.005) -> Any:
        """Return the action for a raw observation, as an `array` of float32 or int64 (numpy takes it as it is).

        Args:
            observation: so many numbers; fastest as contiguous float32 (numpy, array).
            timeout: seconds.

        Raises:
            ValueError: the observation has another count of numbers.
            PolicyError: there is no action; its kinds say why.
        """
        exchange = self._connected()
        header = exchange.header
        exchange.observation[:] = _as_floats(observation, exchange.layout.observation_count)
        header.requested_ns = started = time.monotonic_ns()
        px.fence()
        sequence = (header.request + 1) & 0xFFFFFFFF
        header.request = sequence
        px.wake(self._request_address)
        self._await(header, sequence, started, int(timeout * 1e9))
        px.fence()
        if not header.valid:
            raise RefusedError(px.ERROR_TEXTS[header.error])
        action = array(self._format)
        action.frombytes(exchange.action)
        return action

    def _await(self, header: Any, sequence: int, started: int, timeout_ns: int) -> None:
        spin_until, until = started + self._spin_ns, started + timeout_ns
        while True:
            response = header.response
            if response == sequence:
                return
            now = time.monotonic_ns()
            if now >= until:
                self.check()
                raise TooLateError(f"no action within {timeout_ns / 1e6:g} ms")
            if header.status != px.SERVING:
                self.check()
            if now >= spin_until:
                px.wait(self._response_address, response, (until - now) / 1e9)

    def _connected(self) -> px.Exchange:
        if self._exchange is None:
            raise NotServingError("the client is closed")
        return self._exchange

    def close(self) -> None:
        """Let go of the exchange; another client can have it then."""
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:  # fmt: skip
        self.close()


def _as_floats(observation: Any, count: int) -> memoryview:
    """The bytes of an observation as float32."""
    view: memoryview | None = None
    with contextlib.suppress(TypeError):
        view = memoryview(observation)
    if view is None or view.format != "f" or not view.c_contiguous:
        view = memoryview(array("f", observation))
    if view.nbytes != 4 * count:
        raise ValueError(f"an observation has {count} numbers, this one {view.nbytes // 4}")
    return view.cast("B")


class SocketClient:
    """A client of the Unix socket: for tools, tests and whatever has time."""

    def __init__(self, run_folder: str, timeout: float = 5.0) -> None:
        """Connect; `timeout` is in seconds, for each answer.

        Raises:
            NotServingError: there is no server.
        """
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        path = os.path.join(run_folder, px.SOCKET_NAME)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise NotServingError(f"nobody answers at {path} ({error.strerror}): start policy-server") from None
        self._lines = self._socket.makefile("rb")

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the answer.

        Raises:
            RefusedError: the answer is an error.
            NotServingError: the server closed the connection.
            TooLateError: it did not answer in time.
        """
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
            line = self._lines.readline()
        except socket.timeout:  # noqa: UP041  (they are one from Python 3.10 on)
            raise TooLateError(f"no answer within {self._socket.gettimeout():g} s") from None
        except OSError as error:
            raise NotServingError(f"the policy server closed the connection ({error.strerror})") from None
        if not line:
            raise NotServingError("the policy server closed the connection")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RefusedError(answer["error"])
        return answer

    def decide(self, observation: list[float]) -> Any:
        """Return the action for one raw observation: a list, or a number for a discrete policy."""
        return self.ask({"observation": observation})["action"]

    def decide_many(self, observations: list[list[float]]) -> list[Any]:
        """Return the actions for several."""
        actions: list[Any] = self.ask({"observations": observations})["actions"]
        return actions

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._socket.close()

    def __enter__(self) -> SocketClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:  # fmt: skip
        self.close()
