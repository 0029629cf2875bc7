"""A live Python process to look into, and tools to look with."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import smokelib

#: Recognisable in a stack, opens a socket, does system calls, uses the CPU.
PROGRAM = """
import os, socket, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def busy_with_a_name():
    while True:
        sum(range(10_000))
        os.stat("/workspace")
        time.sleep(0.001)
busy_with_a_name()
"""


@contextlib.contextmanager
def live_process() -> Iterator[tuple[int, int]]:
    """Run the program; give its process id and the loopback port that it listens on; end it afterwards."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()


def output_of(*command: str, timeout: float = 60) -> str:
    """Return what a tool prints on both streams; a missing or failing tool ends the check as failed."""
    smokelib.require(
        shutil.which(command[0]), f"{command[0]} is not in the image", "add its package to diag-tools.Containerfile.j2"
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    text = done.stdout + done.stderr
    hint = "the container needs the capability SYS_PTRACE" if "ermitted" in text else text.strip()[-500:]
    smokelib.require(done.returncode == 0, f"{' '.join(command)} ends with {done.returncode}", hint)
    return text


def screen_of(*command: str, seconds: float = 2) -> str:
    """Return what a program draws on a terminal in some seconds; it is ended then."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm"
        os.execvp(command[0], command)
    drawn, end = b"", time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                drawn += os.read(terminal, 65536)
    except OSError:  # it ended by itself
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return drawn.decode(errors="replace")


def shows(tool: str, text: str, wanted: str) -> None:
    """End as failed unless a tool's output has ``wanted`` in it."""
    smokelib.require(wanted in text, f"{tool} does not show {wanted!r}", f"it printed: {text.strip()[-500:]}")
    print(f"{tool}: shows {wanted!r}")
