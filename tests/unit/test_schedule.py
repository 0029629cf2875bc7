"""The scheduler: order, parallelism, failures that skip what depends on them, and interruption."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from imagebuild.errors import WorkError
from imagebuild.events import Event, Kind, silent
from imagebuild.run.schedule import Interrupted, Result, Scheduler, Status, Task

DONE = Result(Status.DONE)


def task(target: str, *needs: str, action: Callable[[], Result] = lambda: DONE) -> Task:
    return Task(target, "build", action, tuple(f"build:{need}" for need in needs))


def fails() -> Result:
    raise WorkError("broken", hint="mend it")


def test_parents_come_first_and_each_task_runs_once() -> None:
    order: list[str] = []

    def note(name: str) -> Callable[[], Result]:
        def act() -> Result:
            order.append(name)
            return DONE

        return act

    tasks = [task("d", "b", "c", action=note("d")), task("b", "a", action=note("b")), task("c", "a", action=note("c")),
             task("a", action=note("a"))]  # fmt: skip
    results = Scheduler(4, silent).run(tasks)
    assert order[0] == "a"
    assert order[-1] == "d"
    assert sorted(order) == ["a", "b", "c", "d"]
    assert all(result.status is Status.DONE for result in results.values())


def test_jobs_run_at_the_same_time_but_no_more_than_asked_for() -> None:
    running, most, lock = 0, 0, threading.Lock()
    both = threading.Barrier(2, timeout=10)

    def act() -> Result:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait()
        with lock:
            running -= 1
        return DONE

    Scheduler(2, silent).run([task(name, action=act) for name in "abcd"])
    assert most == 2


def test_a_failure_skips_its_descendants_and_nothing_else() -> None:
    events: list[Event] = []
    tasks = [task("a", action=fails), task("b", "a"), task("c", "b"), task("x"), task("y", "x")]
    results = Scheduler(2, events.append).run(tasks)
    statuses = {key: result.status for key, result in results.items()}
    assert statuses == {"build:a": Status.FAILED, "build:b": Status.SKIPPED, "build:c": Status.SKIPPED,
                        "build:x": Status.DONE, "build:y": Status.DONE}  # fmt: skip
    assert results["build:a"].message == "broken"
    assert results["build:a"].data["hint"] == "mend it"
    assert results["build:b"].message == "parent failed (a)"
    skipped = [event for event in events if event.kind is Kind.TASK_SKIPPED]
    assert len(skipped) == 2


def test_up_to_date_parents_let_children_run() -> None:
    results = Scheduler(1, silent).run([task("a", action=lambda: Result(Status.UP_TO_DATE)), task("b", "a")])
    assert results["build:b"].status is Status.DONE


def test_a_bug_in_a_task_is_its_failure_with_its_cause() -> None:
    def bug() -> Result:
        raise KeyError("oops")

    results = Scheduler(1, silent).run([task("a", action=bug), task("b")])
    assert results["build:a"].status is Status.FAILED
    assert "KeyError: 'oops'" in results["build:a"].message
    assert results["build:b"].status is Status.DONE


def test_needs_outside_the_run_are_no_needs() -> None:
    assert Scheduler(1, silent).run([task("b", "elsewhere")])["build:b"].status is Status.DONE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_cancels_what_runs_and_starts_nothing_more(number: signal.Signals) -> None:
    stop, started = threading.Event(), []

    def long() -> Result:
        started.append("a")
        os.kill(os.getpid(), number)
        assert stop.wait(20), "on_cancel was not called"
        raise WorkError("cut short")

    began = time.monotonic()
    with pytest.raises(Interrupted) as caught:
        Scheduler(1, silent, on_cancel=stop.set).run([task("a", action=long), task("b"), task("c", "a")])
    assert time.monotonic() - began < 15
    assert started == ["a"]
    assert {result.status for result in caught.value.results.values()} == {Status.CANCELLED}
    assert set(caught.value.results) == {"build:a", "build:b", "build:c"}
