"""Checkpoints of a run: everything that belongs together in one folder, which is there as a whole or not at all.

    RUN/checkpoints/step-000020480/
        checkpoint.json     steps, configuration, and the SHA-256 of each file
        model.zip           the policy, its optimiser, and how far the schedule is
        vecnormalize.pkl    the statistics of the normalisation, if the run normalises
        replay_buffer.pkl   of SAC

A folder is written under another name, forced to the disk, and then renamed, which no kill can interrupt.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

MANIFEST = "checkpoint.json"
MODEL = "model.zip"
STATISTICS = "vecnormalize.pkl"
REPLAY = "replay_buffer.pkl"
_FORMAT = 1
_PART, _OLD = ".part-", ".old-"


class CheckpointError(Exception):
    """There is no checkpoint where one is needed, or it is not what was written."""


class Checkpoint:
    """A complete checkpoint on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{folder} is not a checkpoint: {error}") from None

    @property
    def steps(self) -> int:
        """How many steps of the environments it has behind it."""
        return int(self.manifest["steps"])

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of the run, with all defaults."""
        config: dict[str, Any] = self.manifest["config"]
        return config

    @property
    def is_normalised(self) -> bool:
        """Whether the policy sees normalised observations, or rewards."""
        normalise = self.config["normalise"]
        return bool(normalise["observations"] or normalise["rewards"])

    def file(self, name: str) -> Path:
        """Return the path of a file, if it is there and is the one that was written with the others.

        Raises:
            CheckpointError: it is missing, or is another one.
        """
        path = self.folder / name
        if not path.is_file():
            raise CheckpointError(f"{path} is missing: it belongs to the policy; take the checkpoint as a whole")
        if _sha256(path) != self.manifest["files"].get(name):
            hint = "take the checkpoint as a whole, not files of several"
            raise CheckpointError(f"{path} is not the file that was written with this checkpoint: {hint}")
        return path


class Run:
    """The folder of a run: its checkpoints, and a lock, so that no two processes train in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._checkpoints = folder / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        """Where the event files are."""
        return self.folder / "tensorboard"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run, and remove what a killed process left half-written.

        Raises:
            CheckpointError: another process trains there, or the folder cannot be written.
        """
        try:
            self._checkpoints.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / ".lock").open("a")
        except OSError as error:
            hint = "give --run a folder of yours (in a container: --userns=keep-id:uid=1000,gid=1000)"
            raise CheckpointError(f"cannot write to {self.folder} ({error.strerror}): {hint}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CheckpointError(f"another process trains in {self.folder}: give --run another folder") from None
            for rest in self._checkpoints.glob(".*-*"):
                shutil.rmtree(rest, ignore_errors=True)
            yield

    def all(self) -> list[Checkpoint]:
        """Return the checkpoints, oldest first."""
        return [Checkpoint(folder) for folder in sorted(self._checkpoints.glob("step-*"))]

    def newest(self) -> Checkpoint | None:
        """Return the last checkpoint, if there is one."""
        found = self.all()
        return found[-1] if found else None

    def write(
        self, steps: int, config: Mapping[str, Any], files: Mapping[str, Callable[[Path], None]], *, keep: int
    ) -> Checkpoint:
        """Write a checkpoint, then remove the oldest ones.

        Args:
            steps: what it has behind it.
            config: the configuration of the run.
            files: name -> what writes it to a path.
            keep: how many checkpoints may stay, this one included.
        """
        final = self._checkpoints / f"step-{steps:012d}"
        if not final.exists():
            part = self._checkpoints / f"{_PART}{steps}"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            for name, write in files.items():
                write(part / name)
            digests = {name: _sha256(part / name) for name in files}
            manifest = {"format": _FORMAT, "steps": steps, "config": config, "files": digests}
            (part / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
            for path in [*part.iterdir(), part]:
                _force(path)
            part.rename(final)
            _force(self._checkpoints)
        for old in self.all()[:-keep]:
            gone = old.folder.with_name(_OLD + old.folder.name)
            old.folder.rename(gone)  # out of sight first: a half-removed folder is no checkpoint
            shutil.rmtree(gone, ignore_errors=True)
        return Checkpoint(final)


def find(path: Path) -> Checkpoint:
    """Return the checkpoint at a path, or the newest one of the run there.

    Raises:
        CheckpointError: there is none.
    """
    if (path / MANIFEST).is_file():
        return Checkpoint(path)
    newest = Run(path).newest()
    if newest is None:
        raise CheckpointError(f"there is no checkpoint in {path}: give the folder of a run, or of one checkpoint")
    return newest


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _force(path: Path) -> None:
    """Force a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
