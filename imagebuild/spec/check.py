"""Checks the rows of a matrix against the facts and the site's fleet, and says where in the file each clash is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from imagebuild.errors import Location, Problem
from imagebuild.spec import site as site_file
from imagebuild.spec.compat import check_fleet, check_row
from imagebuild.spec.findings import Finding
from imagebuild.spec.fleet import Fleet
from imagebuild.spec.matrix import Matrix
from imagebuild.spec.site import Site


def check(matrix: Matrix, site: Site, *, rows: Iterable[str] | None = None, strict: bool = False) -> list[Problem]:
    """Everything in the rows that cannot work, or is not known to.

    Args:
        matrix: the rows.
        site: declares the fleet, `drivers:` and `gpus:`.
        rows: the names of the rows to check; all of them by default.
        strict: what the facts do not know is an error, not a warning.
    """
    fleet = Fleet(site.drivers, site.gpus)
    problems = [_of_fleet(finding) for finding in check_fleet(fleet, strict=strict)]
    for name in matrix.rows if rows is None else rows:
        problems += _of_row(matrix, name, check_row(matrix.rows[name], fleet, strict=strict))
    return problems


def errors(problems: Iterable[Problem]) -> list[Problem]:
    """The problems that refuse a row."""
    return [problem for problem in problems if problem.severity == "error"]


def _of_row(matrix: Matrix, row: str, findings: Iterable[Finding]) -> Iterator[Problem]:
    for finding in findings:
        place = matrix.locate(row, finding.field)
        yield Problem(
            finding.message, place, finding.hint, finding.rule, finding.severity, finding.source, f"row {row}"
        )


def _of_fleet(finding: Finding) -> Problem:
    place = Location(site_file.FILE_NAME)
    return Problem(finding.message, place, finding.hint, finding.rule, finding.severity, finding.source, finding.field)


def once(problems: Iterable[Problem]) -> list[Problem]:
    """Each clash once, for people: rows that share a wrong default are wrong in one place."""
    seen: dict[tuple[object, ...], Problem] = {}
    for problem in problems:
        seen.setdefault((problem.location, problem.message), problem)
    return list(seen.values())
