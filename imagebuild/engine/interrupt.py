"""Ends the RUN step of a build that nobody waits for any more.

Podman notices that its client is gone only between two steps, so the step's process is ended here;
Podman then removes the build's container by itself. It works where the service is on this machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_STEP = "STEP "


def run_command(step_line: str) -> str | None:
    """The shell command of a log line such as `STEP 3/9: RUN --mount=... apt-get update`; None for other lines."""
    if not step_line.startswith(_STEP):
        return None
    _, _, instruction = step_line.partition(": ")
    keyword, _, rest = instruction.partition(" ")
    if keyword.upper() != "RUN":
        return None
    words = rest.split()
    while words and words[0].startswith("--"):
        words.pop(0)
    return " ".join(words)


def end_step(step_line: str, started: float) -> int:
    """Kill the container process of a RUN step that began at `started` (seconds since the epoch).

    It is told from others by its command and by its age: the caller holds the target's lock, so no other
    build is at the same step. Returns how many processes were killed.
    """
    command = run_command(step_line)
    if not command:
        return 0
    killed = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_step(entry, command, started):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
    return killed


def _is_step(process: Path, command: str, started: float) -> bool:
    """Whether a process is a shell whose whole command is the step's, and no older than the step."""
    try:
        arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        if process.stat().st_mtime < started - 2:
            return False
        in_container = (process / "ns" / "pid").readlink() != Path("/proc/self/ns/pid").readlink()
    except OSError:
        return False
    return in_container and len(arguments) > 2 and " ".join(arguments[-2].split()) == command
