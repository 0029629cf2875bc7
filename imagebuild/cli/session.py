"""What the commands share: the project that they work on, and the options that mean the same everywhere."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from imagebuild.events import Emit

if TYPE_CHECKING:
    from imagebuild.engine.git import Commit
    from imagebuild.engine.podman import Podman
    from imagebuild.engine.registry import Registry
    from imagebuild.plan.plan import Plan
    from imagebuild.run.factory import Factory
    from imagebuild.run.state import State
    from imagebuild.spec.matrix import Matrix
    from imagebuild.spec.site import Site

Function = TypeVar("Function", bound=Callable[..., Any])


class Session:
    """One call of the command line: a project folder, and what is loaded of it so far."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder).resolve()
        self.use_locks = True  # to be set before the plan is made

    @cached_property
    def matrix(self) -> Matrix:
        """The matrix, read and checked for form."""
        from imagebuild.spec import matrix

        return matrix.load(self.folder / matrix.FILE_NAME)

    @cached_property
    def site(self) -> Site:
        """The site's settings."""
        from imagebuild.spec import site

        return site.load(self.folder)

    @cached_property
    def plan(self) -> Plan:
        """The plan of the matrix."""
        from imagebuild.plan.plan import Plan

        return Plan(self.folder, self.matrix, use_locks=self.use_locks)

    @cached_property
    def state(self) -> State:
        """What is remembered of earlier calls."""
        from imagebuild.run.state import State

        return State(self.folder)

    @cached_property
    def commit(self) -> Commit:
        """The project's commit."""
        from imagebuild.engine.git import commit_of

        return commit_of(self.folder)

    @cached_property
    def registry(self) -> Registry:
        """The site's registry."""
        from imagebuild.engine.registry import Registry

        auth, ca = self.site.auth_file, self.site.ca_bundle
        return Registry(self.site.registry, auth_file=Path(auth) if auth else None, ca_bundle=Path(ca) if ca else None)

    def podman(self) -> Podman:
        """Connect to Podman; its client is slow to import, so nothing else does."""
        from imagebuild.engine.podman import Podman
        from imagebuild.engine.service import find_socket

        return Podman(find_socket(self.site.podman), allow_rootful=self.site.allow_rootful)

    def factory(self, emit: Emit) -> Factory:
        """What builds, tests and pushes."""
        from imagebuild.run.factory import Factory

        return Factory(
            self.plan, site=self.site, state=self.state, registry=self.registry, podman=self.podman, emit=emit,
            commit=lambda: self.commit,
        )  # fmt: skip

    def select(self, words: Sequence[str]) -> list[str]:
        """The targets that the words on the command line mean; all of them where there are no words."""
        selection = self.matrix.selection()
        return selection.select(words) if words else selection.targets


def session_of(ctx: click.Context) -> Session:
    """The session of a call."""
    return Session(ctx.find_root().params.get("folder") or ".")


def with_session(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command its session as first argument; the innermost decorator."""

    @click.pass_context
    @functools.wraps(function)
    def call(ctx: click.Context, *arguments: Any, **options: Any) -> Any:
        return function(session_of(ctx), *arguments, **options)

    return call


def complete_targets(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names for the shell to complete; a wrong matrix completes nothing, and says nothing."""
    from imagebuild.errors import BuildkitError

    try:
        selection = session_of(ctx).matrix.selection()
    except BuildkitError:
        return []
    known = [*selection.targets, *selection.groups, *selection.aliases, *selection.rows]
    return [name for name in dict.fromkeys(known) if name.startswith(incomplete)]


def targets_argument(*, required: bool = False) -> Callable[[Function], Function]:
    """The TARGETS argument: targets, aliases, groups, rows, stages or globs."""
    return click.argument("targets", nargs=-1, required=required, shell_complete=complete_targets)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    click.echo(json.dumps(value, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def print_table(rows: Iterable[Sequence[str]], head: Sequence[str]) -> None:
    """Print columns: as wide as their widest cell, and without colour or frame, so that pipes can use them."""
    lines = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for number, line in enumerate(lines):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        click.echo(click.style(text, bold=True) if number == 0 and sys.stdout.isatty() else text)


def _many(count: int, noun: str) -> str:
    """A count with its noun: 1 row, 2 rows."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def verdict(rows: int, errors: int, warnings: int) -> str:
    """The last line of a command that checks rows."""
    return ", ".join((_many(rows, "row"), _many(errors, "error"), _many(warnings, "warning")))
