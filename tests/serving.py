"""The policy server's own Python, and a stand-in for the server that answers as a test says."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

INFERENCE = Path(__file__).parents[1] / "images/inference"
CLIENT = INFERENCE / "client"


def module(name: str) -> ModuleType:
    """Import a module of the inference image, or of its clients."""
    for folder in (str(INFERENCE / "files"), str(CLIENT)):
        if folder not in sys.path:
            sys.path.append(folder)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return importlib.import_module(name)
    finally:
        sys.dont_write_bytecode = writes


px = module("policy_exchange")
client = module("policy_client")


class Stand:
    """Serves an exchange from a thread: the action is the observation's first two numbers, doubled.

    `before` is called with the sequence before each answer; what it returns is the error of the answer.
    """

    def __init__(self, folder: Path, before: Callable[[int], int] = lambda _: 0) -> None:
        self.folder = folder
        self.exchange = px.create(str(folder / "exchange"), px.Layout.of(3, 2, 1), 0o600)
        self._before = before
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.exchange.header.status = px.SERVING
        self._thread.start()

    def _serve(self) -> None:
        header = self.exchange.header
        last = header.response
        while not self._stopping.is_set():
            header.heartbeat_ns = time.monotonic_ns()
            sequence = header.request
            if sequence == last:
                px.wait(self.exchange.address("request"), last, 0.01)
                continue
            given = array("f", bytes(self.exchange.observation))
            error = self._before(sequence)
            self.exchange.action[:] = array("f", [2 * given[0], 2 * given[1]]).tobytes()
            header.error, header.valid = error, int(error == 0)
            header.decisions += 1
            header.response = last = sequence
            px.wake(self.exchange.address("response"))

    def vanish(self) -> None:
        """End without a word, as a killed process does."""
        self._stopping.set()
        self._thread.join()

    def stop(self) -> None:
        """End as asked."""
        self.vanish()
        px.end(self.exchange, px.STOPPED)


@contextlib.contextmanager
def stand(folder: Path, before: Callable[[int], int] = lambda _: 0) -> Iterator[Stand]:
    """A stand-in that ends with the test."""
    server = Stand(folder, before)
    try:
        yield server
    finally:
        server.stop()
