"""Targets and what each is built from: the DAG of `<stage>-<row>`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from imagebuild.spec.matrix import Matrix
from imagebuild.spec.models import STAGES, Row

# `inference` is filled from train's own files, so that the two cannot disagree.
PARENT_STAGES: Mapping[str, tuple[str, ...]] = {
    "base": (),
    "train": ("base",),
    "diag-tools": ("train",),
    "inference": ("base", "train"),
}


@dataclass(frozen=True)
class Target:
    """One image to be: a stage of a row."""

    stage: str
    row: Row

    @property
    def name(self) -> str:
        """What a user calls it, such as `train-cu118`."""
        return f"{self.stage}-{self.row.name}"

    @property
    def parents(self) -> tuple[str, ...]:
        """The names of the targets that this one is built from."""
        return tuple(f"{stage}-{self.row.name}" for stage in PARENT_STAGES[self.stage])

    def __str__(self) -> str:
        return self.name


def targets_of(matrix: Matrix) -> dict[str, Target]:
    """Every target of a matrix by name, row by row, parents first."""
    return {
        target.name: target
        for row in matrix.rows.values()
        for target in (Target(stage, row) for stage in STAGES if stage in row.stages)
    }


def with_ancestors(targets: Mapping[str, Target], wanted: Iterable[str]) -> list[str]:
    """The wanted targets and all that they are built from, parents first."""
    needed: dict[str, None] = {}

    def visit(name: str) -> None:
        for parent in targets[name].parents:
            visit(parent)
        needed.setdefault(name)

    for name in wanted:
        visit(name)
    return list(needed)


def descendants(targets: Mapping[str, Target], name: str) -> Iterator[str]:
    """The targets that are built, directly or not, from `name`."""
    for other in targets.values():
        if other.name != name and name in with_ancestors(targets, [other.name]):
            yield other.name
