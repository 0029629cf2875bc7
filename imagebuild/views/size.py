"""Where the bytes of an image are, by layer and by package, beside those of an earlier one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

import click

from imagebuild.engine.layers import Layer
from imagebuild.run.budget import Limit
from imagebuild.run.sizes import Contents, Measured, megabytes

_NAME_WIDTH = 72
_KINDS = {"os": "system", "python": "Python", "files": "no package"}
Names = Mapping[str, tuple[str, str]]  # step -> (target, what the step is called)


@dataclass(frozen=True)
class Weight:
    """One layer or package, in bytes; None is unknown. `before` is that of the earlier image, 0 where it had none."""

    name: str
    group: str  # the target whose Containerfile has the step, or `os`, `python`, `files`
    size: int | None
    pull: int | None = None
    before: int | None = None

    @property
    def change(self) -> int | None:
        """Bytes more than before."""
        return None if self.size is None or self.before is None else self.size - self.before


@dataclass(frozen=True)
class Report:
    """One target's image, and what it is compared with (an empty `against` is nothing)."""

    target: str
    digest: str
    size: int | None
    pull: int | None
    limits: Sequence[Limit]
    layers: Sequence[Weight]
    packages: Sequence[Weight] | None  # None: nobody measured them
    overhead: int | None  # what is in the layers and in no file: their format, and what later layers hide
    against: str = ""
    size_before: int | None = None
    pull_before: int | None = None
    notes: Sequence[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For `--json`; sizes in bytes."""
        limits = {limit.kind: {"budget": limit.bytes, "place": str(limit.place)} for limit in self.limits}
        rows = {"layers": self.layers, "packages": self.packages}
        return vars(self) | {"limits": limits} | {
            key: None if value is None else [vars(one) | {"change": one.change} for one in value]
            for key, value in rows.items()
        }  # fmt: skip


def compare(
    target: str, now: Measured, before: Measured | None, *, limits: Sequence[Limit], names: Names, against: str,
    notes: Sequence[str] = (),
) -> Report:  # fmt: skip
    """Put together what there is to show of an image, the largest first.

    Args:
        target: its name.
        now: the image.
        before: the earlier one, if there is one.
        limits: the target's budget.
        names: what steps are called.
        against: what the earlier one is called.
        notes: what else is to be said.
    """
    packages, overhead = None, None
    if now.contents:
        packages = _largest_first(_packages(now.contents, before.contents if before else None))
        overhead = now.size - now.contents.total if now.size is not None else None
    return Report(
        target, now.digest, now.size, now.pull, limits, _largest_first(_layers(now, before, names)), packages, overhead,
        against if before else "", before.size if before else None, before.pull if before else None, notes,
    )  # fmt: skip


def _largest_first(weights: Iterable[Weight]) -> list[Weight]:
    """By size, or by what travels where that is all there is; what is gone comes last."""
    return sorted(weights, key=lambda one: (-(one.size or one.pull or 0), -(one.before or 0), one.group, one.name))


def _layers(now: Measured, before: Measured | None, names: Names) -> list[Weight]:
    if before is None:
        return [_layer(layer, None, names) for layer in now.layers]
    return [_layer(new, old, names, compared=True) for new, old in _pairs(before.layers, now.layers)]


def _layer(new: Layer | None, old: Layer | None, names: Names, *, compared: bool = False) -> Weight:
    shown = new or old
    assert shown is not None  # noqa: S101  (a pair has one at least)
    target, name = names.get(shown.step, ("", shown.step))
    if not compared:
        return Weight(name, target, shown.size, shown.pull)
    gone = new is None
    before = old.size if old else 0
    return Weight(name, target, 0 if gone else shown.size, 0 if gone else shown.pull, before)


def _pairs(old: Sequence[Layer], new: Sequence[Layer]) -> list[tuple[Layer | None, Layer | None]]:
    """Which layer took the place of which: the same step, or what stands where a changed step stood."""
    pairs: list[tuple[Layer | None, Layer | None]] = []
    matcher = SequenceMatcher(None, [one.step for one in old], [one.step for one in new], autojunk=False)
    for _tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        pairs += zip_longest(new[new_from:new_to], old[old_from:old_to])
    return pairs


def _packages(now: Contents, before: Contents | None) -> Iterator[Weight]:
    for kind in _KINDS:
        new: Mapping[str, int] = getattr(now, kind)
        old: Mapping[str, int] = getattr(before, kind) if before else {}
        for name in new.keys() | old.keys():
            yield Weight(name, kind, new.get(name, 0), before=old.get(name, 0) if before else None)


# --- for a person -----------------------------------------------------------------------------------


def show(report: Report, top: int) -> None:
    """Print a report: totals, the `top` largest layers and packages, and the packages that changed the most."""
    click.secho(report.target, bold=True)
    for line in (*_totals(report), *report.notes):
        click.echo(f"  {line}")
    _table("LAYER", "OF", report.layers, top, changes=bool(report.against))
    if report.packages is None:
        return
    there = [one for one in report.packages if one.size]
    _table("PACKAGE", "KIND", there, top, changes=False)
    changed = sorted((one for one in report.packages if one.change), key=lambda one: -abs(one.change or 0))
    if changed:
        _table("CHANGED PACKAGE", "KIND", changed, top, changes=True)
    click.echo(f"\n  {_sum(there, report.overhead)}")


def _totals(report: Report) -> list[str]:
    pull = f", {megabytes(report.pull)} to pull" if report.pull is not None else ""
    lines = [f"size    {megabytes(report.size) if report.size is not None else 'unknown'}{pull}"]
    for limit in report.limits:
        weight = report.size if limit.kind == "size" else report.pull
        what = f"{limit.text} ({megabytes(limit.bytes)}){' to pull' if limit.kind == 'pull' else ''}"
        lines.append(f"budget  {what}: {_left(limit.bytes, weight)}, {limit.place}")
    if report.against:
        pairs = ((report.size, report.size_before, ""), (report.pull, report.pull_before, " to pull"))
        changes = [f"{_signed(now - old)} MB{what}" for now, old, what in pairs if now is not None and old is not None]
        lines.append(f"change  {', '.join(changes) or 'not known'} since {report.against}")
    return lines


def _left(limit: int, weight: int | None) -> str:
    if weight is None:
        return "not known yet"
    return f"{megabytes(limit - weight)} left" if weight <= limit else f"{megabytes(weight - limit)} over"


def _sum(packages: Sequence[Weight], overhead: int | None) -> str:
    """How the packages add up to the whole."""
    words = []
    for kind, name in _KINDS.items():
        sizes = [one.size or 0 for one in packages if one.group == kind]
        if not sizes:
            continue
        counted = "1 package" if len(sizes) == 1 else f"{len(sizes)} packages"
        words.append(f"{megabytes(sum(sizes))} {name}" + (f" ({counted})" if kind != "files" else ""))
    if overhead is not None:
        words.append(f"{megabytes(overhead)} in no file (the layers' own format, and what later layers replace)")
    return " + ".join(words)


def _table(title: str, second: str, weights: Sequence[Weight], top: int, *, changes: bool) -> None:
    """Print the first rows in columns, numbers to the right, and the sum of the others."""
    pulls = any(one.pull is not None for one in weights)
    head = ["MB", *(["TO PULL"] if pulls else []), *(["CHANGE"] if changes else [])]

    def cells(one: Weight) -> list[str]:
        numbers = [_number(one.size), *([_number(one.pull)] if pulls else [])]
        return [*numbers, *([_signed(one.change)] if changes else [])]

    lines = [[title, second, *head]]
    lines += [[_cut(one.name), _KINDS.get(one.group, one.group) or "-", *cells(one)] for one in weights[:top]]
    if others := weights[top:]:
        lines.append([f"{len(others)} more", "", *cells(_together(others))])
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) + 2)]
    click.echo()
    for line in lines:
        names = [cell.ljust(width) for cell, width in zip(line[:2], widths, strict=False)]
        numbers = [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]
        click.echo(f"  {'  '.join(names + numbers)}")


def _together(weights: Sequence[Weight]) -> Weight:
    def added(numbers: Sequence[int | None]) -> int | None:
        return None if None in numbers else sum(number or 0 for number in numbers)

    sizes, pulls, befores = ([getattr(one, name) for one in weights] for name in ("size", "pull", "before"))
    return Weight("", "", added(sizes), added(pulls), added(befores))


def _number(size: int | None) -> str:
    return "?" if size is None else f"{size / 1e6:.1f}"


def _signed(size: int | None) -> str:
    if size is None:
        return "?"
    return f"{size / 1e6:+.1f}" if abs(size) >= 50_000 else "=" if size == 0 else "~"


def _cut(name: str) -> str:
    """A name that fits: of a path the end, of other text the beginning."""
    if len(name) <= _NAME_WIDTH:
        return name
    return f"…{name[1 - _NAME_WIDTH :]}" if name.startswith("/") else f"{name[: _NAME_WIDTH - 1]}…"
