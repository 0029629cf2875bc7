"""Problems for machines: JSON, GitLab's code quality report, JUnit."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from imagebuild.errors import Problem


def as_json_values(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """Each problem with all that is known of it."""
    return [
        {
            "file": one.location.file if one.location else "",
            "line": one.location.line if one.location else 0,
            "column": one.location.column if one.location else 0,
            "severity": one.severity, "rule": one.rule, "subject": one.subject, "message": one.message,
            "hint": one.hint, "source": one.source,
        }
        for one in problems
    ]  # fmt: skip


def as_codequality(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """The report that GitLab shows in a merge request's diff. A fingerprint stays while the clash does."""
    return [
        {
            "description": f"{one.subject}: {one.message}" if one.subject else one.message,
            "check_name": one.rule or "matrix",
            "fingerprint": hashlib.sha256(f"{one.rule}|{one.subject}|{one.message}".encode()).hexdigest(),
            "severity": "critical" if one.severity == "error" else "minor",
            "location": {
                "path": one.location.file if one.location else "matrix.yaml",
                "lines": {"begin": max(1, one.location.line if one.location else 1)},
            },
        }
        for one in problems
    ]


def as_junit(rows: Sequence[str], problems: Sequence[Problem]) -> str:
    """One case a row, failed if anything refuses it; problems of the files themselves are a case of their own."""
    errors = [one for one in problems if one.severity == "error"]
    elsewhere = [one for one in errors if one.subject.removeprefix("row ") not in rows]
    cases = {row: [one for one in errors if one.subject == f"row {row}"] for row in rows}
    cases |= {"files": elsewhere} if elsewhere else {}
    failed = sum(bool(found) for found in cases.values())
    suite = ElementTree.Element("testsuite", name="buildkit check", tests=str(len(cases)), failures=str(failed))
    for name, found in cases.items():
        case = ElementTree.SubElement(suite, "testcase", classname="matrix", name=name)
        if found:
            text = "\n".join(f"{one}\n  {one.hint}" for one in found)
            ElementTree.SubElement(case, "failure", message=found[0].message).text = text
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)
