"""A copy of this project in a Git repository of its own: for its demo, and for its real pipeline."""

from __future__ import annotations

import fnmatch
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
GITLAB_CI_LOCAL = ROOT / ".buildkit/npm/node_modules/.bin/gitlab-ci-local"


@dataclass(frozen=True)
class PipelineRun:
    """The outcome of one pipeline: `passed`, `failed` and what was printed."""

    returncode: int
    output: str

    def jobs(self, verdict: str) -> set[str]:
        """Names of the jobs that the closing summary lists as `verdict` (PASS, FAIL)."""
        words = [line.replace("[images] -> ", "").split() for line in self.output.splitlines()]
        return {line[1] for line in words if len(line) >= 2 and line[0] == verdict}


@dataclass(frozen=True)
class GitlabProject:
    """A Git repository at `folder`, on the branch `main`, with GitLab's variables as `variables`."""

    folder: Path
    variables: dict[str, str]

    def run(self, *arguments: str, timeout: float = 120) -> PipelineRun:
        """Run the pipeline to its end; `arguments` go to gitlab-ci-local (`--manual JOB`)."""
        if not GITLAB_CI_LOCAL.exists():
            raise RuntimeError(f"no {GITLAB_CI_LOCAL}: scripts/setup --test installs it")
        (self.folder / ".gitlab-ci-local-variables.yml").write_text(yaml.safe_dump(self.variables))
        home = self.folder / ".buildkit" / "home"
        command = [GITLAB_CI_LOCAL, "--shell-executor-no-image", "--no-color", "--home", home, *arguments]
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.folder,
            env=os.environ | {"MYPY_CACHE_DIR": str(ROOT / ".mypy_cache"), "NO_COLOR": "1", "FORCE_COLOR": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        return PipelineRun(done.returncode, done.stdout)


def _commit(message: str) -> list[str]:
    return ["-c", "user.name=tests", "-c", "user.email=tests@example.invalid", "commit", "-q", "-a", "-m", message]


def change(folder: Path, name: str, old: str, new: str) -> None:
    """Change one text in one file of a copy, and commit that, as the newest of the default branch."""
    text = (folder / name).read_text(encoding="utf-8")
    assert old in text, f"{name} has no {old!r}"
    (folder / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    for words in (_commit(f"Change {name}"), ["update-ref", "refs/remotes/origin/main", "HEAD"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


def make_repository(folder: Path) -> None:
    """Make `folder` a Git repository with everything in it committed on `main`, which is the default branch."""
    for words in (
        ["init", "-q", "-b", "main"],
        ["remote", "add", "origin", "https://gitlab.example.invalid/robots/buildkit.git"],
        ["add", "."],
        _commit("A copy for a test"),
        ["update-ref", "refs/remotes/origin/main", "HEAD"],
        ["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)


def copy_project(folder: Path, *, lend_venv: bool = True, without: str = "") -> None:
    """Copy what Git knows or would add, but for what the glob `without` matches.

    The copy makes its own Python environment or is lent this one.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not fnmatch.fnmatch(name, without):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    make_repository(folder)
    if lend_venv:
        (folder / ".venv").symlink_to(ROOT / ".venv")
