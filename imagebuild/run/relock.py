"""Makes the locks of rows: looks up what fits no more, keeps what does, and replaces a row's files together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from imagebuild.engine.resolve import NO_UPGRADE, Resolver, UnreachableError, Upgrade
from imagebuild.errors import InputError, Problem, WorkError
from imagebuild.events import Emit, Event, Kind
from imagebuild.plan.plan import Plan
from imagebuild.plan.targets import PARENT_STAGES
from imagebuild.spec import lock
from imagebuild.spec.lock import Form, ImagePart, Needs, RowLock, StagePart
from imagebuild.spec.lockdiff import Change, differences

_AT_ONCE = 4
_NOTE = "# Locked by buildkit: {stage} of row {row}. `buildkit lock` writes this file; a change by hand is noticed.\n"


@dataclass
class Outcome:
    """A row's new lock, how it differs from the one before, and what could not be looked up."""

    row: str
    lock: RowLock
    changes: list[Change]
    problems: list[Problem] = field(default_factory=list)


def relock(
    plan: Plan, rows: Sequence[str], resolver: Resolver, emit: Emit, *, upgrade: Upgrade = NO_UPGRADE
) -> list[Outcome]:
    """Lock rows, several at once, and write what came of it.

    Args:
        plan: knows what the rows ask for.
        rows: the names of the rows.
        resolver: looks things up.
        emit: hears of each row.
        upgrade: what may move although it fits.
    """
    outcomes: dict[str, Outcome] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        waiting = {pool.submit(_timed, plan, row, resolver, emit, upgrade): row for row in rows}
        for done in as_completed(waiting):
            outcome = done.result()
            lock.write(plan.locks.folder, outcome.lock)
            outcomes[outcome.row] = outcome
    return [outcomes[row] for row in rows]


def _timed(plan: Plan, row: str, resolver: Resolver, emit: Emit, upgrade: Upgrade) -> Outcome:
    started = time.monotonic()
    emit(Event(Kind.TASK_STARTED, row, "lock"))
    outcome = _RowLocker(plan, row, resolver, upgrade).run()
    unresolved = [part for parts in outcome.lock.unresolved.values() for part in parts]
    packages = sum(len(outcome.lock.pins(stage)) for stage in outcome.lock.files)
    message = ", ".join(unresolved) or f"{packages} packages, {len(outcome.lock.form.images)} images"
    kind, status = (Kind.TASK_FAILED, "unresolved") if unresolved else (Kind.TASK_DONE, "done")
    emit(Event(kind, row, "lock", message, {"status": status, "seconds": time.monotonic() - started}))
    return outcome


class _RowLocker:
    """Locks one row."""

    def __init__(self, plan: Plan, row: str, resolver: Resolver, upgrade: Upgrade) -> None:
        self._matrix = plan.matrix
        self._row = plan.matrix.rows[row]
        self._resolver = resolver
        self._upgrade = upgrade
        self._needs: Needs = plan.needs(row)
        self._problems: list[Problem] = []
        self._failures: dict[str, tuple[WorkError, list[str]]] = {}  # what was met, and the parts that met it
        self._kept: list[str] = []
        self._before = self._read(plan)

    def _read(self, plan: Plan) -> RowLock | None:
        """The lock so far; one that cannot be read is replaced, and that is said."""
        try:
            return plan.locks.read(self._row.name)
        except InputError as error:
            self._problems += [Problem(f"replaced: {one.message}", one.location, severity="warning")
                               for one in error.problems]  # fmt: skip
            return None

    def run(self) -> Outcome:
        """Look up what is needed."""
        needs = self._needs
        images = {name: self._image(name, reference) for name, reference in needs.images.items()}
        stages: dict[str, StagePart] = {}
        files: dict[str, str] = {}
        for stage in needs.requirements:
            stages[stage], text = self._stage(stage, stages, files)
            if text:
                files[stage] = text
        new = RowLock(needs.row, Form(os=needs.os, python=needs.python, images=images, stages=stages), files)
        self._problems += [self._problem(error, parts) for error, parts in self._failures.values()]
        return Outcome(needs.row, new, differences(self._before, new), self._problems)

    def _image(self, name: str, reference: str) -> ImagePart:
        """The image of a field, at the digest that it has: a tag that moved moves the lock only in an upgrade."""
        before = self._before.form.images.get(name) if self._before else None
        kept = before if before and before.digest and before.reference == reference else None
        if kept and not self._upgrade.everything:
            return kept
        try:
            return ImagePart(reference=reference, digest=self._resolver.digest(reference))
        except WorkError as error:
            self._met(error, name, kept=bool(kept))
            return kept or ImagePart(reference=reference, unresolved=_reason(error))

    def _stage(self, stage: str, stages: dict[str, StagePart], files: dict[str, str]) -> tuple[StagePart, str]:
        """A stage's packages; what they have in common with those of its parents is the same there."""
        requirements = self._needs.requirements[stage]
        parents = [parent for parent in _ancestors(stage) if parent in stages]
        for parent in parents:
            if not stages[parent].digest:
                return StagePart(requirements=requirements, unresolved=stages[parent].unresolved), ""
        before = self._before.files.get(stage, "") if self._before else ""
        kept = before if self._fits(stage, parents, stages) else ""
        if kept and not self._upgrade:
            return StagePart(requirements=requirements, digest=lock.digest_of(kept)), kept
        constraints = "".join(files[parent] for parent in parents)
        try:
            closure = self._resolver.closure(
                self._row, "\n".join(requirements), constraints=constraints, before=before, upgrade=self._upgrade
            )
        except WorkError as error:
            self._met(error, stage, kept=bool(kept))
            if not kept:
                return StagePart(requirements=requirements, unresolved=_reason(error)), ""
            text = kept
        else:
            text = _NOTE.format(stage=stage, row=self._row.name) + closure
        return StagePart(requirements=requirements, digest=lock.digest_of(text)), text

    def _fits(self, stage: str, parents: Sequence[str], stages: dict[str, StagePart]) -> bool:
        """Whether a stage's packages so far are still what would be asked for."""
        before, needs = self._before, self._needs
        if before is None or stage not in before.form.stages or stage in before.spoiled:
            return False
        form = before.form
        same_parents = all(form.stages.get(parent) == stages[parent] for parent in parents)
        same_place = (form.os, form.python) == (needs.os, needs.python)
        same = form.stages[stage].requirements == needs.requirements[stage]
        return same and same_place and same_parents and form.stages[stage].digest is not None

    def _met(self, error: WorkError, part: str, *, kept: bool) -> None:
        """Note what a look-up of a part met."""
        self._failures.setdefault(error.message, (error, []))[1].append(part)
        if kept:
            self._kept.append(part)

    def _problem(self, error: WorkError, parts: Sequence[str]) -> Problem:
        """What was met, as a problem. Where nobody could be asked it is a warning: it may well be there."""
        detail = f" ({error.detail})" if isinstance(error, UnreachableError) and error.detail else ""
        stays = "; what was locked stays" if set(parts) <= set(self._kept) else ""
        place = self._matrix.locate(self._row.name, parts[0] if parts[0] in self._needs.images else "torch")
        return Problem(
            f"{' and '.join(parts)}: {error.message}{detail}{stays}", place, error.hint, "unresolved",
            "warning" if stays or isinstance(error, UnreachableError) else "error", subject=f"row {self._row.name}",
        )  # fmt: skip


def _reason(error: WorkError) -> str:
    """The failure in one line, for the file."""
    return error.message[:400]


def _ancestors(stage: str) -> list[str]:
    """The stages that a stage is built from, directly or not."""
    nearest = PARENT_STAGES[stage]
    return list(dict.fromkeys([*(far for parent in nearest for far in _ancestors(parent)), *nearest]))
