"""`buildkit check`: the known combinations as rows of a matrix, each verdict at its line, and in every format."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import buildkit
from imagebuild.errors import InputError
from imagebuild.spec import matrix, yamlfile
from imagebuild.spec.check import check, errors, once
from imagebuild.spec.models import Row
from imagebuild.spec.site import Site
from tests.projects import project

CASES = yaml.safe_load((Path(__file__).parents[1] / "data" / "combos.yaml").read_text())
_FIELDS = ("python", "variant", "torch", "sb3", "gymnasium", "mujoco", "numpy", "ray", "opset")


def as_matrix(case: dict[str, Any]) -> str:
    """A matrix whose only row is a combination; what it leaves open fits the rest."""
    image = case["image"]
    row = {field: case[field] for field in _FIELDS if field in case}
    row |= {"os": image.rpartition("-")[2], "base": f"docker.io/nvidia/cuda:{image}"}
    row.setdefault("torch", "2.13.0" if image.startswith("13") else "2.9.1")
    row.setdefault("variant", "cu130" if image.startswith("13") else "cu128")
    if "ort" in case:
        row["onnxruntime"] = case["ort"]
    if "tensorrt" in case:
        row["tensorrt"] = case["tensorrt"].rpartition("=")[2]
    return yaml.safe_dump({"version": "1.0.0", "epoch": "2026-11-30", "project": "x", "rows": {case["id"]: row}})


@pytest.mark.parametrize("case", [*CASES["accept"], *CASES["refuse"]], ids=lambda case: case["id"])
def test_known_combinations_get_their_verdict(case: dict[str, Any]) -> None:
    read = matrix.build(yamlfile.parse(as_matrix(case), "matrix.yaml"), "matrix.yaml")
    site = Site(drivers=tuple(filter(None, [case.get("driver")])), gpus=tuple(filter(None, [case.get("gpu")])))
    refused = errors(check(read, site))
    assert ({"rule" in case} == {True}) == bool(refused), refused
    if "rule" in case:
        found = [problem for problem in refused if problem.rule == case["rule"]]
        assert found
        assert all(problem.source and problem.location and problem.location.line for problem in found)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates()
    | st.sampled_from(["2.13.0", "3.11", "cu128", "rockylinux8", "docker.io/nvidia/cuda:12.8.1-base-rockylinux8"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_matrix_crashes_the_check(data: st.DataObject) -> None:
    """Whatever stands where a value should: it is accepted, or refused as input."""
    tree = yaml.safe_load(as_matrix(data.draw(st.sampled_from(CASES["accept"]))))
    row = next(iter(tree["rows"].values()))
    for place in data.draw(st.lists(st.sampled_from(["top", "row", "rows", "extra"]), min_size=1, max_size=3)):
        value = data.draw(_VALUES)
        if place == "top":
            tree[data.draw(st.sampled_from(["version", "epoch", "project", "rows", "groups", "aliases", "axes"]))] = (
                value
            )
        elif place == "row":
            row[data.draw(st.sampled_from(sorted(Row.model_fields)))] = value
        elif place == "rows" and isinstance(tree.get("rows"), dict):
            tree["rows"][data.draw(st.text(max_size=8))] = value
        else:
            tree[data.draw(st.text(max_size=8))] = value
    with contextlib.suppress(InputError):  # and nothing else
        read = matrix.build(yamlfile.parse(yaml.safe_dump(tree), "matrix.yaml"), "matrix.yaml")
        check(read, Site(drivers=("535",), gpus=("V100",)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with one row that cannot work."""
    made = project(tmp_path)
    path = made / "matrix.yaml"
    path.write_text(
        path.read_text().replace("cu128: {variant: cu128, torch: 2.9.1", "cu128: {variant: cu121, torch: 2.9.1")
    )
    return made


def run(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = buildkit.main(["-C", str(folder), *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_clash_is_said_at_its_line_with_a_way_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(folder, capsys, "check")
    assert code == 2
    assert "matrix.yaml:8:34: row cu128: torch 2.9.1 has no cu121 wheel" in err
    assert "nearest that works:" in err
    assert out.startswith("3 rows, ")
    code, _, err = run(folder, capsys, "build", "--dry-run", "train-cu128")
    assert (code, "has no cu121 wheel" in err) == (2, True)
    code, _, _ = run(folder, capsys, "check", "cpu")
    assert code == 0


def test_machines_read_the_same_problems(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(folder, capsys, "check", "--json")
    first = next(one for one in json.loads(out) if one["rule"] == "torch-variant")
    assert (first["file"], first["line"], first["rule"], first["severity"]) == (
        "matrix.yaml",
        8,
        "torch-variant",
        "error",
    )
    _, out, _ = run(folder, capsys, "check", "--format", "codequality")
    report = json.loads(out)
    assert report[0]["check_name"]
    assert report[0]["location"] == {"path": "matrix.yaml", "lines": {"begin": 8}}
    assert len({one["fingerprint"] for one in report}) == len(report)
    _, out, _ = run(folder, capsys, "check", "--format", "junit")
    cases = {case.attrib["name"]: case for case in ElementTree.fromstring(out).iter("testcase")}
    assert set(cases) == {"cpu", "cu118", "cu128"}
    assert cases["cu128"].find("failure") is not None
    assert cases["cpu"].find("failure") is None


def test_rows_that_share_a_default_are_wrong_once_for_people(tmp_path: Path) -> None:
    text = (
        project(tmp_path)
        .joinpath("matrix.yaml")
        .read_text()
        .replace("sb3_contrib: 2.9.2, gymnasium", "sb3_contrib: 2.9.9, gymnasium")
    )
    read = matrix.build(yamlfile.parse(text, "matrix.yaml"), "matrix.yaml")
    found = [problem for problem in check(read, Site(), strict=True) if "2.9.9" in problem.message]
    assert len(found) > len(once(found)) == 1


def test_a_fleet_that_is_not_understood_is_said() -> None:
    read = matrix.build(yamlfile.parse(as_matrix(CASES["accept"][0]), "matrix.yaml"), "matrix.yaml")
    problems = check(read, Site(drivers=("five-thirty-five",), gpus=("A1000000",)))
    assert {str(problem.location) for problem in problems} >= {"site.yaml"}
    assert {problem.subject for problem in problems} >= {"drivers", "gpus"}
