"""The plan: what decides a digest, what does not, and what each Containerfile looks like."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from imagebuild.errors import InputError
from imagebuild.plan.inputs import Part, inputs_digest
from imagebuild.plan.targets import descendants, with_ancestors
from imagebuild.run.smoke import Suite
from tests.projects import MATRIX, ROOT, plan, project

TARGETS = ["base-cpu", "train-cpu", "diag-tools-cpu", "inference-cpu"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return project(tmp_path)


def digests(folder: Path) -> dict[str, str]:
    planned = plan(folder)
    return {name: planned[name].digest for name in planned.targets}


def changed(folder: Path, before: dict[str, str]) -> set[str]:
    after = digests(folder)
    return {name for name in before if before[name] != after[name]}


def row(*names: str) -> set[str]:
    return {f"{stage}-{name}" for name in names for stage in ("base", "train", "diag-tools", "inference")}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_the_same_project_elsewhere_has_the_same_digests(tmp_path: Path) -> None:
    one, other = project(tmp_path / "one"), project(tmp_path / "some" / "where else")
    for path in other.rglob("*"):
        os.utime(path, (0, 0))
    assert digests(one) == digests(other)


def test_comments_and_moved_lines_change_nothing(folder: Path) -> None:
    before = digests(folder)
    edit(folder / "matrix.yaml", "rows:\n", "# a comment\n\nrows:\n")
    assert changed(folder, before) == set()


def test_a_budget_changes_no_image_and_no_smoke_result(folder: Path) -> None:
    before, target = digests(folder), plan(folder).targets["train-cpu"]
    tested = Suite.load(folder, "train").digest(target.row)
    edit(folder / "matrix.yaml", "cpu: {variant: cpu,", "cpu: {variant: cpu, budgets: {train: 1g},")
    assert plan(folder).targets["train-cpu"].row.budgets
    assert changed(folder, before) == set()
    assert Suite.load(folder, "train").digest(plan(folder).targets["train-cpu"].row) == tested


def test_a_version_changes_its_stage_and_what_is_built_from_it(folder: Path) -> None:
    before = digests(folder)
    edit(folder / "matrix.yaml", "cpu: {variant: cpu, torch: 2.13.0}", "cpu: {variant: cpu, torch: 2.12.1}")
    assert changed(folder, before) == row("cpu") - {"base-cpu"}


def test_the_release_version_changes_no_image(folder: Path) -> None:
    before = digests(folder)
    edit(folder / "matrix.yaml", "version: 1.0.0", "version: 1.0.1")
    assert changed(folder, before) == set()


def test_the_epoch_changes_every_image(folder: Path) -> None:
    before = digests(folder)
    edit(folder / "matrix.yaml", "epoch: 2026-11-30", "epoch: 2026-12-01")
    assert changed(folder, before) == set(before)


def test_shared_macros_and_package_lists_are_inputs(folder: Path) -> None:
    before = digests(folder)
    edit(folder / "images" / "base" / "rootfs-packages.txt", "tini", "tini\nless")
    assert changed(folder, before) == row("cpu", "cu128")
    before = digests(folder)
    macros = folder / "templates" / "macros.j2"
    macros.write_text(macros.read_text().replace("set -eu;", "set -e -u;"))
    assert {"train-cpu", "train-cu118"} <= changed(folder, before)


def test_bytes_mode_and_path_of_context_files_are_inputs_and_times_are_not(folder: Path) -> None:
    file = folder / "images" / "diag-tools" / "files" / "note.txt"
    before = digests(folder)
    file.parent.mkdir(exist_ok=True)
    file.write_text("one")
    assert changed(folder, before) == {"diag-tools-cpu", "diag-tools-cu128", "diag-tools-cu118"}
    before = digests(folder)
    os.utime(file, (0, 0))
    assert changed(folder, before) == set()
    file.chmod(0o755)
    assert changed(folder, before)
    before = digests(folder)
    file.rename(file.with_name("other.txt"))
    assert changed(folder, before)


def test_links_in_a_context_are_refused(folder: Path) -> None:
    (folder / "images" / "train" / "files").mkdir(exist_ok=True)
    (folder / "images" / "train" / "files" / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="link"):
        digests(folder)


def test_smoke_checks_are_no_input(folder: Path) -> None:
    before = digests(folder)
    (folder / "images" / "train" / "smoke" / "99-more.py").write_text("pass\n")
    assert changed(folder, before) == set()


def test_a_digest_is_over_names_and_values_only() -> None:
    parts = [Part("a", "1", "x"), Part("b", "2", "y")]
    assert inputs_digest(parts) == inputs_digest([Part("b", "2", "other"), Part("a", "1", "place")])
    assert inputs_digest(parts) != inputs_digest([Part("a", "2", "x"), Part("b", "1", "y")])
    with pytest.raises(ValueError, match="same name"):
        inputs_digest([*parts, parts[0]])


def test_addresses_are_legal_tags_and_the_containerfile_carries_the_digest(folder: Path) -> None:
    planned = plan(folder)
    for name in planned.targets:
        one = planned[name]
        assert re.fullmatch(rf"{one.target.row.name}-in-[0-9a-f]{{16}}", one.tag)
        assert one.containerfile.endswith(f'LABEL io.buildkit.inputs-digest="{one.digest}"\n')
        for parent in one.target.parents:
            assert f"FROM {planned[parent].local_name}" in one.containerfile or parent == f"base-{one.target.row.name}"


def test_order_and_ancestors(folder: Path) -> None:
    targets = plan(folder).targets
    assert with_ancestors(targets, ["inference-cpu"]) == ["base-cpu", "train-cpu", "inference-cpu"]
    assert set(descendants(targets, "base-cpu")) == {"train-cpu", "diag-tools-cpu", "inference-cpu"}


@pytest.mark.parametrize(
    ("template", "line", "said"),
    [
        ("FROM scratch\nLABEL x={{ row.torhc }}\n", 2, "torhc"),
        ("FROM scratch\n\nLABEL x={{ nothing }}\n", 3, "'nothing' is undefined"),
        ("FROM scratch\n{% if row.torch %}\n", 2, "Unexpected end of template"),
        ("FROM scratch\n{{ row.torch.__class__.__mro__ }}\n", 2, "unsafe"),
        ("{{ ''.__class__ }}\n", 1, "unsafe"),
        ("\n{{ 1 / 0 }}\n", 2, "division by zero"),
        ("{% for i in range(999999999) %}{% endfor %}\n", 1, "Range too big"),
        ("{% include 'none.j2' %}\n", 0, "no such template"),
        ("{% include '../matrix.yaml' %}\n", 0, "no such template"),
    ],
)
def test_template_faults_name_the_template_line(folder: Path, template: str, line: int, said: str) -> None:
    (folder / "templates" / "base.Containerfile.j2").write_text(template)
    with pytest.raises(InputError) as caught:
        plan(folder)["base-cpu"]
    problem = caught.value.problems[0]
    assert said in str(problem)
    assert problem.location is not None
    assert problem.location.line == line
    if line:
        assert problem.location.file == "templates/base.Containerfile.j2"


def test_a_template_among_the_files_is_rendered_for_the_row(folder: Path) -> None:
    """It knows the row and the facts, and what it says is in the digest."""
    path = folder / "images/train/files/about.json.j2"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{{ {"row": row.name} | tojson }} {{ known(["driver", "nothing"]) | tojson }}\n')
    planned = plan(folder)
    for row_name, said in (("cpu", "{}"), ("cu128", '{"driver": "525.60.13"}')):
        files = {file.path: file for file in planned[f"train-{row_name}"].context}
        assert files["files/about.json"].data.decode() == f'{{"row": "{row_name}"}} {said}\n'
    before = digests(folder)
    edit(path, "row.name", "row.python")
    assert changed(folder, before) == {f"{stage}-{name}" for stage in ("train", "diag-tools", "inference")
                                       for name in ("cpu", "cu128", "cu118")}  # fmt: skip
    path.write_text("{{ row.torhc }}")
    with pytest.raises(InputError, match="torhc") as caught:
        plan(folder)["train-cpu"]
    assert str(caught.value.problems[0].location).startswith("images/train/files/about.json.j2:1")
    (path.parent / "about.json").write_text("{}")
    with pytest.raises(InputError, match="is there too"):
        plan(folder)["train-cpu"]


def test_values_meet_the_shell_quoted(folder: Path) -> None:
    template = folder / "templates" / "base.Containerfile.j2"
    template.write_text('FROM scratch\nRUN echo {{ "a\'; rm -rf /" | sh }}\n')
    assert """RUN echo 'a'"'"'; rm -rf /'""" in plan(folder)["base-cpu"].containerfile


def test_an_os_that_cannot_be_bootstrapped_is_refused_at_its_line(tmp_path: Path) -> None:
    folder = project(tmp_path, MATRIX.replace("cpu: {variant: cpu", "cpu: {os: rockylinux8, variant: cpu"))
    with pytest.raises(InputError, match="bootstrap does not work for rockylinux8"):
        plan(folder)["base-cpu"]


def hadolint(path: Path, containerfile: str) -> subprocess.CompletedProcess[str]:
    """What hadolint says of a Containerfile; `path` is where to write it."""
    path.write_text(containerfile)
    linter = ROOT / ".venv" / "bin" / "hadolint"
    command = [linter if linter.exists() else "hadolint", "--config", ROOT / ".hadolint.yaml", path]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", sorted(plan(ROOT).targets))
def test_every_rendered_containerfile_passes_hadolint(name: str, tmp_path: Path) -> None:
    done = hadolint(tmp_path / "Containerfile", plan(ROOT)[name].containerfile)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_row_with_tensorrt_has_its_libraries_found_and_taken_along(folder: Path, tmp_path: Path) -> None:
    text = (folder / "matrix.yaml").read_text()
    (folder / "matrix.yaml").write_text(text.replace("variant: cu128", "variant: cu128, tensorrt: 10.14.1.48"))
    planned = plan(folder)
    assert "-name tensorrt_libs" in planned["train-cu128"].containerfile
    assert "--to /slim onnxruntime-gpu numpy tensorrt-cu12\n" in planned["inference-cu128"].containerfile
    for name in ("train-cu128", "inference-cu128"):
        done = hadolint(tmp_path / "Containerfile", planned[name].containerfile)
        assert done.returncode == 0, done.stdout + done.stderr
