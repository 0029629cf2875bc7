"""A site's own checks: what joins a suite, and what is refused because it would never run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import buildkit
from imagebuild.errors import InputError
from imagebuild.run.smoke import Suite
from imagebuild.spec import matrix, site
from tests.projects import project


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return project(tmp_path / "project")


def write(checks: Path, *names: str) -> Path:
    for name in names:
        (checks / name).parent.mkdir(parents=True, exist_ok=True)
        (checks / name).write_text("pass\n")
    return checks


def test_they_run_after_buildkits_own_and_change_the_digest(folder: Path, tmp_path: Path) -> None:
    checks = write(tmp_path / "checks", "train/05-a.py", "train/60-gpu-b.py", "base/10-c.py", "common/lib.py",
                   "README.md", "train/.swp")  # fmt: skip
    rows = matrix.load(folder / "matrix.yaml").rows
    row = rows["cpu"]
    own, all_of_them = Suite.load(folder, "train"), Suite.load(folder, "train", checks)
    assert all_of_them.checks(row) == [*own.checks(row), "site/05-a.py"]
    assert all_of_them.checks(rows["cu128"])[-2:] == ["site/05-a.py", "site/60-gpu-b.py"]
    assert all_of_them.origins["site/05-a.py"] == checks / "train" / "05-a.py"
    assert "site/lib.py" in all_of_them.files
    assert all_of_them.digest(row) != own.digest(row)
    before = all_of_them.digest(row)
    (checks / "common" / "lib.py").write_text("x = 1\n")
    assert Suite.load(folder, "train", checks).digest(row) != before


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("train/licences.py", "licences.py would never run", "a check is named like 20-licences.py"),
        ("train/20-Licences.py", "20-Licences.py would never run", "small letters"),
        ("train/20-licences.sh", "20-licences.sh would never run", "a check is named like"),
        ("common/20-licences.py", "20-licences.py would never run", "belongs in the folder of its stage"),
        ("trian/20-licences.py", "this is no stage", "base, train, diag-tools, inference"),
        ("20-licences.py", "this is no stage", "base, train, diag-tools, inference"),
        ("train/10-versions.py", "buildkit has a 10-versions.py in train already", "rename it"),
        ("common/smokelib.py", "buildkit has a smokelib.py in train already", "rename it"),
    ],
)
def test_what_would_never_run_is_refused(folder: Path, tmp_path: Path, name: str, message: str, hint: str) -> None:
    checks = write(tmp_path / "checks", name)
    with pytest.raises(InputError) as refused:
        Suite.load(folder, "train", checks)
    (problem,) = refused.value.problems
    assert message in problem.message
    assert hint in problem.hint
    assert str(checks) in str(problem.location)


def test_what_would_run_is_listed_with_its_origin(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILDKIT_CHECKS", str(write(tmp_path / "checks", "base/20-licence.py", "base/60-gpu-fan.py")))
    done = CliRunner().invoke(buildkit.cli, ["-C", str(folder), "smoke", "--list", "--json", "base-cpu"])
    listed = {one["check"]: one["from"] for one in json.loads(done.output)}
    assert listed["30-user"] == "images/base/smoke/30-user.py"
    assert listed["site/20-licence"] == str(tmp_path / "checks/base/20-licence.py")
    assert "site/60-gpu-fan" not in listed


def test_a_folder_that_is_not_there_is_said(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        Suite.load(folder, "train", tmp_path / "nowhere")


def test_a_site_names_its_folder_from_the_project(tmp_path: Path) -> None:
    assert site.load(tmp_path, {}).checks_folder(tmp_path) is None
    assert site.load(tmp_path, {"BUILDKIT_CHECKS": "/srv/checks"}).checks_folder(tmp_path) == Path("/srv/checks")
    (tmp_path / "site.yaml").write_text("checks: checks\n")
    assert site.load(tmp_path, {}).checks_folder(tmp_path) == tmp_path / "checks"
