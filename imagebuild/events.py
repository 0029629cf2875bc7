"""The one stream of events that every view reads: console, JSON log, GitLab report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What happened. `TASK_*` events are about one task (`build`, `smoke`, `push`) of one target."""

    NOTE = "note"
    WARNING = "warning"
    TASK_STARTED = "task-started"
    TASK_STEP = "task-step"
    TASK_LINE = "task-line"
    TASK_DONE = "task-done"
    TASK_SKIPPED = "task-skipped"
    TASK_FAILED = "task-failed"
    SMOKE_CASE = "smoke-case"


@dataclass(frozen=True)
class Event:
    """One event. `at` is seconds since the epoch; `data` holds the rest, JSON values only."""

    kind: Kind
    target: str = ""
    task: str = ""
    message: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    at: float = field(default_factory=time.time)

    def as_dict(self) -> dict[str, Any]:
        """The event as JSON values, without the empty parts."""
        return {key: value for key, value in asdict(self).items() if value not in ("", {})}


Emit = Callable[[Event], None]


def silent(_event: Event) -> None:
    """An `Emit` for callers that do not listen."""
