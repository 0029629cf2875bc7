"""Reads a build's log as it comes: into the log file, into events, and keeping what a failure needs said."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable
from typing import TextIO

from imagebuild.events import Emit, Event, Kind

_STEP = re.compile(r"STEP (\d+)/(\d+): (.*)")
_TAIL_LINES = 12


class Watch:
    """The eyes on one task of one target. `secrets` are strings that no log may show."""

    def __init__(self, target: str, task: str, emit: Emit, log: TextIO, secrets: Iterable[str] = ()) -> None:
        self._target = target
        self._task = task
        self._emit = emit
        self._log = log
        self._secrets = [secret for secret in secrets if secret]
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.step_line = ""
        self.step_started = time.time()

    def line(self, text: str) -> None:
        """Take one line of the log."""
        for secret in self._secrets:
            text = text.replace(secret, "****")
        text = text.rstrip()
        self._log.write(f"{text}\n")
        self._log.flush()
        if step := _STEP.match(text):
            self.step_line, self.step_started = text, time.time()
            data = {"step": int(step[1]), "steps": int(step[2])}
            self._emit(Event(Kind.TASK_STEP, self._target, self._task, _short(step[3]), data))
        elif text.strip():
            self._tail.append(text)
            self._emit(Event(Kind.TASK_LINE, self._target, self._task, text))

    @property
    def tail(self) -> str:
        """The log's last lines."""
        return "\n".join(self._tail)


def _short(instruction: str) -> str:
    """An instruction without its mounts, on one line."""
    words = [word for word in instruction.split() if not word.startswith("--mount")]
    return " ".join(words)[:200]
