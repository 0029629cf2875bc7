"""What buildkit remembers in a project's `.buildkit` folder: logs, builds, smoke results. All of it can be lost."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

FOLDER_NAME = ".buildkit"


@dataclass(frozen=True)
class BuildRecord:
    """The last build of a target on this machine: what went in, what came out, how long it took (seconds)."""

    target: str
    digest: str
    image_id: str
    seconds: float
    size: int
    parts: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)


class State:
    """The folder and its parts."""

    def __init__(self, project: Path, name: str = FOLDER_NAME) -> None:
        self.folder = project / name

    def path(self, *parts: str) -> Path:
        """A path in the folder, whose parents exist."""
        path = self.folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def log(self, target: str, task: str) -> Path:
        """Where the log of a target's build, smoke test or push is."""
        return self.path("logs", f"{target}.{task}.log")

    def lock(self, target: str) -> FileLock:
        """Held while a target is being built, so that two calls do not build it at once."""
        return FileLock(self.path("locks", f"{target}.lock"))

    def last_build(self, target: str) -> BuildRecord | None:
        """The record of a target's last build here, if there is a readable one."""
        value = self._read("builds", f"{target}.json")
        try:
            return BuildRecord(**value) if value else None
        except TypeError:  # written by another version
            return None

    def remember_build(self, record: BuildRecord) -> None:
        """Keep the record of a build."""
        self.write(("builds", f"{record.target}.json"), json.dumps(asdict(record), indent=1).encode())

    def write(self, parts: tuple[str, ...], data: bytes) -> Path:
        """Write a file whole or not at all."""
        path = self.path(*parts)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
            file.write(data)
        Path(file.name).replace(path)
        return path

    def _read(self, *parts: str) -> dict[str, Any] | None:
        try:
            value = json.loads(self.folder.joinpath(*parts).read_bytes())
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None
