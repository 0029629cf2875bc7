"""The command that weighs images: where the bytes are, and what an earlier release had."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import click

from imagebuild.cli.session import Session, json_option, print_json, targets_argument, with_session

if TYPE_CHECKING:
    from imagebuild.plan.plan import PlannedTarget
    from imagebuild.run.decide import Presence
    from imagebuild.run.sizes import Measured, Scales
    from imagebuild.spec.reference import Reference
    from imagebuild.views.size import Report

PREVIOUS, NOTHING = "previous", "nothing"


@click.command("size")
@targets_argument(required=True)
@click.option("--top", type=click.IntRange(1), default=12, show_default=True, help="How many layers and packages.")
@click.option("--against", default=PREVIOUS, metavar="WHAT", show_default=True,
              help="The image to compare with: previous (the last release that was another image), nothing, prod, "
              "staging, a tag or a digest.")  # fmt: skip
@json_option
@with_session
def size_command(session: Session, targets: tuple[str, ...], *, top: int, against: str, as_json: bool) -> None:
    """Show where an image's bytes are, by layer and package, and against the last release.

    It is the image of the target's inputs as they are now, in the registry or built here. Its smoke checks measure the
    packages; an image here that was not tested yet is measured on the spot. MB are 1,000,000 bytes.

    \b
    Examples:
      buildkit size train-cpu
      buildkit size --top 30 --against cpu-1.3.0 inference-cpu
      buildkit size --json cpu
    """
    from imagebuild.run.decide import presences
    from imagebuild.run.results import SmokeResults
    from imagebuild.run.sizes import Scales
    from imagebuild.views.console import warn
    from imagebuild.views.size import show

    planned = [session.plan[name] for name in session.select(targets)]
    present = presences(planned, session.registry, session.podman, warn)
    results = SmokeResults(session.state, session.registry)
    scales = Scales(session.plan, session.registry, results, session.podman)
    reports = [_report(session, scales, one, present[one.name], against) for one in planned]
    if as_json:
        print_json([report.as_json() for report in reports])
        return
    for number, report in enumerate(reports):
        if number:
            click.echo()
        show(report, top)


def _report(session: Session, scales: Scales, planned: PlannedTarget, presence: Presence, against: str) -> Report:
    from imagebuild.errors import WorkError
    from imagebuild.run.budget import limits
    from imagebuild.run.sizes import step_names
    from imagebuild.views.size import compare

    if not presence:
        raise WorkError(f"{planned.name} is not built yet", hint=f"buildkit build {planned.name}")
    now, notes = scales.planned(planned, presence), []
    if now.contents is None:
        notes.append(f"nobody measured its packages: `buildkit smoke {planned.name}` does")
    before, called = _before(session, scales, planned, now, against)
    if before and before.contents is None and now.contents:
        notes.append(f"nobody measured the packages of {called}: all of them look new")
    names = step_names(session.plan.closure([planned.name]))
    return compare(planned.name, now, before, limits=limits(session.plan, planned), names=names, against=called,
                   notes=notes)  # fmt: skip


def _before(
    session: Session, scales: Scales, planned: PlannedTarget, now: Measured, against: str
) -> tuple[Measured | None, str]:
    """The image to compare with and what to call it; None where there is none, or where the registry is down."""
    from imagebuild.errors import RegistryError

    if against == NOTHING:
        return None, ""
    if against != PREVIOUS:
        reference = _named(session, planned, against)
        return scales.in_registry(reference), reference.tag or reference.digest[:19]
    try:
        found = _last_release(session, planned, now.digest)
        return (scales.in_registry(found[0]), found[1]) if found else (None, "")
    except RegistryError:
        if now.digest:
            raise
        return None, ""  # the image is here only, and there was a warning already


def _named(session: Session, planned: PlannedTarget, against: str) -> Reference:
    from imagebuild.run.decide import address
    from imagebuild.spec.reference import Channel, channel_tag

    repository = address(planned, session.registry.host).repository
    if against.startswith("sha256:"):
        return repository.at(against)
    channels = {channel: channel_tag(planned.target.row.name, channel) for channel in get_args(Channel)}
    return repository.tagged(channels.get(against, against))


def _last_release(session: Session, planned: PlannedTarget, digest: str) -> tuple[Reference, str] | None:
    """The newest standing release of a target that is another image than this one, by the ledger."""
    from imagebuild.release.channel import ChannelOf
    from imagebuild.release.ledger import standing

    session.registry.ping()
    target = planned.target
    channel = ChannelOf(session.registry, project=planned.project, stage=target.stage, row=target.row.name,
                        channel="prod")  # fmt: skip
    others = [release.entry for release in standing(channel.releases()) if release.entry.digest != digest]
    if not others:
        return None
    entry = others[-1]
    return channel.repository.at(entry.digest), f"{entry.version} (prod on {entry.when:%Y-%m-%d})"
