"""Shows events: live lines on a terminal, plain ones in a pipe, JSON where BUILDKIT_LOG=json asks for it."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from imagebuild.events import Emit, Event, Kind

_COLOURS = {"done": "green", "up to date": "green", "failed": "red", "skipped": "yellow", "cancelled": "yellow",
            "passed": "green"}  # fmt: skip


def warn(event: Event) -> None:
    """An `Emit` that shows notes and warnings only."""
    if event.kind is Kind.WARNING:
        click.echo(f"{click.style('warning:', fg='yellow', bold=True)} {event.message}", err=True)
    elif event.kind is Kind.NOTE:
        click.echo(event.message, err=True)


@contextmanager
def progress(*, verbose: bool = False) -> Iterator[Emit]:
    """An `Emit` that shows work on standard error while the `with` block runs.

    Args:
        verbose: show every line of every log.
    """
    if os.environ.get("BUILDKIT_LOG") == "json":
        yield _json_lines()
    elif sys.stderr.isatty() and not verbose:
        with _Live() as live:
            yield live.show
    else:
        yield _plain_lines(verbose)


def _json_lines() -> Emit:
    lock = threading.Lock()

    def show(event: Event) -> None:
        with lock:
            click.echo(json.dumps(event.as_dict()), err=True)

    return show


def _plain_lines(verbose: bool) -> Emit:
    lock = threading.Lock()

    def show(event: Event) -> None:
        text = describe(event, verbose=verbose)
        if text:
            with lock:
                click.echo(text, err=True)

    return show


def describe(event: Event, *, verbose: bool = False) -> str:
    """One event as a line of text; empty for events that only a live display shows."""
    who = f"{event.target:<16} {event.task:<6}" if event.target else ""
    match event.kind:
        case Kind.WARNING:
            return f"{click.style('warning:', fg='yellow', bold=True)} {event.message}"
        case Kind.NOTE:
            return event.message
        case Kind.TASK_STARTED:
            return f"{who} started" if verbose else ""
        case Kind.TASK_STEP:
            return f"{who} [{event.data['step']}/{event.data['steps']}] {event.message[:100]}"
        case Kind.TASK_LINE:
            return f"{who} | {event.message}" if verbose else ""
        case Kind.SMOKE_CASE:
            outcome, seconds = event.data["outcome"], event.data["seconds"]
            reason = f": {event.message}" if event.message else ""
            return f"{who} {_styled(outcome)} {event.data['name']} ({seconds:.1f} s){reason}"
        case Kind.TASK_SKIPPED:
            return f"{who} {_styled('skipped')}: {event.message}"
        case _:
            seconds = event.data["seconds"]
            took = f" ({_duration(seconds)})" if seconds >= 1 else ""
            return f"{who} {_styled(event.data['status'])}{took}: {event.message}"


def _styled(word: str) -> str:
    return click.style(word, fg=_COLOURS.get(word))


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60} s"


class _Live:
    """Rich's live display: a spinner and the current step for each task that runs, results above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.fields[who]:<24}"), BarColumn(bar_width=16),
            TextColumn("{task.fields[step]}", markup=False), TimeElapsedColumn(),
            console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._rows: dict[tuple[str, str], Any] = {}
        self._last_line = 0.0

    def __enter__(self) -> _Live:
        self._progress.start()
        return self

    def __exit__(self, *_unused: object) -> None:
        self._progress.stop()

    def show(self, event: Event) -> None:
        """Take one event."""
        key = (event.target, event.task)
        match event.kind:
            case Kind.TASK_STARTED:
                who = f"{event.task} {event.target}"
                self._rows[key] = self._progress.add_task("", total=None, who=who, step="")
            case Kind.TASK_STEP if key in self._rows:
                step, steps = event.data["step"], event.data["steps"]
                self._progress.update(self._rows[key], completed=step - 1, total=steps, step=event.message[:60])
            case Kind.TASK_LINE if key in self._rows:
                if time.monotonic() - self._last_line > 0.1:
                    self._last_line = time.monotonic()
                    self._progress.update(self._rows[key], step=event.message[:60])
            case Kind.TASK_LINE | Kind.TASK_STEP:
                pass
            case _:
                if event.kind in (Kind.TASK_DONE, Kind.TASK_FAILED) and key in self._rows:
                    self._progress.remove_task(self._rows.pop(key))
                self._progress.console.print(_ansi(describe(event)), soft_wrap=True)


def _ansi(text: str) -> Any:
    from rich.text import Text

    return Text.from_ansi(text)
