"""The first process: it starts the control loop and the socket, and sees to it that an end is an end for all to see.

A control loop that dies, even by a crash in native code, is marked in the exchange at once; a socket that dies is
started again, and the control loop does not notice.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import policy_exchange as px

from policy_server.errors import InputError, ServerError
from policy_server.options import Options

_PR_SET_PDEATHSIG = 1
_PAUSE = 1.0  # seconds before a socket that died is started again


def serve(options: Options) -> int:
    """Serve until SIGTERM or SIGINT, or until the control loop ends; return the exit code.

    Raises:
        ServerError: the run folder cannot be used, or is another server's.
    """
    lock = _claim(options.run)
    try:
        _bury(options.exchange)
        return _Family(options).live()
    finally:
        os.close(lock)


def _claim(folder: str) -> int:
    """Lock the run folder for this server, as long as it lives."""
    mount = f"mount a writable folder there, one of the host's /dev/shm (--volume /dev/shm/policy:{folder})"
    try:
        lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise InputError(f"cannot write into {folder} ({error.strerror}): {mount}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ServerError(f"another server serves in {folder}: stop it, or give this one another --run") from None
    kind = filesystem(folder)
    if kind not in ("tmpfs", "ramfs"):
        print(f"policy-server: {folder} is on {kind}: writing back to disk can delay the control loop; {mount}",
              file=sys.stderr)  # fmt: skip
    return lock


def filesystem(folder: str) -> str:
    """Return the type of the file system that a folder is on."""
    path, best = os.path.realpath(folder), ("", "an unknown file system")
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            before, _, after = line.partition(" - ")
            point = before.split()[4].replace("\\040", " ")
            if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best[0]):
                best = (point, after.split()[0])
    return best[1]


def _bury(path: str) -> None:
    """Mark an exchange whose server is gone, so that a client that still waits there hears of it."""
    try:
        exchange = px.Exchange(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
    except (OSError, px.ExchangeError):
        return
    if exchange.header.status in (px.STARTING, px.SERVING):
        px.end(exchange, px.FAILED)
    exchange.close()


class _Family:
    """The two processes, and what becomes of them."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._names: dict[int, str] = {}
        self._stopping = False

    def live(self) -> int:
        """Start both and wait for the end."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        description = self._start_control()
        if description:
            print(f"policy-server: {description}; in {self._options.run}", flush=True)
            self._start_socket()
        code = 0
        while self._names:
            ended, status = os.wait()
            name = self._names.pop(ended, "")
            if name == "control":
                code = self._control_ended(status)
            elif name == "socket" and not self._stopping:
                code = self._socket_ended(status)
        return code

    def _stop(self, *_unused: Any) -> None:
        self._stopping = True
        for child in self._names:
            os.kill(child, signal.SIGTERM)

    def _start_control(self) -> str | None:
        """Start the control loop; what it says when it is ready, or None if it ended before."""
        readable, writable = os.pipe()

        def control() -> None:
            from policy_server import control as module  # here: the first process stays small, and forks safely

            def ready(text: str) -> None:
                os.write(writable, text.encode())
                os.close(writable)

            os.close(readable)
            module.run(self._options, ready)

        self._fork("control", control)
        os.close(writable)
        with os.fdopen(readable, "rb") as pipe:
            return pipe.read().decode() or None

    def _start_socket(self) -> None:
        def talk() -> None:
            from policy_server import talk as module

            module.run(self._options)

        self._fork("socket", talk)

    def _fork(self, name: str, body: Callable[[], None]) -> None:
        signals = (signal.SIGTERM, signal.SIGINT)
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # a child is known before anybody can want it stopped
        child = os.fork()
        if not child:
            os._exit(_as_child(body, signals))
        self._names[child] = name
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        if self._stopping:
            os.kill(child, signal.SIGTERM)

    def _control_ended(self, status: int) -> int:
        code = _exit_code(status)
        if self._stopping and code in (0, -signal.SIGTERM):
            return 0
        _bury(self._options.exchange)
        if code <= 0:
            print(f"policy-server: the control loop ended ({_how(code)}): its log is above", file=sys.stderr)
        self._stop()
        return code if code > 0 else 1

    def _socket_ended(self, status: int) -> int:
        code = _exit_code(status)
        if code in (ServerError.exit_code, InputError.exit_code):
            self._stop()
            return code
        print(f"policy-server: the socket ended ({_how(code)}) and is started again", file=sys.stderr)
        time.sleep(_PAUSE)
        self._start_socket()
        return 0


def _as_child(body: Callable[[], None], signals: Any) -> int:
    """What a child does: its body, and an exit code."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        body()
    except ServerError as error:
        print(f"policy-server: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except BaseException:  # noqa: BLE001  (a child must not go on as its parent)
        import traceback

        traceback.print_exc()
        return 3
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _exit_code(status: int) -> int:
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
