"""Which rows are built from their lock, and why the others cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from imagebuild.errors import InputError, Location, Problem
from imagebuild.spec import lock
from imagebuild.spec.lock import Needs, RowLock
from imagebuild.spec.lockdiff import Change, moved
from imagebuild.spec.matrix import Matrix
from imagebuild.spec.models import Row

# Packages whose row field has another name.
_FIELDS = {"stable-baselines3": "sb3", "onnxruntime-gpu": "onnxruntime"}


class Locks:
    """The locks of a project.

    Args:
        folder: the project's folder.
        matrix: its rows.
        needs: what a row asks for.
        used: whether locks count; without, every row is built from what the matrix pins.
    """

    def __init__(self, folder: Path, matrix: Matrix, needs: Callable[[str], Needs], *, used: bool = True) -> None:
        self.folder = folder / lock.FOLDER
        self._matrix = matrix
        self._needs = needs
        self._read = lock.on_disk(self.folder)
        self.used = used and self.folder.is_dir()
        self._usable: dict[str, RowLock | None] = {}

    def read(self, row: str) -> RowLock | None:
        """A row's lock as it lies there, whether it fits or not."""
        return lock.read(row, self._read)

    def of(self, row: str) -> RowLock | None:
        """The lock that a row is built from: whole, and made for just what the row asks for now."""
        if not self.used:
            return None
        if row not in self._usable:
            found = self.read(row)
            self._usable[row] = None if found is None or list(self._faults(row, found)) else found
        return self._usable[row]

    def problems(self, rows: Iterable[str], *, strict: bool = True) -> list[Problem]:
        """Why rows cannot be built from their locks, each at its place in the matrix.

        Args:
            rows: the names of the rows.
            strict: a part that could not be looked up is an error, not a warning.
        """
        return [problem for row in rows for problem in self._of_row(row, strict=strict)]

    def orphans(self) -> list[str]:
        """The rows that are locked, and are not in the matrix."""
        names = (path.name for path in self.folder.glob("*.yaml"))
        return [row for row in lock.locked_rows(names) if row not in self._matrix.rows]

    def orphan_problems(self) -> list[Problem]:
        """Each orphan as a problem."""
        return [
            Problem(f"{self._matrix.file} has no row {row}", Location(f"{lock.FOLDER}/{lock.form_name(row)}"),
                    "buildkit lock", "lock")
            for row in self.orphans()
        ]  # fmt: skip

    def _of_row(self, row: str, *, strict: bool) -> Iterator[Problem]:
        try:
            found = self.read(row)
        except InputError as error:
            yield from error.problems
            return
        if found is None:
            yield self._problem(row, "it is not locked", self._matrix.locate(row))
        else:
            yield from self._faults(row, found, strict=strict)

    def _faults(self, row: str, found: RowLock, *, strict: bool = True) -> Iterator[Problem]:
        changes = moved(found.form, self._needs(row))
        for change in changes:
            yield self._problem(row, f"moved since it was locked: {change}", self._place(row, change))
        for stage in found.spoiled:
            place = Location(f"{lock.FOLDER}/{lock.requirements_name(row, stage)}")
            yield self._problem(row, "this is not what was locked", place)
        for reason, parts in {} if changes else found.unresolved.items():
            place = self._matrix.locate(row, parts[0] if parts[0] in Row.model_fields else "torch")
            hint = f"buildkit lock {row}, where that can be had; or build with --unlocked"
            yield Problem(f"{' and '.join(parts)} could not be locked: {reason}", place, hint, "unresolved",
                          "error" if strict else "warning", subject=f"row {row}")  # fmt: skip

    def _problem(self, row: str, message: str, place: Location) -> Problem:
        return Problem(message, place, f"buildkit lock {row}", "lock", subject=f"row {row}")

    def _place(self, row: str, change: Change) -> Location:
        """The value in the matrix that a change comes from, as far as the package's name tells."""
        field = _FIELDS.get(change.name, change.name.partition("-cu")[0].replace("-", "_"))
        return self._matrix.locate(row, field if field in Row.model_fields else "")
