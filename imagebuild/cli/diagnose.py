"""The command that looks into a container of a row: what it gets of the machine, and why its GPU is not used."""

from __future__ import annotations

from typing import Any

import click

from imagebuild.cli.containers import become, container_options, launch_as, planned_of, wishes_of
from imagebuild.cli.session import Session, complete_targets, with_session
from imagebuild.errors import InputError, Problem


@click.command("diagnose")
@container_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("target", required=False, shell_complete=complete_targets)
@with_session
def diagnose_command(session: Session, target: str | None, *, as_json: bool, **options: Any) -> None:
    """Say what a container gets of this machine, and why its GPU is not used.

    It is one page about GPU, memory, CPUs and limits. TARGET is a row or one of its targets: its diag-tools image is
    started with all that the row promises, and looks. Without TARGET: the first row of the matrix. `buildkit doctor`
    looks at the same machine from outside. With the options that you give `buildkit run` it sees what your run gets.

    \b
    Examples:
      buildkit diagnose cu128
      buildkit diagnose train-cpu
      buildkit diagnose --json cpu | python3 -m json.tool
    """
    words = ("buildkit", "diagnose", *(["--json"] if as_json else []))
    planned, only_print = planned_of(session, _diag_tools(session, target)), options["only_print"]
    launch = launch_as(session, planned, wishes_of(session, options, default=False), words, only_print=only_print)
    become(session, planned, launch, only_print=only_print)


def _diag_tools(session: Session, word: str | None) -> str:
    """The diag-tools target of the one row that a word means."""
    names = session.select([word] if word else list(session.matrix.rows)[:1])
    rows = list(dict.fromkeys(session.plan.targets[name].row.name for name in names))
    if len(rows) != 1:
        raise InputError(Problem(f"{word} means {len(rows)} rows: {', '.join(rows)}", hint="name one of them"))
    target = f"diag-tools-{rows[0]}"
    if target not in session.plan.targets:
        place = session.matrix.locate(rows[0], "stages")
        raise InputError(Problem(f"row {rows[0]} has no stage diag-tools", place, "add it to `stages:`"))
    return target
