"""The shared-memory exchange and its clients in Python and C, against a stand-in for the server."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving import CLIENT, client, px, stand

SECONDS = 10.0  # for an answer that must come
NOT_LONG = 0.02  # for one that must not


class InC:
    """policy_client.c, with the manners of the Python client."""

    _KINDS = {-1: "NotServingError", -2: "BusyError", -3: "NotServingError", -4: "TooLateError", -5: "RefusedError"}

    class _Struct(ctypes.Structure):
        _fields_ = [("exchange", ctypes.c_void_p), ("file", ctypes.c_int), ("spin_ns", ctypes.c_int64)]

    def __init__(self, library: ctypes.CDLL, folder: str) -> None:
        self._library, self._folder = library, folder
        self._struct = self._Struct()
        self.connect()

    def connect(self) -> None:
        self.close()
        self._checked(self._library.policy_open(ctypes.byref(self._struct), self._folder.encode()))

    def decide(self, observation: Any, timeout: float) -> list[float]:
        given, action = (ctypes.c_float * 3)(*observation), (ctypes.c_float * 2)()
        timeout_ns = ctypes.c_int64(int(timeout * 1e9))
        self._checked(self._library.policy_decide(ctypes.byref(self._struct), given, action, timeout_ns))
        return list(action)

    def close(self) -> None:
        if self._struct.exchange:
            self._library.policy_close(ctypes.byref(self._struct))

    def _checked(self, result: int) -> None:
        if result:
            raise getattr(client, self._KINDS[result])


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The C client, without a warning."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: scripts/setup --test installs one")
    built = tmp_path_factory.mktemp("c") / "policy_client.so"
    flags = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", built, CLIENT / "policy_client.c"], check=True)
    subprocess.run([compiler, *flags[:-2], "-fsyntax-only", CLIENT / "control_loop.c"], check=True)
    return ctypes.CDLL(str(built))


@pytest.fixture(params=["Python", "C"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """What makes a client of the exchange in tmp_path."""
    opened: list[Any] = []
    make = client.ControlClient if request.param == "Python" else _in_c(request.getfixturevalue("library"))

    def connected() -> Any:
        opened.append(make(str(tmp_path)))
        return opened[-1]

    yield connected
    for each in opened:
        each.close()


def _in_c(library: ctypes.CDLL) -> Callable[[str], InC]:
    return lambda folder: InC(library, folder)


def test_header_file_and_python_agree() -> None:
    text = (CLIENT / "policy_exchange.h").read_text()
    said = {name: int(offset) for name, offset in re.findall(r"^POLICY_AT\((\w+), (\d+)\);", text, re.MULTILINE)}
    fields = [name for name, _ in px.Header._fields_ if not name.startswith(("pad", "reserved"))]
    assert said == {name: getattr(px.Header, name).offset for name in fields}
    assert f"== {ctypes.sizeof(px.Header)}, " in text
    numbers = dict(re.findall(r"(POLICY_\w+) = (\d)", text))
    for group in (["STARTING", "SERVING", "STOPPED", "FAILED"], ["OK", "BAD_OBSERVATION", "BAD_ACTION"]):
        assert [int(numbers[f"POLICY_{name}"]) for name in group] == [getattr(px, name) for name in group]


def test_parts_start_on_cache_lines_and_do_not_overlap() -> None:
    for field in ("magic", "status", "request", "response"):
        assert getattr(px.Header, field).offset % px.LINE == 0
    for observations, actions, kind in ((1, 1, 1), (16, 16, 2), (17, 6, 1), (84 * 84 * 4, 1, 2)):
        layout = px.Layout.of(observations, actions, kind)
        assert layout.observation_offset == ctypes.sizeof(px.Header)
        assert layout.action_offset % px.LINE == 0
        assert layout.action_offset >= layout.observation_offset + 4 * observations
        assert layout.size >= layout.action_offset + actions * (4 if kind == 1 else 8)


def test_decides(connect: Callable[[], Any], tmp_path: Path) -> None:
    with stand(tmp_path):
        control = connect()
        for step in range(300):
            assert list(control.decide([step, 1.5, 0], SECONDS)) == [2 * step, 3]


def test_counters_may_wrap(connect: Callable[[], Any], tmp_path: Path) -> None:
    with stand(tmp_path) as server:
        server.vanish()
        server.exchange.header.request = server.exchange.header.response = 2**32 - 2
    with stand(tmp_path) as server:
        server.exchange.header.request = server.exchange.header.response = 2**32 - 2
        control = connect()
        assert [control.decide([step, 0, 0], SECONDS)[0] for step in range(4)] == [0, 2, 4, 6]


def test_a_late_answer_is_never_taken_for_the_next(connect: Callable[[], Any], tmp_path: Path) -> None:
    goes_on = threading.Event()
    slow = {1, 2}

    def before(sequence: int) -> int:
        if sequence in slow:
            goes_on.wait(SECONDS)
        return 0

    with stand(tmp_path, before):
        control = connect()
        for number in (1.0, 2.0):
            with pytest.raises(client.TooLateError):
                control.decide([number, 0, 0], NOT_LONG)
        goes_on.set()
        for number in (3.0, 4.0, 5.0):
            assert control.decide([number, 0, 0], SECONDS)[0] == 2 * number


def test_an_observation_without_action_raises_and_the_next_one_does_not(
    connect: Callable[[], Any], tmp_path: Path
) -> None:
    with stand(tmp_path, lambda sequence: px.BAD_OBSERVATION if sequence == 1 else 0):
        control = connect()
        with pytest.raises(client.RefusedError):
            control.decide([float("nan"), 0, 0], SECONDS)
        assert control.decide([1, 0, 0], SECONDS)[0] == 2


def test_one_control_loop_at_a_time(connect: Callable[[], Any], tmp_path: Path) -> None:
    with stand(tmp_path):
        first = connect()
        with pytest.raises(client.BusyError):
            connect()
        first.close()
        assert connect().decide([1, 0, 0], SECONDS)[0] == 2  # goes on from the counters that it finds
        with pytest.raises(client.BusyError):
            client.ControlClient(str(tmp_path))  # whichever language the other one speaks


def test_a_stop_ends_the_wait_at_once(connect: Callable[[], Any], tmp_path: Path) -> None:
    server_stops = threading.Event()

    def before(_: int) -> int:
        server_stops.wait(SECONDS)
        return 0

    with stand(tmp_path, before) as server:
        control = connect()
        threading.Timer(0.05, lambda: px.end(server.exchange, px.STOPPED)).start()
        began = time.monotonic()
        with pytest.raises(client.NotServingError):
            control.decide([1, 0, 0], 6 * SECONDS)
        assert time.monotonic() - began < 6 * SECONDS  # it did not wait for the timeout
        server_stops.set()
        control.close()
    with pytest.raises(client.NotServingError):
        connect()


def test_a_server_that_vanished_is_noticed_and_the_next_one_found(connect: Callable[[], Any], tmp_path: Path) -> None:
    with stand(tmp_path) as first:
        control = connect()
        first.vanish()
        first.exchange.header.heartbeat_ns = time.monotonic_ns() - 2 * 10**9
        with pytest.raises(client.NotServingError):
            control.decide([1, 0, 0], NOT_LONG)
        with pytest.raises(client.NotServingError):
            control.connect()
        with stand(tmp_path) as second:
            assert second.exchange.header.epoch != first.exchange.header.epoch
            with pytest.raises(client.NotServingError):
                control.decide([1, 0, 0], NOT_LONG)  # the old file, still mapped
            control.connect()
            assert control.decide([1, 0, 0], SECONDS)[0] == 2


def test_other_files_are_refused(connect: Callable[[], Any], tmp_path: Path) -> None:
    path = tmp_path / "exchange"
    with pytest.raises(client.NotServingError):
        connect()
    with stand(tmp_path):
        whole = path.read_bytes()
    other_version = bytearray(whole)
    other_version[8] = 2
    for data in (b"", whole[:100], b"x" * len(whole), bytes(other_version), whole[:-1], whole + b"x"):
        path.write_bytes(data)
        with pytest.raises(client.NotServingError):
            connect()


def test_an_observation_is_checked_and_converted(tmp_path: Path) -> None:
    with stand(tmp_path), client.ControlClient(str(tmp_path)) as control:
        for given in ([1, 2, 3], array("f", [1, 2, 3]), array("d", [1, 2, 3]), memoryview(array("f", [1, 2, 3]))):
            assert list(control.decide(given, SECONDS)) == [2, 4]
        with pytest.raises(ValueError, match="has 3 numbers, this one 2"):
            control.decide([1, 2], SECONDS)
        with pytest.raises(TypeError):
            control.decide(["a", "b", "c"], SECONDS)
    with pytest.raises(client.NotServingError, match="closed"):
        control.decide([1, 2, 3], SECONDS)
