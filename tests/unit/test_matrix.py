"""matrix.yaml: what is accepted, and what is refused with which words at which place."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from imagebuild.errors import InputError
from imagebuild.spec import matrix, yamlfile
from imagebuild.spec.matrix import Matrix
from imagebuild.spec.schema import matrix_schema

PROJECT = Path(__file__).parents[2]
GOOD = """\
version: 1.0.0
epoch: 2026-11-30
project: drl
defaults:
  os: debian12
  base: bootstrap
  python: "3.11"
  sb3: 2.9.2
  sb3_contrib: 2.9.2
  gymnasium: 1.2.3
  mujoco: 3.3.7
  numpy: 2.3.5
  onnxruntime: 1.26.0
rows:
  cpu: {variant: cpu, torch: 2.13.0}
  cu128:
    variant: cu128
    torch: 2.9.1
    wheels: pypi
axes:
  - name: "{variant}-py{python}"
    values: {variant: [cu126, cu130], python: ["3.11", "3.12"]}
    set: {torch: 2.13.0}
    exclude: [{variant: cu126, python: "3.12"}]
    include: [{variant: cu130, torch: 2.14.1}, {variant: cu124, python: "3.10", torch: 2.5.1}]
groups:
  cuda: ["*-cu*"]
  all: [cuda, cpu]
aliases: {t: train-cpu}
"""


def load(text: str) -> Matrix:
    return matrix.build(yamlfile.parse(text, "matrix.yaml"), "matrix.yaml")


def problems(text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(InputError) as caught:
        load(text)
    return [(str(one.location), str(one), one.hint) for one in caught.value.problems]


def test_rows_come_from_rows_and_axes() -> None:
    read = load(GOOD)
    assert list(read.rows) == ["cpu", "cu128", "cu126-py3.11", "cu130-py3.11", "cu130-py3.12", "cu124-py3.10"]
    assert read.rows["cu130-py3.12"].torch == "2.14.1"
    assert read.rows["cu128"].torch_requirement == "torch==2.9.1"
    assert read.rows["cpu"].torch_requirement == "torch==2.13.0+cpu"
    assert read.rows["cu128"].cuda == "12.8"
    assert read.rows["cpu"].shm_bytes == 8 * 2**30


def test_every_value_has_a_place() -> None:
    read = load(GOOD)
    assert str(read.locate("cpu", "torch")) == "matrix.yaml:15:30"
    assert str(read.locate("cpu", "os")) == "matrix.yaml:5:7"
    assert str(read.locate("cu130-py3.11", "torch")) == "matrix.yaml:25:39"
    assert str(read.locate("cu130-py3.11", "variant")) == "matrix.yaml:25:25"


def test_selection_by_target_alias_group_row_stage_and_glob() -> None:
    select = load(GOOD).selection().select
    assert select(["t"]) == ["train-cpu"]
    assert select(["cpu"]) == ["base-cpu", "train-cpu", "diag-tools-cpu", "inference-cpu"]
    assert select(["*-cu128"]) == ["base-cu128", "train-cu128", "diag-tools-cu128", "inference-cu128"]
    assert select(["base"])[:2] == ["base-cpu", "base-cu128"]
    assert select(["all"]) == load(GOOD).selection().targets
    with pytest.raises(InputError, match="tain-cpu"):
        select(["tain-cpu"])


def test_a_row_overrides_budgets_stage_by_stage() -> None:
    text = GOOD.replace("  onnxruntime: 1.26.0\n", "  budgets: {base: 150m, inference: {size: 250m, pull: 100M}}\n", 1)
    text = text.replace("    wheels: pypi\n", "    budgets:\n      train: 8g\n      inference: 3g\n", 1)
    read = load(text)
    assert {stage: str(one) for stage, one in read.rows["cpu"].budgets.items()} == {
        "base": "150m", "inference": "250m, 100m to pull"
    }  # fmt: skip
    # What a row says of a stage replaces all that defaults say of it; stages that it does not name keep theirs.
    assert {stage: str(one) for stage, one in read.rows["cu128"].budgets.items()} == {
        "base": "150m", "train": "8g", "inference": "3g"
    }  # fmt: skip
    assert str(read.locate("cu128", "budgets", "base", "size")) == "matrix.yaml:13:19"
    assert str(read.locate("cu128", "budgets", "inference", "size")) == "matrix.yaml:21:18"
    assert str(read.locate("cpu", "budgets", "inference", "pull")) == "matrix.yaml:13:55"


# (what is replaced, by what, where the problem is, part of the message, part of the hint)
WRONG = [
    ('python: "3.11"', "python: 3.10", "7:11", "YAML reads 3.10 as the number 3.1", '"3.10" in quotes'),
    ('python: "3.11"', "python: 3.1e1", "7:11", "3.1e1", "exact versions"),
    ('python: "3.11"', "python: yes", "7:11", "boolean", "3.11"),
    ('python: "3.11"', "python: [3, 11]", "7:11", "a list", ""),
    ('python: "3.11"', 'python: ">=3.11"', "7:11", "not a version", "exact versions only"),
    ("os: debian12", "os: debain12", "5:7", "debain12 is not one of", "did you mean debian12?"),
    ("base: bootstrap", "base: cuda", "6:9", "neither `bootstrap` nor a full image", "registry/name:tag"),
    ("base: bootstrap", "base: docker.io/x:bad tag", "6:9", "neither", ""),
    ("sb3: 2.9.2\n", "sb4: 2.9.2\n", "8:3", "unknown key `sb4`", "did you mean sb3?"),
    ("torch: 2.13.0}\n  cu", "torch: 2.13.0, tourch: 1}\n  cu", "15:38", "unknown key `tourch`", "torch"),
    ("torch: 2.13.0}\n  cu", "torch: 2.13.0+cpu}\n  cu", "15:30", "build metadata", "write 2.13.0"),
    ("torch: 2.13.0}\n  cu", "torch: v2.13}\n  cu", "15:30", "not a version", "no v"),
    ("torch: 2.13.0}\n  cu", "torch: }\n  cu", "15:30", "not nothing", "3.11"),
    ("{variant: cpu, torch: 2.13.0}", "{torch: 2.13.0}", "15:3", "missing key `variant`", "defaults"),
    ("{variant: cpu, torch: 2.13.0}", "[cpu]", "15:3", "should be a mapping, not a list", ""),
    ("variant: cu128", "variant: cuda12", "17:14", "not a torch variant", "cu128"),
    ("wheels: pypi", "wheels: conda", "19:13", "conda is not one of pytorch, pypi", "known"),
    ("wheels: pypi", "shm_size: 8", "19:15", "8 is not a size", "8g"),
    ("wheels: pypi", "shm_size: lots", "19:15", "lots is not a size", "8g"),
    ("wheels: pypi", "budgets: 2g", "19:14", "mapping", ""),
    ("wheels: pypi", "budgets: {trian: 2g}", "19:15", "trian is not one of", "did you mean train?"),
    ("wheels: pypi", "budgets: {train: 2 GB}", "19:22", "2 GB is not a size", "8g"),
    ("wheels: pypi", "budgets: {train: {size: 2}}", "19:29", "2 is not a size", "8g"),
    ("wheels: pypi", "budgets: {train: {weight: 2g}}", "19:23", "unknown key `budgets.train.weight`", ""),
    ("wheels: pypi", "budgets: {train: {}}", "19:22", "names no size", "{size: 2g, pull: 800m}"),
    ("wheels: pypi", "opset: high", "19:12", "whole number", ""),
    ("wheels: pypi", "stages: [train]", "19:13", "stage train needs stage base", "add base"),
    ("wheels: pypi", "stages: [base, trian]", "19:20", "trian is not one of", "did you mean train?"),
    ("wheels: pypi", "stages: []", "19:13", "at least 1", ""),
    ("  cpu: {", "  cpu-prod: {", "15:3", "ends in '-prod', like a tag of row 'cpu'", "-prod"),
    ("  cpu: {", "  cpu-1.2.3: {", "15:3", "ends in '-1.2.3', like a tag of row", ""),
    ("  cpu: {", "  CPU: {", "15:3", "cannot be part of a tag", "lowercase"),
    ("  cu128:\n", "  cpu:\n", "16:3", "duplicate key 'cpu', first given on line 15", "remove one"),
    ("version: 1.0.0", "version: 1.0", "1:10", "not a semantic version", "1.4.0"),
    ("version: 1.0.0", "version: 1.0.0+cu118", "1:10", "no tag can hold", "write 1.0.0"),
    ("version: 1.0.0\n", "", "1:1", "missing key `version`", "top"),
    ("epoch: 2026-11-30", "epoch: soon", "2:8", "should be a date", "2026-11-30"),
    ("epoch: 2026-11-30", "epoch: 1970-01-01", "2:8", "before 1980", ""),
    ("project: drl", "project: Drl", "3:10", "not a repository path", "drl"),
    ("rows:", "rowz:", "14:1", "unknown key `rowz`", "did you mean rows?"),
    ('["*-cu*"]', '"*-cu*"', "27:9", "should be a list", ""),
    ("[cuda, cpu]", "[cudda, cpu]", "28:9", "'cudda' matches no target", "did you mean cuda?"),
    ("t: train-cpu", "t: train-gpu", "29:14", "'train-gpu' matches no target", "did you mean train-cpu?"),
    ("t: train-cpu", "t: cpu", "29:14", "means 4 targets", "use a group"),
    ("t: train-cpu", "train-cpu: base-cpu", "29:11", "already names a target", "another name"),
    ("t: train-cpu", "cuda: base-cpu", "29:11", "both a group and an alias", ""),
    ("[cuda, cpu]", "[all]", "28:9", "'all' matches no target", ""),
    ("{variant}-py", "{varian}-py", "21:5", "cannot be filled in", "axes"),
    ("values: {variant:", "values: {varint:", "22:14", "no row has a key `varint`", "did you mean variant?"),
    ('python: ["3.11", "3.12"]', "python: []", "22:47", "has no values", "at least one"),
    ("exclude: [{variant: cu126,", "exclude: [{variant: cu127,", "24:25", "not a value of `variant`", "cu126"),
    ("exclude: [{variant: cu126,", "exclude: [{torch: cu126,", "24:16", "unknown key `torch`", ""),
    ("set: {torch: 2.13.0}", "set: {torhc: 2.13.0}", "23:11", "unknown key `torhc`", "torch"),
]


@pytest.mark.parametrize(("old", "new", "place", "message", "hint"), WRONG)
def test_wrong_matrices_are_refused(old: str, new: str, place: str, message: str, hint: str) -> None:
    assert old in GOOD
    found = problems(GOOD.replace(old, new, 1))
    at_place = [one for one in found if one[0] == f"matrix.yaml:{place}" and message in one[1] and hint in one[2]]
    assert at_place, found


def test_only_the_platform_and_torch_must_be_given() -> None:
    bare = "version: 1.0.0\nepoch: 2026-11-30\nproject: drl\nrows:\n  a: {}\n"
    missing = {message.rpartition("`")[0].rpartition("`")[2] for _, message, _ in problems(bare)}
    assert missing == {"os", "base", "python", "variant", "torch"}


def test_rows_with_the_same_name_from_axes_are_refused() -> None:
    found = problems(GOOD.replace("{variant}-py{python}", "{variant}", 1))
    assert any("row cu130 is already defined" in message for _, message, _ in found)


def test_a_wrong_default_is_one_problem() -> None:
    assert len(problems(GOOD.replace("os: debian12", "os: debain12"))) == 1


def test_all_problems_are_reported_at_once_in_file_order() -> None:
    text = GOOD.replace("epoch: 2026-11-30", "epoch: soon").replace("os: debian12", "os: x").replace("[cuda,", "[no,")
    places = [place for place, _, _ in problems(text)]
    assert places == ["matrix.yaml:2:8", "matrix.yaml:5:7", "matrix.yaml:28:9"]


@pytest.mark.parametrize("text", ["", "a", "[]", "rows: 3", "rows: {x: 1}", "axes: {}", "axes: [1]", "axes: [{}]"])
def test_shapes_that_are_no_matrix(text: str) -> None:
    assert problems(text)


def test_the_schema_accepts_what_the_loader_accepts() -> None:
    schema = matrix_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    budgets = GOOD.replace("variant: cu128", "variant: cu128\n    budgets: {base: 150m, train: {pull: 1g}}", 1)
    for text in (GOOD, budgets, (PROJECT / "matrix.yaml").read_text()):
        value = yaml.safe_load(text)
        value["epoch"] = value["epoch"].isoformat()
        jsonschema.validate(value, schema)
    value["rows"]["cpu"]["tourch"] = "1"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, schema)
    del value["rows"]["cpu"]["tourch"]
    for wrong in ({"trian": "2g"}, {"train": "2 GB"}, {"train": {"weight": "2g"}}):
        value["rows"]["cpu"]["budgets"] = wrong
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(value, schema)


def test_the_projects_own_matrix_is_right() -> None:
    read = matrix.load(PROJECT / "matrix.yaml")
    assert {"cpu", "cu118", "cu121", "cu124", "cu126", "cu128", "cu130"} <= set(read.rows)
