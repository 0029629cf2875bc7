"""Bootstraps root filesystems with mmdebstrap, the same bytes for the same packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock

from imagebuild.errors import WorkError
from imagebuild.plan.rootfs import RootfsRecipe


def rootfs(recipe: RootfsRecipe, sources: str, cache: Path, on_line: Callable[[str], None]) -> Path:
    """A tar of the root filesystem that a recipe describes, made now or found in `cache`.

    Args:
        recipe: what to make.
        sources: a sources.list for its release.
        cache: the folder that keeps what was made.
        on_line: gets each line of mmdebstrap's log.

    Raises:
        WorkError: mmdebstrap is missing or failed.
    """
    path = cache / f"{recipe.os}-{recipe.digest.removeprefix('sha256:')[:16]}.tar"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.exists():
            _make(recipe, sources, path, on_line)
    return path


def _make(recipe: RootfsRecipe, sources: str, path: Path, on_line: Callable[[str], None]) -> None:
    program = shutil.which("mmdebstrap")
    if not program:
        raise WorkError("mmdebstrap is not installed", hint="run scripts/setup, or name an image in the row's `base:`")
    with tempfile.TemporaryDirectory(prefix=".bootstrap-", dir=path.parent) as folder:
        unfinished = Path(folder) / "rootfs.tar"
        command = [program, *recipe.options, recipe.suite, str(unfinished), "-"]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(recipe.timestamp), "LC_ALL": "C.UTF-8"}
        _run(command, sources, environment, on_line)
        unfinished.replace(path)


def _run(command: Sequence[str], sources: str, environment: dict[str, str], on_line: Callable[[str], None]) -> None:
    """Run mmdebstrap; end it with its children when the caller is interrupted."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    assert process.stdin and process.stdout  # noqa: S101, PT018  (they are pipes)
    last = ""
    try:
        process.stdin.write(sources)
        process.stdin.close()
        for line in process.stdout:
            last = line.strip() or last
            on_line(line.rstrip())
        code = process.wait()
    except BaseException:
        process.terminate()  # mmdebstrap unmounts and removes what it made
        process.wait()
        raise
    if code:
        raise WorkError(f"mmdebstrap failed with exit code {code}: {last}")
