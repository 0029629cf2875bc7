"""The commands that compare images: two builds of the same inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from imagebuild.cli.session import Session, json_option, print_json, print_table, targets_argument, with_session
from imagebuild.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_WORK_FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagebuild.run.reproduce import Comparison

_SHOWN = 20  # differences of one target


@click.command("reproduce")
@targets_argument(required=True)
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Keep both images of each target there, as OCI archives.")  # fmt: skip
@click.option("-j", "--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Targets built at once.")
@click.option("-v", "--verbose", is_flag=True, help="Show every line of every log.")
@json_option
@with_session
def reproduce_command(session: Session, targets: tuple[str, ...], *, keep: Path | None, jobs: int, verbose: bool,
                      as_json: bool) -> int:  # fmt: skip
    """Build targets twice from nothing and compare the images, bit for bit.

    Each round has a Podman service and a store of its own, which are removed again, and builds the ancestors too,
    bootstrapped root filesystems included. Where image ID or manifest digest differ, it says in which layer, which
    file, and what.

    \b
    Examples:
      buildkit reproduce base-cpu
      buildkit reproduce --keep /var/tmp/both cpu
    """
    from imagebuild.cli.make import refuse_what_cannot_work
    from imagebuild.run.reproduce import Reproduction
    from imagebuild.run.schedule import Interrupted
    from imagebuild.views import console

    wanted = session.select(targets)
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
