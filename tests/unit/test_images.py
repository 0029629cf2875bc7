"""The Python that goes into images: what slim.py copies, and how a smoke check ends."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

IMAGES = Path(__file__).parents[2] / "images"
CHECKS = sorted(IMAGES.glob("*/smoke/[0-9][0-9]-*.py"))


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def slim() -> ModuleType:
    return load(IMAGES / "inference/files/slim.py")


@pytest.fixture
def site_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five distributions: runtime -> Fast.Array (and an extra -> torch), Fast.Array -> tiny_dep; torch -> tiny-dep."""
    folder = tmp_path / "site-packages"

    def distribution(name: str, requires: list[str], files: dict[str, str]) -> None:
        info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        lines = [
            "Metadata-Version: 2.1",
            f"Name: {name}",
            "Version: 1.0",
            *(f"Requires-Dist: {line}" for line in requires),
        ]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        for relative, text in files.items():
            path = folder / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (info / "RECORD").write_text("".join(f"{path},,\n" for path in [*files, f"{info.name}/METADATA"]))

    package = {"__init__.py": "x = 1\n", "tests/test_x.py": "", "stub.pyi": "", "data.bin": "d"}
    distribution(
        "runtime",
        ["fast-array>=1 ; python_version >= '3'", 'torch ; extra == "train"', "not-on-this-platform"],
        {f"runtime/{name}": text for name, text in package.items()},
    )
    distribution("Fast.Array", ["tiny_dep (>=0.1)"], {"fast_array.py": ""})
    distribution("tiny-dep", [], {"tiny_dep.py": ""})
    distribution("torch", ["tiny-dep"], {"torch.py": ""})
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    return folder


@pytest.mark.usefixtures("site_packages")
def test_closure_follows_requirements_and_leaves_out_extras_and_what_is_not_installed(slim: ModuleType) -> None:
    assert [found.name for found in slim.closure(["runtime"])] == ["Fast.Array", "runtime", "tiny-dep"]


@pytest.mark.usefixtures("site_packages")
def test_a_root_that_is_not_installed_is_an_error(slim: ModuleType) -> None:
    with pytest.raises(ModuleNotFoundError):
        slim.closure(["runtime", "absent"])


def test_files_of_a_distribution_come_with_bytecode_and_without_tests_and_stubs(
    slim: ModuleType, site_packages: Path
) -> None:
    cache = site_packages / "runtime/__pycache__"
    cache.mkdir()
    (cache / f"__init__.{sys.implementation.cache_tag}.pyc").write_text("")
    (cache / "__init__.cpython-20.pyc").write_text("")
    files = {
        path.relative_to(site_packages).as_posix() for path in slim.distribution_files(slim.closure(["runtime"])[1])
    }
    assert files == {
        "runtime/__init__.py",
        "runtime/data.bin",
        f"runtime/__pycache__/__init__.{sys.implementation.cache_tag}.pyc",
        "runtime-1.0.dist-info/METADATA",
    }


def test_a_link_is_copied_with_its_target_at_the_place_where_that_really_is(slim: ModuleType, tmp_path: Path) -> None:
    real = tmp_path / "usr/lib"
    real.mkdir(parents=True)
    (real / "libx.so.1.2").write_text("x")
    (real / "libx.so.1").symlink_to("libx.so.1.2")
    (tmp_path / "lib").symlink_to("usr/lib")
    root = slim.Root(tmp_path / "new")
    root.add(tmp_path / "lib/libx.so.1")
    copied = root.top / real.relative_to("/")
    assert (copied / "libx.so.1").readlink() == Path("libx.so.1.2")
    assert (copied / "libx.so.1.2").read_text() == "x"
    assert not (root.top / tmp_path.relative_to("/") / "lib").exists()


def test_needed_libraries_are_the_ones_that_the_loader_finds(slim: ModuleType) -> None:
    names = {path.name for path in slim.needed_libraries([Path(os.path.realpath(sys.executable)), Path(__file__)])}
    assert any(name.startswith("libc.so") for name in names)
    assert any(name.startswith("ld-linux") for name in names)


def check(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    expected = {"row": {"variant": "cu118", "python": "3.11"}, "shm_bytes": 1}
    (tmp_path / "expect.json").write_text(json.dumps(expected))
    return subprocess.run(
        [sys.executable, "-c", f"import smokelib\n{code}"],
        env={**os.environ, "SMOKE_DIR": str(tmp_path), "PYTHONPATH": str(IMAGES / "common/smoke")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_check_passes_skips_and_fails_by_its_exit_code(tmp_path: Path) -> None:
    assert check("smokelib.equal('cuda', smokelib.cuda(), '11.8', 'todo')", tmp_path).returncode == 0
    skipped = check("smokelib.skip('no GPU here')", tmp_path)
    assert (skipped.returncode, skipped.stdout) == (77, "skip: no GPU here\n")
    failed = check("smokelib.equal('torch', '2.0', '2.1', 'rebuild')", tmp_path)
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "torch is 2.0, not 2.1: rebuild"


def test_a_missing_artifact_says_which_image_to_test_first(tmp_path: Path) -> None:
    failed = check("smokelib.artifact('policy.onnx')", tmp_path)
    assert failed.returncode == 1
    assert "train image" in failed.stderr


@pytest.mark.parametrize("path", CHECKS, ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_every_check_says_what_it_proves(path: Path) -> None:
    code = compile(path.read_text(), str(path), "exec")
    assert isinstance(code.co_consts[0], str)
    assert code.co_consts[0].endswith(".")


@pytest.mark.parametrize("path", CHECKS, ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_every_check_fails_by_the_function_that_wants_a_remedy(path: Path) -> None:
    """`smokelib.fail` and the like take what is wrong and what to do; an exit of the check's own says half of it."""
    assert not re.search(r"\b(sys\.exit|SystemExit|os\._exit|exit)\(", path.read_text())


def test_every_stage_has_checks() -> None:
    assert {path.parts[-3] for path in CHECKS} == {"base", "train", "diag-tools", "inference", "common"}
