"""How a failure is shown, and which exit code it has."""

from __future__ import annotations

import os
import traceback

import click

from imagebuild.errors import EXIT_WORK_FAILED, BuildkitError, InputError, Problem


def show(error: Exception) -> int:
    """Print an error for a person and return the exit code. What is not a `BuildkitError` is a bug, and says so."""
    if isinstance(error, InputError):
        for problem in error.problems:
            show_problem(problem)
        count = len(error.problems)
        if count > 1:
            click.secho(f"{count} problems; nothing was done", err=True)
        return error.exit_code
    if isinstance(error, BuildkitError):
        click.echo(f"{click.style('error:', fg='red', bold=True)} {error.message}", err=True)
        _hint(error.hint)
        return error.exit_code
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        click.echo(f"{click.style('error:', fg='red', bold=True)} {place}{error.strerror}", err=True)
        return EXIT_WORK_FAILED
    if os.environ.get("BUILDKIT_DEBUG"):
        traceback.print_exception(error)
    click.echo(f"{click.style('bug in buildkit:', fg='red', bold=True)} {type(error).__name__}: {error}", err=True)
    _hint("run it again with BUILDKIT_DEBUG=1 and report what it prints")
    return EXIT_WORK_FAILED


def show_problem(problem: Problem) -> None:
    """Print one problem: `file:line:column: what is wrong`, then what would be right and the fact's source."""
    colour = "red" if problem.severity == "error" else "yellow"
    where = f"{problem.location}: " if problem.location else f"{problem.severity}: "
    click.echo(f"{click.style(where, fg=colour, bold=True)}{_without_place(problem)}", err=True)
    _hint(problem.hint)
    if problem.source:
        click.echo(f"  source: {problem.source}", err=True)


def _without_place(problem: Problem) -> str:
    text = str(problem)
    return text.removeprefix(f"{problem.location}: ") if problem.location else text


def _hint(hint: str) -> None:
    if hint:
        click.echo(f"  {click.style('hint:', fg='cyan')} {hint}", err=True)
