"""Runs tasks in the order of what they need, several at once; a failure skips only what depends on it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from graphlib import TopologicalSorter
from typing import Any

from imagebuild.errors import BuildkitError
from imagebuild.events import Emit, Event, Kind


class Status(StrEnum):
    """How a task ended."""

    DONE = "done"
    UP_TO_DATE = "up to date"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    @property
    def lets_children_run(self) -> bool:
        """Whether what needs this task can go on: it was done, or there was nothing to do."""
        return self in (Status.DONE, Status.UP_TO_DATE)


@dataclass(frozen=True)
class Result:
    """How a task ended, why, after how many seconds, and what it found out."""

    status: Status
    message: str = ""
    seconds: float = 0.0
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """Something to do for a target. `needs` holds the `key`s of the tasks that come first."""

    target: str
    name: str
    action: Callable[[], Result]
    needs: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Names the task among others."""
        return f"{self.name}:{self.target}"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM came while tasks ran; `results` says how far they got."""

    def __init__(self, results: Mapping[str, Result]) -> None:
        super().__init__()
        self.results = results


class Scheduler:
    """Runs tasks with at most `jobs` at once."""

    def __init__(self, jobs: int, emit: Emit, on_cancel: Callable[[], None] = lambda: None) -> None:
        self._jobs = jobs
        self._emit = emit
        self._on_cancel = on_cancel
        self._cancelled = threading.Event()

    def run(self, tasks: Sequence[Task]) -> dict[str, Result]:
        """Run the tasks; the answer has one result for each, by key, in the order in which they ended.

        Raises:
            Interrupted: after Ctrl-C or SIGTERM, once everything that ran has stopped.
        """
        by_key = {task.key: task for task in tasks}
        order = TopologicalSorter(
            {key: [need for need in task.needs if need in by_key] for key, task in by_key.items()}
        )
        order.prepare()
        results: dict[str, Result] = {}
        running: dict[Future[Result], str] = {}
        interrupted = False
        with sigterm_as_interrupt(), ThreadPoolExecutor(self._jobs, "task") as pool:
            while order.is_active() and not (interrupted and not running):
                try:
                    for key in () if interrupted else order.get_ready():
                        task = by_key[key]
                        if blocker := next((need for need in task.needs if _blocks(results.get(need))), None):
                            results[key] = self._skip(task, by_key[blocker])
                            order.done(key)
                        else:
                            running[pool.submit(self._attempt, task)] = key
                    ended, _ = wait(running, return_when=FIRST_COMPLETED) if running else ((), ())
                except KeyboardInterrupt:
                    interrupted = True
                    self._cancel()
                    continue
                for future in ended:
                    key = running.pop(future)
                    results[key] = future.result()
                    order.done(key)
        if interrupted:
            left = {key: Result(Status.CANCELLED, "interrupted") for key in by_key if key not in results}
            raise Interrupted(results | left)
        return results

    def _cancel(self) -> None:
        """Ask everything that runs to stop; the loop then collects it."""
        if not self._cancelled.is_set():
            self._cancelled.set()
            self._emit(Event(Kind.NOTE, message="stopping: waiting for what runs to clean up"))
            self._on_cancel()

    def _skip(self, task: Task, blocker: Task) -> Result:
        same = blocker.target == task.target
        message = f"its {blocker.name} failed" if same else f"parent failed ({blocker.target})"
        self._emit(Event(Kind.TASK_SKIPPED, task.target, task.name, message))
        return Result(Status.SKIPPED, message)

    def _attempt(self, task: Task) -> Result:
        """Run one task; whatever goes wrong in it is its result."""
        started = time.monotonic()
        if self._cancelled.is_set():
            return Result(Status.CANCELLED, "interrupted")
        self._emit(Event(Kind.TASK_STARTED, task.target, task.name))
        try:
            result = task.action()
        except BuildkitError as error:
            result = Result(Status.FAILED, error.message, data={"hint": error.hint} if error.hint else {})
        except Exception as error:  # noqa: BLE001  (a bug in one task must not lose the others; the cause is shown)
            result = Result(Status.FAILED, f"{type(error).__name__}: {error}", data={"bug": True})
        if self._cancelled.is_set() and result.status is Status.FAILED:
            result = Result(Status.CANCELLED, "interrupted")
        result = Result(result.status, result.message, time.monotonic() - started, result.data)
        kind = Kind.TASK_FAILED if result.status is Status.FAILED else Kind.TASK_DONE
        self._emit(Event(kind, task.target, task.name, result.message,
                         {"status": str(result.status), "seconds": result.seconds, **result.data}))  # fmt: skip
        return result


def _blocks(result: Result | None) -> bool:
    return result is not None and not result.status.lets_children_run


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """A CI runner ends jobs with SIGTERM; clean up as for Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
