"""What the probes may look at. Tests give them other roots, environments and answers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

TIMED_OUT = 124  # as timeout(1) says it


@dataclass(frozen=True)
class Answer:
    """What a command said: its exit code, and its two streams."""

    code: int
    out: str
    err: str = ""


def _run(command: Sequence[str], timeout: float) -> Answer:
    """Run a command to its end, or for ``timeout`` seconds; one that is not there answers 127."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
                              check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return Answer(TIMED_OUT, "", f"no answer in {timeout:.0f} s")
    except OSError as error:
        return Answer(127, "", str(error))
    return Answer(done.returncode, done.stdout, done.stderr)


def _opens(path: Path) -> int:
    """Open a device and close it again; return 0, or the errno of the refusal."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or -1
    return 0


def _space(path: Path) -> tuple[int, int]:
    """Return the size of the file system at a path and what is free there, in bytes."""
    found = os.statvfs(path)
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


def _now() -> datetime:
    return datetime.now(timezone.utc)  # noqa: UP017  (the images' Python may be older than 3.11)


@dataclass(frozen=True)
class Inputs:
    """Files below ``root``, variables, and the few calls that files cannot answer."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    opens: Callable[[Path], int] = _opens
    space: Callable[[Path], tuple[int, int]] = _space
    run: Callable[[Sequence[str], float], Answer] = _run
    now: Callable[[], datetime] = _now
    promised: Mapping[str, Any] = field(default_factory=dict)

    def at(self, path: str) -> Path:
        """Return where an absolute path lies below the root."""
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str:
        """Return what a file says, without the space around it; nothing where it cannot be read."""
        try:
            return self.at(path).read_text(encoding="utf-8", errors="replace").replace("\0", "").strip()
        except OSError:
            return ""

    def fact(self, name: str) -> Any:
        """Return what the facts say of this row's image, or None."""
        return self.promised.get("facts", {}).get(name)


@dataclass(frozen=True)
class Line:
    """One line of the page; ``state`` is ok, note (worth knowing) or wrong (mend it)."""

    section: str
    name: str
    value: str
    state: str = "ok"
    remedy: str = ""
