"""A registry on this machine's loopback: for trying buildkit out, and for its tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from imagebuild.errors import WorkError

# Debian's and upstream's name of the same program.
_PROGRAMS = ("docker-registry", "registry")
_PATIENCE = 20.0  # seconds


class LocalRegistry:
    """A docker-registry process that belongs to a project folder's state."""

    def __init__(self, address: str, folder: Path) -> None:
        """Prepare for a registry at `address`, a loopback host:port, that keeps its data in `folder`."""
        self.address = address
        self._folder = folder
        self._pid_file = folder / "pid"

    def up(self, answers: Callable[[], bool]) -> bool:
        """Start it unless something answers at its address already; whether it was started.

        Raises:
            WorkError: the program is missing, or did not come up.
        """
        if answers():
            return False
        program = next((found for name in _PROGRAMS if (found := shutil.which(name))), None)
        if program is None:
            raise WorkError(
                "docker-registry is not installed", hint="run scripts/setup, or set `registry:` in site.yaml"
            )
        log = self._configure()
        with log.open("ab") as output:
            process = subprocess.Popen(
                [program, "serve", str(self._folder / "config.yml")],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        self._pid_file.write_text(str(process.pid), encoding="ascii")
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if answers():
                return True
            if process.poll() is not None:
                break
            time.sleep(0.1)
        self.down()
        raise WorkError(f"the registry at {self.address} did not come up\nlog: {log}")

    def down(self) -> bool:
        """Stop the process that `up` started; whether there was one."""
        try:
            pid = int(self._pid_file.read_text(encoding="ascii"))
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            self._pid_file.unlink(missing_ok=True)
            return False
        self._pid_file.unlink(missing_ok=True)
        if str(self._folder).encode() not in command:  # the number belongs to another process by now
            return False
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _PATIENCE
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            if _is_zombie(pid):
                break
            time.sleep(0.05)
        return True

    def _configure(self) -> Path:
        """Write the configuration, and return the path of the log."""
        self._folder.mkdir(parents=True, exist_ok=True)
        configuration = {
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(self._folder / "data")}, "delete": {"enabled": True}},
            "http": {"addr": self.address.replace("localhost", "127.0.0.1")},
        }
        (self._folder / "config.yml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
        return self._folder / "log"


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
