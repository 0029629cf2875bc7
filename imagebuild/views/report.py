"""Smoke results as JUnit XML, which GitLab shows beside a merge request: one case a check."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from imagebuild.run.evidence import SmokeReport

# Control characters that XML 1.0 cannot hold; a check may print anything.
_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def junit(report: SmokeReport) -> bytes:
    """A report as a JUnit file."""
    outcomes = [case.outcome for case in report.cases]
    suite = ElementTree.Element(
        "testsuite", name=report.target, tests=str(len(outcomes)), failures=str(outcomes.count("failed")),
        skipped=str(outcomes.count("skipped")), errors="0", timestamp=report.started.isoformat(),
        time=f"{sum(case.seconds for case in report.cases):.3f}",
    )  # fmt: skip
    properties = ElementTree.SubElement(suite, "properties")
    facts = {"image_id": report.image_id, "manifest_digest": report.manifest_digest, "gpu": report.gpu.mode}
    for name, value in {**facts, **report.host}.items():
        ElementTree.SubElement(properties, "property", name=name, value=value)
    for case in report.cases:
        element = ElementTree.SubElement(
            suite, "testcase", classname=report.target, name=case.name, time=f"{case.seconds:.3f}"
        )  # fmt: skip
        if case.outcome != "passed":
            tag = "failure" if case.outcome == "failed" else "skipped"
            ElementTree.SubElement(element, tag, message=_clean(case.message))
        ElementTree.SubElement(element, "system-out").text = _clean(case.output)
    content: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return content


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)
