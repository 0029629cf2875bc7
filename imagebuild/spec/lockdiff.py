"""What differs, in words: between a lock and what its row asks for now, and between two locks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from imagebuild.spec.lock import Form, ImagePart, Needs, Part, RowLock, StagePart

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_SHOWN = len("sha256:") + 12


@dataclass(frozen=True)
class Change:
    """One difference. `part` is a field or a stage of the row; `name` is the package or field that it is about."""

    part: str
    name: str
    text: str

    def __str__(self) -> str:
        return self.text if self.part == self.name else f"{self.part}: {self.text}"


def moved(form: Form, needs: Needs) -> list[Change]:
    """How what a row asks for now differs from what its lock was made for."""
    return [
        *_value("os", form.os, needs.os),
        *_value("python", form.python, needs.python),
        *_named({field: part.reference for field, part in form.images.items()}, needs.images),
        *_stages(form.stages, needs.requirements),
    ]


def _value(field: str, before: str, now: str) -> Iterator[Change]:
    if before != now:
        yield Change(field, field, f"{field} {before} -> {now}")


def _named(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Change]:
    for field in sorted(before.keys() | now.keys()):
        yield from _value(field, before.get(field, "none"), now.get(field, "none"))


def _stages(before: Mapping[str, StagePart], now: Mapping[str, tuple[str, ...]]) -> Iterator[Change]:
    for stage in sorted(before.keys() | now.keys()):
        if stage not in before or stage not in now:
            yield Change(stage, stage, f"{stage} {'added' if stage in now else 'removed'}")
        else:
            yield from _requirements(stage, _by_name(before[stage].requirements), _by_name(now[stage]))


def _requirements(stage: str, before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Change]:
    for name in sorted(before.keys() | now.keys()):
        if name not in before:
            yield Change(stage, name, f"{now[name]} added")
        elif name not in now:
            yield Change(stage, name, f"{before[name]} removed")
        elif before[name] != now[name]:
            yield Change(stage, name, f"{before[name]} -> {now[name]}")


def _by_name(requirements: Iterable[str]) -> dict[str, str]:
    return {canonicalize_name(found[0]) if (found := _NAME.match(line)) else line: line for line in requirements}


def differences(before: RowLock | None, now: RowLock | None) -> list[Change]:
    """How two locks of a row differ; None is the lock that is not there."""
    if before is None or now is None:
        return [Change("", "", f"new: {_summary(now)}" if now else "no longer locked")] if before or now else []
    changes = [*_value("os", before.form.os, now.form.os), *_value("python", before.form.python, now.form.python)]
    for field in sorted(before.form.images.keys() | now.form.images.keys()):
        changes += _image(field, before.form.images.get(field), now.form.images.get(field))
    for stage in [*now.form.stages, *(before.form.stages.keys() - now.form.stages.keys())]:
        changes += _stage(stage, before, now)
    return changes


def _image(field: str, before: ImagePart | None, now: ImagePart | None) -> Iterator[Change]:
    if before and now and before.reference == now.reference and before.digest != now.digest:
        yield Change(field, field, f"{field} {now.reference}: {_shown(before)} -> {_shown(now)}")
    elif before != now:
        yield Change(field, field, f"{field} {_full(before)} -> {_full(now)}")


def _full(part: ImagePart | None) -> str:
    return f"{part.reference} {_shown(part)}" if part else "none"


def _shown(part: Part) -> str:
    return part.digest[:_SHOWN] if part.digest else f"unresolved ({part.unresolved})"


def _stage(stage: str, before: RowLock, now: RowLock) -> Iterator[Change]:
    one, other = before.form.stages.get(stage), now.form.stages.get(stage)
    if one and other and one.digest and other.digest:
        yield from _packages(stage, before, now)
    elif one is None or other is None or (one.digest, one.unresolved) != (other.digest, other.unresolved):
        yield Change(stage, stage, f"{stage} {_state(before, stage)} -> {_state(now, stage)}")


def _summary(lock: RowLock) -> str:
    images = [f"{field} {_shown(part)}" for field, part in lock.form.images.items()]
    return ", ".join([*images, *(f"{stage} {_state(lock, stage)}" for stage in lock.form.stages)]) or "nothing to pin"


def _state(lock: RowLock, stage: str) -> str:
    part = lock.form.stages.get(stage)
    if part is None:
        return "none"
    count = len(lock.pins(stage))
    return f"{count} package{'' if count == 1 else 's'}" if part.digest else _shown(part)


def _packages(stage: str, before: RowLock, now: RowLock) -> Iterator[Change]:
    old, new = before.pins(stage), now.pins(stage)
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            yield Change(stage, name, f"{name} added {new[name].version}")
        elif name not in new:
            yield Change(stage, name, f"{name} removed")
        elif old[name].version != new[name].version:
            yield Change(stage, name, f"{name} {old[name].version} -> {new[name].version}")
        elif old[name].hashes != new[name].hashes:
            yield Change(stage, name, f"{name} {new[name].version} has other files")
