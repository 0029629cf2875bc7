"""The commands of a release manager: promote, rollback, history."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from imagebuild.cli.session import Session, complete_targets, json_option, print_json, print_table, with_session
from imagebuild.errors import InputError, Problem

if TYPE_CHECKING:
    from imagebuild.plan.plan import PlannedTarget
    from imagebuild.release.ledger import Release
    from imagebuild.release.promote import Outcome
    from imagebuild.spec.reference import Channel

channel_option = click.option(
    "--to", "channel", type=click.Choice(["prod", "staging"]), default="prod", show_default=True, help="The channel."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would move; move nothing.")
target_argument = click.argument("target", shell_complete=complete_targets)


@click.command("promote")
@target_argument
@channel_option
@click.option("--tag", help="The candidate's tag. Default: the address of the target as matrix.yaml has it now.")
@click.option("--override", "gates", multiple=True, metavar="GATE", help="Pass over a gate: smoke or gpu. Recorded.")
@click.option("--reason", default="", help="Why a gate is passed over.")
@dry_run_option
@json_option
@with_session
def promote_command(session: Session, target: str, *, channel: Channel, tag: str | None, gates: tuple[str, ...],
                    reason: str, dry_run: bool, as_json: bool) -> None:  # fmt: skip
    """Point a channel at a tested image.

    Its smoke checks must have passed for exactly this digest; on a CUDA row the GPU checks too. Writes
    <row>-<version>-prod, which never moves, then moves <row>-prod, and records both.

    \b
    Examples:
      buildkit promote --dry-run train-cpu
      buildkit promote train-cu128 --override gpu --reason "GPU runner is down, tested by hand"
    """
    from imagebuild.engine.git import author
    from imagebuild.release.promote import promote
    from imagebuild.run.decide import address

    planned = one_target(session, target)
    candidate = address(planned, session.registry.host)
    if tag:
        candidate = candidate.repository.tagged(tag)
    outcome = promote(
        session.registry, project=planned.project, stage=planned.target.stage, row=planned.target.row.name,
        version=session.matrix.header.version, candidate=candidate, is_cuda=planned.target.row.is_cuda,
        who=author(session.folder), clock=_now, channel=channel, commit=session.commit.id,
        overrides=dict.fromkeys(gates, reason), dry_run=dry_run,
    )  # fmt: skip
    _show(outcome, as_json=as_json)


@click.command("rollback")
@target_argument
@channel_option
@click.option("--version", default="", help="The release to go to. Default: the one before the current one.")
@click.option("--reason", default="", help="Why; recorded.")
@dry_run_option
@json_option
@with_session
def rollback_command(session: Session, target: str, *, channel: Channel, version: str, reason: str, dry_run: bool,
                     as_json: bool) -> None:  # fmt: skip
    """Point a channel at an earlier release again.

    \b
    Examples:
      buildkit rollback train-cpu
      buildkit rollback train-cpu --version 1.2.0 --reason "1.3.0 diverges on the arm"
    """
    from imagebuild.engine.git import author
    from imagebuild.release.promote import rollback

    planned = one_target(session, target)
    outcome = rollback(
        session.registry, project=planned.project, stage=planned.target.stage, row=planned.target.row.name,
        who=author(session.folder), clock=_now, channel=channel, version=version,
        commit=session.commit.id, reason=reason, dry_run=dry_run,
    )  # fmt: skip
    _show(outcome, as_json=as_json)


@click.command("history")
@click.argument("target", required=False, shell_complete=complete_targets)
@click.option("-n", "--number", type=click.IntRange(1), default=20, show_default=True, help="How many, newest first.")
@json_option
@with_session
def history_command(session: Session, target: str | None, *, number: int, as_json: bool) -> None:
    """Show who promoted what, when, and from where.

    \b
    Examples:
      buildkit history
      buildkit history train-cpu --json
    """
    from imagebuild.release.promote import history

    planned = one_target(session, target) if target else None
    stage, row = (planned.target.stage, planned.target.row.name) if planned else ("", "")
    releases = history(session.registry, project=session.matrix.header.project, stage=stage, row=row)[:number]
    if as_json:
        print_json([release.as_json() for release in releases])
    elif not releases:
        click.echo("nothing was promoted yet")
    else:
        head = ["WHEN (UTC)", "WHO", "WHAT", "TARGET", "TO", "VERSION", "DIGEST", "STATE", "FROM", "NOTE"]
        print_table([_line(release) for release in releases], head)


def _line(release: Release) -> list[str]:
    entry = release.entry
    overrides = "; ".join(f"{one.name} overridden: {one.reason}" for one in entry.overrides)
    note = "; ".join(part for part in (overrides, str(release.as_json()["note"] or "")) if part)
    source = entry.candidate.rpartition("/")[2] + (f" (commit {entry.commit[:12]})" if entry.commit else "")
    return [f"{entry.when.astimezone(UTC):%Y-%m-%d %H:%M:%S}", entry.who, entry.action, f"{entry.stage}-{entry.row}",
            entry.channel, entry.version, entry.digest[:19], str(release.state), source, note]  # fmt: skip


def _show(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        print_json(outcome.as_json())
        return
    for gate in outcome.gates:
        click.echo(f"gate {gate.name}: {gate.verdict}{f' ({gate.detail})' if gate.detail else ''}")
    for release in outcome.recovered:
        entry = release.entry
        click.echo(
            f"an earlier {entry.action} of {entry.stage}-{entry.row} {entry.version} had broken off: {release.state}"
        )
    for lost in outcome.lost:
        click.echo(f"warning: a ledger entry is missing: {lost}", err=True)
    verb = "would move" if outcome.dry_run else "moved"
    for move in outcome.moves:
        click.echo(f"{verb} {move.tag}: {move.before[:19] or 'new'} -> {move.after[:19]}")
    if not outcome.changed:
        click.echo(f"{outcome.alias} is {outcome.version} already: {outcome.digest}")
    elif not outcome.dry_run:
        click.echo(f"{outcome.alias} is now {outcome.version}: {outcome.digest}")


def one_target(session: Session, word: str) -> PlannedTarget:
    """The single target that a word means."""
    names = session.select([word])
    if len(names) != 1:
        hint = "name one of them: a release is of one image"
        raise InputError(Problem(f"{word} means {len(names)} targets: {', '.join(names)}", hint=hint))
    return session.plan[names[0]]


def _now() -> datetime:
    return datetime.now(UTC)
