"""The commands that compare images: two builds of the same inputs, and two versions of a target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from imagebuild.cli.session import (
    Session,
    complete_targets,
    json_option,
    print_json,
    print_table,
    targets_argument,
    with_session,
)
from imagebuild.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_WORK_FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagebuild.plan.plan import PlannedTarget
    from imagebuild.release.diff import Packages
    from imagebuild.run.reproduce import Comparison

_SHOWN = 20  # differences of one target


@click.command("reproduce")
@targets_argument(required=True)
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Keep both images of each target there, as OCI archives.")  # fmt: skip
@click.option("-j", "--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Targets built at once.")
@click.option("-v", "--verbose", is_flag=True, help="Show every line of every log.")
@click.option("--unlocked", is_flag=True, help="Leave the locks aside: take what matrix.yaml pins.")
@json_option
@with_session
def reproduce_command(session: Session, targets: tuple[str, ...], *, keep: Path | None, jobs: int, verbose: bool,
                      unlocked: bool, as_json: bool) -> int:  # fmt: skip
    """Build targets twice from nothing and compare the images, bit for bit.

    Each round has a Podman service and a store of its own, which are removed again, and builds the ancestors too,
    bootstrapped root filesystems included. Where image ID or manifest digest differ, it says in which layer, which
    file, and what.

    \b
    Examples:
      buildkit reproduce base-cpu
      buildkit reproduce --keep /var/tmp/both cpu
    """
    from imagebuild.cli.make import refuse_what_cannot_work, refuse_what_is_not_locked
    from imagebuild.run.reproduce import Reproduction
    from imagebuild.run.schedule import Interrupted
    from imagebuild.views import console

    session.use_locks = not unlocked
    wanted = session.select(targets)
    refuse_what_is_not_locked(session, wanted)
    refuse_what_cannot_work(session, wanted)
    with console.progress(verbose=verbose) as emit:
        try:
            compared = Reproduction(session.plan, site=session.site, emit=emit, jobs=jobs).run(wanted, keep)
        except Interrupted:
            click.echo("interrupted; both stores are removed", err=True)
            return EXIT_INTERRUPTED
    if as_json:
        print_json([{**vars(one), "same": one.same} for one in compared])
    else:
        _show(compared)
    return EXIT_DONE if all(one.same for one in compared) else EXIT_WORK_FAILED


def _show(compared: Sequence[Comparison]) -> None:
    from imagebuild.run.difference import summary

    rows = [[one.target, "same" if one.same else "different", _pair(one.image_ids), _pair(one.manifest_digests)]
            for one in compared]  # fmt: skip
    print_table(rows, ["TARGET", "VERDICT", "IMAGE ID", "MANIFEST DIGEST"])
    for one in (one for one in compared if not one.same):
        click.echo(f"\n{one.target}:")
        lines = summary(one.differences, _SHOWN) or ["only what it is built from differs"]
        click.echo("\n".join(f"  {line}" for line in lines))


def _pair(digests: tuple[str, str]) -> str:
    """A digest whole; two that differ, short."""
    return digests[0] if digests[0] == digests[1] else " <> ".join(digest[:19] for digest in digests)


@click.command("diff")
@click.argument("target", shell_complete=complete_targets)
@click.option("--against", default="prod", metavar="TAG", show_default=True,
              help="The image to compare with: prod, staging, or any tag of the target's repository.")  # fmt: skip
@json_option
@with_session
def diff_command(session: Session, target: str, *, against: str, as_json: bool) -> None:
    """Show which packages changed between two images of a target, of the system and of Python.

    The new one is the image of the target's inputs as they are now, in the registry or built here. Its smoke checks
    write the packages down.

    \b
    Examples:
      buildkit diff train-cpu
      buildkit diff --against cpu-1.3.0 train-cpu
    """
    from imagebuild.cli.release import one_target
    from imagebuild.release.diff import changes, packages_at
    from imagebuild.run.decide import address
    from imagebuild.spec.reference import Channel, channel_tag

    planned = one_target(session, target)
    tag = {channel: channel_tag(planned.target.row.name, channel) for channel in get_args(Channel)}.get(
        against, against
    )
    before = address(planned, session.registry.host).repository.tagged(tag)
    found = list(changes(packages_at(session.registry, before), _packages_now(session, planned)))
    if as_json:
        print_json({"target": planned.name, "before": tag, "after": planned.tag, "changes": found})
        return
    click.echo(f"{planned.name}: {tag} -> {planned.tag}: {len(found) or 'no'} packages changed")
    if found:
        rows = [[one.kind, one.package, one.before or "-", one.after or "-"] for one in found]
        print_table(rows, ["KIND", "PACKAGE", "BEFORE", "AFTER"])


def _packages_now(session: Session, planned: PlannedTarget) -> Packages:
    """The packages in the image of a target's inputs: this machine's own record, or the registry's."""
    from imagebuild.release.diff import packages_at, read
    from imagebuild.run.decide import address
    from imagebuild.run.results import SmokeResults

    last = session.state.last_build(planned.name)
    if last and last.digest == planned.digest:
        local = SmokeResults(session.state, session.registry).local_artifacts(last.image_id)
        if local:
            return read(local, f"{planned.name}, built here")
    return packages_at(session.registry, address(planned, session.registry.host))
