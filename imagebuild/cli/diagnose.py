"""The command that looks into a container of a row: what it gets of the machine, and why its GPU is not used."""

from __future__ import annotations

import click

from imagebuild.cli.session import Session, complete_targets, with_session
from imagebuild.errors import InputError, Problem


@click.command("diagnose")
@click.argument("target", required=False, shell_complete=complete_targets)
@click.option("--gpu", type=click.Choice(["auto", "require", "off"]), default=None, help="Give it the GPUs (by CDI).")
@click.option("--print", "only_print", is_flag=True, help="Print the podman command line instead of running it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_session
def diagnose_command(session: Session, target: str | None, *, gpu: str | None, only_print: bool, as_json: bool) -> int:
    """Say what a container gets of this machine, and why its GPU is not used.

    It is one page about GPU, memory, CPUs and limits. TARGET is a row or one of its targets: its diag-tools image is
    started with all that the row promises, and looks. Without TARGET: the first row of the matrix. `buildkit doctor`
    looks at the same machine from outside.

    \b
    Examples:
      buildkit diagnose cu128
      buildkit diagnose train-cpu
      buildkit diagnose --json cpu | python3 -m json.tool
    """
    words = ("buildkit", "diagnose", *(["--json"] if as_json else []))
    context = click.get_current_context()
    buildkit = context.find_root().command
    run = buildkit.get_command(context, "run") if isinstance(buildkit, click.Group) else None
    if run is None:
        raise TypeError("there is no command `run` to start the container with")
    target = _diag_tools(session, target)
    answer: int = context.invoke(run, target=target, command=words, gpu=gpu, only_print=only_print)
    return answer


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
