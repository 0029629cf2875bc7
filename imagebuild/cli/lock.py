"""The command that pins what rows are made from: lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from imagebuild.cli.failure import show_problem
from imagebuild.cli.session import Session, json_option, print_json, verdict, with_session
from imagebuild.errors import EXIT_BAD_INPUT, EXIT_DONE, EXIT_WORK_FAILED, InputError, Problem
from imagebuild.spec.strict import closest

if TYPE_CHECKING:
    from imagebuild.engine.resolve import Upgrade
    from imagebuild.run.relock import Outcome
    from imagebuild.spec.lock import Read
    from imagebuild.spec.lockdiff import Change

_ALL = "*"


@click.command("lock")
@click.argument("rows", nargs=-1)
@click.option("--check", "only_check", is_flag=True, help="Only say whether the locks fit matrix.yaml; asks nobody.")
@click.option("--diff", "only_diff", is_flag=True, help="Only say how the locks differ from the committed ones.")
@click.option("--from", "revision", default="HEAD", show_default=True, metavar="REV", help="What --diff compares with.")
@click.option("--upgrade", "upgrades", is_flag=False, flag_value=_ALL, multiple=True, metavar="[PACKAGE]",
              help="Move what fits, too: everything, or one package; may be repeated.")  # fmt: skip
@click.option("--strict", is_flag=True, help="What could not be looked up is an error.")
@json_option
@with_session
def lock_command(
    session: Session, rows: tuple[str, ...], *, only_check: bool, only_diff: bool, revision: str,
    upgrades: tuple[str, ...], strict: bool, as_json: bool,
) -> int:  # fmt: skip
    """Pin images by digest and Python packages by hash, in locks/.

    What is locked and still fits its row stays as it is, whatever has been published since; --upgrade moves it. A part
    that nobody can be asked for is recorded as unresolved, with the reason, and `buildkit build` refuses its row. The
    files hold no addresses: they are to be committed, and serve every site.

    \b
    Examples:
      buildkit lock                        lock what is not locked yet, or does not fit any more
      buildkit lock cpu --upgrade          move a row to the newest of everything
      buildkit lock --upgrade gymnasium    move one package, in every row
      buildkit lock --check                for CI: did matrix.yaml move, and the lock did not?
      buildkit lock --diff --from v1.0.0   what changed since, in words
    """
    wanted = _rows(session, rows)
    if only_check:
        return _check(session, wanted, everything=not rows, strict=strict, as_json=as_json)
    if only_diff:
        return _diff(session, wanted if rows else None, revision, as_json=as_json)
    outcomes = _lock(session, wanted, _upgrade(session, upgrades))
    removed = [] if rows else _remove_orphans(session)
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    if as_json:
        print_json({"rows": [_described(one) for one in outcomes], "removed": removed})
    else:
        for outcome in outcomes:
            _print_changes(outcome.row, outcome.changes, otherwise="nothing moved")
        for row in removed:
            click.echo(f"{row}: removed")
    for problem in problems:
        show_problem(problem)
    bad = any(one.severity == "error" for one in problems) or (strict and any(one.lock.unresolved for one in outcomes))
    return EXIT_WORK_FAILED if bad else EXIT_DONE


def _rows(session: Session, rows: Sequence[str]) -> list[str]:
    known = session.matrix.rows
    if unknown := [row for row in rows if row not in known]:
        raise InputError(Problem(f"no row {row!r}", hint=closest(row, known)) for row in unknown)
    return list(dict.fromkeys(rows)) or list(known)


def _upgrade(session: Session, words: Sequence[str]) -> Upgrade:
    from imagebuild.engine.resolve import Upgrade

    packages = tuple(word for word in words if word != _ALL)
    if mistaken := [word for word in packages if word in session.matrix.rows]:
        hint = f"buildkit lock {mistaken[0]} --upgrade"
        raise InputError(Problem(f"--upgrade {mistaken[0]}: that is a row, not a package", hint=hint))
    return Upgrade(_ALL in words, packages)


def _lock(session: Session, rows: Sequence[str], upgrade: Upgrade) -> list[Outcome]:
    from imagebuild.engine.resolve import Resolver
    from imagebuild.run.relock import relock
    from imagebuild.views import console

    with console.progress() as emit:
        return relock(session.plan, rows, Resolver(session.site), emit, upgrade=upgrade)


def _remove_orphans(session: Session) -> list[str]:
    from imagebuild.spec import lock

    rows = session.plan.locks.orphans()
    for row in rows:
        lock.remove(session.plan.locks.folder, row)
    return rows


def _check(session: Session, rows: Sequence[str], *, everything: bool, strict: bool, as_json: bool) -> int:
    from imagebuild.views.problems import as_json_values

    locks = session.plan.locks
    problems = [*locks.problems(rows, strict=strict), *(locks.orphan_problems() if everything else [])]
    refused = [problem for problem in problems if problem.severity == "error"]
    if as_json:
        print_json(as_json_values(problems))
    else:
        for problem in problems:
            show_problem(problem)
        click.echo(verdict(len(rows), len(refused), len(problems) - len(refused)))
    return EXIT_BAD_INPUT if refused else EXIT_DONE


def _diff(session: Session, rows: Sequence[str] | None, revision: str, *, as_json: bool) -> int:
    from imagebuild.engine import git
    from imagebuild.spec import lock
    from imagebuild.spec.lockdiff import differences

    folder = session.plan.locks.folder
    committed = git.files_at(session.folder, revision, lock.FOLDER)
    if rows is None:
        rows = lock.locked_rows([*committed, *(path.name for path in folder.glob("*.yaml"))])
    before: Read = committed.get
    changes = {row: differences(lock.read(row, before), session.plan.locks.read(row)) for row in rows}
    if as_json:
        print_json({row: _values(found) for row, found in changes.items() if found})
        return EXIT_DONE
    for row, found in changes.items():
        _print_changes(row, found)
    if not any(changes.values()):
        click.echo(f"the locks are those of {revision}")
    return EXIT_DONE


def _print_changes(row: str, changes: Sequence[Change], otherwise: str = "") -> None:
    """A line for each part of a row that changed: `cpu/train: gymnasium 1.3.0 -> 1.4.0, tqdm removed`."""
    parts = dict.fromkeys(change.part for change in changes)
    for part in parts:
        name = f"{row}/{part}" if part else row
        click.echo(f"{name}: {', '.join(change.text for change in changes if change.part == part)}")
    if not parts and otherwise:
        click.echo(f"{row}: {otherwise}")


def _values(changes: Sequence[Change]) -> list[dict[str, str]]:
    return [{"part": change.part, "name": change.name, "change": change.text} for change in changes]


def _described(outcome: Outcome) -> dict[str, Any]:
    new = outcome.lock
    return {
        "row": outcome.row, "changes": _values(outcome.changes), "unresolved": new.unresolved,
        "images": {field: new.image(field) for field in new.form.images},
        "packages": {stage: len(new.pins(stage)) for stage in new.files},
    }  # fmt: skip
