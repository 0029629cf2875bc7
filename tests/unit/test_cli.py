"""The command line as a user meets it: help, errors, exit codes, JSON, completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import buildkit
from imagebuild.cli import failure
from imagebuild.errors import GateError, InputError, Location, Problem, WorkError
from tests.projects import plan, project

CLOSED_REGISTRY = "127.0.0.1:1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BUILDKIT_REGISTRY", CLOSED_REGISTRY)
    monkeypatch.setenv("BUILDKIT_PODMAN", "unix:///no/such/socket")
    return project(tmp_path)


def call(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run buildkit in a process of its own."""
    done = subprocess.run(
        [sys.executable, buildkit.__file__, "-C", str(folder), *arguments], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def commands() -> list[tuple[str, ...]]:
    names: list[tuple[str, ...]] = []
    for name in buildkit.COMMANDS:
        command = buildkit.cli.get_command(click.Context(buildkit.cli), name)
        names.append((name,))
        if isinstance(command, click.Group):
            names += [(name, inner) for inner in command.commands]
    return names


@pytest.mark.parametrize("name", commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(name: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(buildkit.cli, [*name, "--help"], prog_name="buildkit").output
    assert "Example" in shown or len(name) == 2
    assert f"buildkit {' '.join(name)}" in shown


def test_the_list_of_commands_says_what_the_commands_say() -> None:
    for name, (_, text) in buildkit.COMMANDS.items():
        command = buildkit.cli.get_command(click.Context(buildkit.cli), name)
        assert command is not None
        assert (command.help or "").startswith(text.removesuffix("."))


def test_help_loads_no_room_of_the_library() -> None:
    code = (
        "import sys, buildkit; buildkit.main(['--help']); print([m for m in sys.modules if m.startswith('imagebuild')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_build_that_is_up_to_date_loads_no_engine(folder: Path) -> None:
    code = (
        "import sys, buildkit; from imagebuild.run import decide;"
        "decide._in_registry = lambda planned, *_: {one.name: 'sha256:' + '0' * 64 for one in planned};"
        "code = buildkit.main(sys.argv[1:]); print(code, 'podman' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, "-C", str(folder), "build", "cpu"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.splitlines()[-1] == "0 False"
    assert done.stderr.count("up to date: in the registry as cpu-in-") == 4


def test_wrong_input_exits_2_with_its_place(folder: Path) -> None:
    matrix = folder / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("torch: 2.13.0", "torch: 2.13.x"))
    for arguments in (["list"], ["build", "cpu"], ["explain", "train-cpu"], ["promote", "train-cpu"]):
        code, out, err = call(folder, *arguments)
        assert code == 2
        assert out == ""
        assert "matrix.yaml:7:30: row cpu: `torch`: '2.13.x' is not a version" in err
        assert "hint:" in err


def test_a_wrong_name_exits_2_with_the_nearest(folder: Path) -> None:
    code, _, err = call(folder, "build", "tain-cpu")
    assert (code, "did you mean train-cpu?" in err) == (2, True)
    code, _, err = call(folder, "biuld")
    assert (code, "Did you mean 'build'?" in err) == (2, True)
    code, _, err = call(folder, "build")
    assert code == 2
    code, _, err = call(folder / "nowhere", "list")
    assert (code, "matrix.yaml: no such file" in err) == (2, True)


def test_a_registry_that_is_down_fails_a_push_before_any_work(folder: Path) -> None:
    code, _, err = call(folder, "build", "--push", "train-cpu")
    assert code == 1
    assert CLOSED_REGISTRY in err
    assert not (folder / ".buildkit" / "logs").exists()
    for command in (["promote", "train-cpu"], ["rollback", "train-cpu"], ["history"], ["summary", "cpu"]):
        code, _, err = call(folder, *command)
        assert (code, CLOSED_REGISTRY in err) == (1, True), command


def test_an_engine_that_is_down_is_said(folder: Path) -> None:
    code, _, err = call(folder, "build", "train-cpu")
    assert code == 1
    assert "no answer from Podman at unix:///no/such/socket" in err
    assert "hint:" in err


def test_json_of_what_reads(folder: Path) -> None:
    _, out, _ = call(folder, "list", "--json", "cpu")
    listed = json.loads(out)
    assert [one["name"] for one in listed["targets"]] == ["base-cpu", "train-cpu", "diag-tools-cpu", "inference-cpu"]
    _, out, _ = call(folder, "graph", "--json", "train-cpu")
    assert json.loads(out) == {"base-cpu": [], "train-cpu": ["base-cpu"]}
    _, out, _ = call(folder, "explain", "--json", "train-cpu")
    parts = {part["name"]: part["origin"] for part in json.loads(out)[0]["parts"]}
    assert parts["containerfile"] == "templates/train.Containerfile.j2"
    values = {part["name"]: part["origin"] for part in json.loads(out)[0]["values"]}
    assert values["torch"] == "matrix.yaml:7:30"


def test_render_to_a_folder(folder: Path) -> None:
    code, out, _ = call(folder, "render", "-o", str(folder / "out"), "*-cu118")
    assert code == 0
    assert len(out.splitlines()) == 4
    assert "nvidia/cuda:11.8.0-cudnn8-devel-rockylinux8" in (folder / "out" / "base-cu118.Containerfile").read_text()


def test_completion_knows_targets_and_groups(folder: Path) -> None:
    environment = {**os.environ, "_BUILDKIT_COMPLETE": "bash_complete", "COMP_WORDS": "buildkit build trai",
                   "COMP_CWORD": "2", "BUILDKIT_PROJECT": str(folder)}  # fmt: skip
    done = subprocess.run(
        [sys.executable, buildkit.__file__], env=environment, capture_output=True, text=True, check=False
    )
    assert {line.split(",")[1] for line in done.stdout.splitlines()} == {"train-cpu", "train-cu118", "train-cu128"}
    assert "buildkit_completion" in CliRunner().invoke(buildkit.cli, ["completion", "bash"], obj=".").output


def test_a_closed_pipe_is_no_error(folder: Path) -> None:
    done = subprocess.run(f"{sys.executable} {buildkit.__file__} -C {folder} schema | head -1; exit ${{PIPESTATUS[0]}}",
                          shell=True, executable="/bin/bash", capture_output=True, text=True, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError(Problem("x", Location("f", 1, 2))), 2),
        (WorkError("x"), 1),
        (GateError("x"), 3),
        (OSError(28, "No space"), 1),
        (RuntimeError("x"), 1),
    ],
)
def test_exit_codes(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert failure.show(error) == code
    assert ("bug in buildkit" in capsys.readouterr().err) == isinstance(error, RuntimeError)


def test_run_prints_a_command_line_to_keep(folder: Path) -> None:
    code, out, _ = call(
        folder, "run", "--print", "--workspace", str(folder), "train-cpu", "--", "python", "-c", "print('a b')"
    )
    assert code == 0
    assert "--shm-size=8g" in out
    assert "--userns=keep-id:uid=1000,gid=1000" in out
    assert out.rstrip().endswith("""python -c 'print('"'"'a b'"'"')'""")
    assert f"/train:{plan(folder)['train-cpu'].tag} python -c" in out
    assert "--gpus" not in out
