"""The combinations whose verdict is given get that verdict, with the reason that is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from imagebuild.spec.compat import Fleet, check_row
from tests.compat_rows import NVIDIA, errors, row, rules

CASES = yaml.safe_load((Path(__file__).parents[1] / "data" / "combos.yaml").read_text())


def fields(case: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in case.items() if name not in {"id", "rule"}}


@pytest.mark.parametrize("case", CASES["accept"], ids=lambda case: case["id"])
def test_a_combination_that_works_is_accepted(case: dict[str, Any]) -> None:
    assert errors(**fields(case)) == []


@pytest.mark.parametrize("case", CASES["refuse"], ids=lambda case: case["id"])
def test_a_combination_that_does_not_work_is_refused_for_its_reason(case: dict[str, Any]) -> None:
    found = errors(**fields(case))

    assert case["rule"] in rules(found)
    assert all(finding.source for finding in found)


@pytest.mark.parametrize("case", CASES["refuse"], ids=lambda case: case["id"])
def test_the_nearest_change_makes_a_refused_combination_work(case: dict[str, Any]) -> None:
    fleet = Fleet(*((case[name],) if name in case else () for name in ("driver", "gpu")))
    texts = {name: value for name, value in fields(case).items() if name not in {"driver", "gpu"}}
    for finding in errors(**fields(case)):
        assert finding.suggestions, finding
        for suggestion in finding.suggestions:
            mended = row(**texts)
            for change in suggestion.changes:
                setattr(mended, change.field, change.new)
            left = [one for one in check_row(mended, fleet) if one.severity == "error"]
            assert left == [], suggestion


def test_the_nearest_changes_are_the_obvious_ones() -> None:
    by_id = {case["id"]: case for case in CASES["refuse"]}

    def nearest(case: str) -> str:
        return str(errors(**fields(by_id[case]))[0].suggestions[0])

    assert nearest("b01") == "variant: cu118 -> cu126"
    assert nearest("b03") == "sb3: 2.9.2 -> 2.8.0"
    assert nearest("b05") == "variant: cu130 -> cu126"
    assert nearest("b08").endswith(f"-> {NVIDIA}11.8.0-cudnn8-devel-rockylinux8")
    assert nearest("b10") == "onnxruntime: 1.31.1 -> 1.26.0"
    assert nearest("b12") == "gymnasium: 1.4.0 -> 1.2.2"
    assert nearest("b14") == "numpy: 2.0 -> 1.26.4"
