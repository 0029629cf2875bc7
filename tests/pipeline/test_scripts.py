"""The scripts that set a machine up: what they are made of, and that a second run changes nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = ["setup", "demo", "test", "lint", "clean"]


def script(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts" / name, *arguments],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_scripts_pass_shellcheck() -> None:
    files = [*sorted((ROOT / "scripts").iterdir()), ROOT / ".ci/run"]
    done = subprocess.run([ROOT / ".venv/bin/shellcheck", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_the_script_and_does_nothing_else(name: str) -> None:
    done = script(name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: scripts/{name}")
    assert done.stderr == ""


@pytest.mark.parametrize("name", ["setup", "demo", "clean"])
def test_an_unknown_option_is_refused_before_anything_is_done(name: str) -> None:
    done = script(name, "--frobnicate")
    assert done.returncode == 2
    assert "--frobnicate" in done.stderr
    assert "hint: " in done.stderr


def test_setup_says_nothing_where_all_is_there() -> None:
    assert script("setup", "--test").returncode == 0
    again = script("setup", "--test")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_setup_for_ones_own_podman_starts_none(tmp_path: Path) -> None:
    socket = f"unix://{tmp_path}/nobody-listens.sock"
    done = script("setup", BUILDKIT_PODMAN=socket, BUILDKIT_SERVICE_USER="bk-must-not-be-made")
    assert done.returncode == 0, done.stderr
    assert "starting" not in done.stderr
    users = Path("/etc/passwd").read_text()
    assert "bk-must-not-be-made" not in users


def test_ci_runs_exactly_scripts_test() -> None:
    code = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    assert len(code) == 1
    assert code[0].endswith('/../scripts/test"')
