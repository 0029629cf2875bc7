"""What there is of some targets, on one screen: for the end of a demo, or the start of a release."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import click

from imagebuild.engine.registry import Registry
from imagebuild.plan.plan import PlannedTarget
from imagebuild.run import budget
from imagebuild.run.decide import Presence, address
from imagebuild.run.results import SmokeResults
from imagebuild.run.state import State


@dataclass(frozen=True)
class Line:
    """One target. `size` (uncompressed) and `download` (as it travels) are in bytes; 0 is unknown.

    So are `budget` and `download_budget`; there 0 is none.
    """

    target: str
    digest: str
    size: int
    download: int
    build_seconds: float
    smoke: str
    tags: tuple[str, ...]
    budget: int = 0
    download_budget: int = 0


def summarise(planned: Sequence[PlannedTarget], registry: Registry, state: State) -> list[Line]:
    """Ask the registry and this machine's records about targets, all at once."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda one: _with_budget(one, _line(one, registry, state)), planned))


def _with_budget(planned: PlannedTarget, line: Line) -> Line:
    limits = {limit.kind: limit.bytes for limit in budget.limits_of(planned.target)}
    return replace(line, budget=limits.get("size", 0), download_budget=limits.get("pull", 0))


def _line(planned: PlannedTarget, registry: Registry, state: State) -> Line:
    reference = address(planned, registry.host)
    found = registry.head(reference)
    last = state.last_build(planned.name)
    record = last if last and last.digest == planned.digest else None
    size, seconds = (record.size, record.seconds) if record else (0, 0.0)
    if found is None:
        reports = SmokeResults(state, registry).of(
            Presence("", record.image_id if record else ""), reference.repository
        )
        return Line(planned.name, "", size, 0, seconds, _smoke(reports), ())
    manifest = registry.get_manifest(reference)
    reports = SmokeResults(state, registry).of(Presence(found.digest, manifest.config_digest), reference.repository)
    row = planned.target.row.name
    tags = [tag for tag in registry.list_tags(reference.repository) if tag == row or tag.startswith(f"{row}-")]
    heads = registry.heads(reference.repository.tagged(tag) for tag in tags)
    here = tuple(one.tag for one, head in heads.items() if head and head.digest == found.digest)
    return Line(planned.name, found.digest, size, manifest.size, seconds, _smoke(reports), here)


def _smoke(reports: Sequence[object]) -> str:
    from imagebuild.run.evidence import SmokeReport
    from imagebuild.run.factory import counted

    newest = next((report for report in reports if isinstance(report, SmokeReport)), None)
    return counted(newest) if newest else "not tested"


def show(lines: Sequence[Line], registry: str) -> None:
    """Print the lines for a person."""
    for line in lines:
        click.secho(line.target, bold=True)
        sizes = [
            f"{line.size / 1e6:.0f} MB{_used(line.size, line.budget)}" if line.size else "",
            f"{line.download / 1e6:.0f} MB to pull{_used(line.download, line.download_budget)}"
            if line.download
            else "",
        ]
        click.echo(f"  size    {', '.join(size for size in sizes if size) or 'unknown here'}")
        if line.build_seconds:
            click.echo(f"  built   in {line.build_seconds:.0f} s on this machine")
        click.echo(f"  smoke   {line.smoke}")
        click.echo(f"  digest  {line.digest or f'not in {registry}'}")
        if line.tags:
            click.echo(f"  tags    {', '.join(line.tags)}")


def _used(size: int, limit: int) -> str:
    return f" ({size / limit:.0%} of its budget)" if limit else ""
