"""A Podman service of its own, with a store that nothing was ever in: it goes with everything it made."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from imagebuild.engine.service import SERVICE_USER, await_service, service_user
from imagebuild.errors import EngineError

_PATIENCE = 10.0  # seconds
# Podman obeys these before its own options: it would be the client of another service.
_ELSEWHERE = ("CONTAINER_HOST", "CONTAINER_CONNECTION", "CONTAINER_SSHKEY")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


class PrivateService:
    """Runs while its `with` block lasts, as the user whose rootless Podman builds here.

    It shares nothing with that user's other services: storage, mounts for caches, knowledge about blobs, and the user
    namespace are its own. `address` is where it answers.
    """

    def __init__(self) -> None:
        user = service_user()
        if user is None:
            raise EngineError(f"there is no user {SERVICE_USER} to build as", hint="run scripts/setup")
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None
        self._namespace = ""
        self.folder = Path()

    @property
    def address(self) -> str:
        """Where the service answers."""
        return f"unix://{self._socket}"

    @property
    def _socket(self) -> Path:
        return self.folder / "podman.sock"

    def __enter__(self) -> Self:
        # Storage of root filesystems does not belong on /tmp, which is often in memory.
        self.folder = Path(tempfile.mkdtemp(prefix="buildkit-store-", dir=os.environ.get("TMPDIR", "/var/tmp")))  # noqa: S108
        try:
            self._make_folders()
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_unused: object) -> None:
        self.close()

    def _make_folders(self) -> None:
        names = ("store", "run", "runtime", "data", "tmp")
        for folder in (self.folder, *(self.folder / name for name in names)):
            folder.mkdir(mode=0o700, exist_ok=True)
            if os.geteuid() == 0:
                os.chown(folder, self._user.pw_uid, self._user.pw_gid)

    def _start(self) -> None:
        command = ["podman", "--root", str(self.folder / "store"), "--runroot", str(self.folder / "run"),
                   "system", "service", "--time=0", self.address]  # fmt: skip
        log = self.folder / "log"
        with log.open("wb") as output:
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder,
                    env=self._environment(), start_new_session=True, **self._identity(),
                )  # fmt: skip
            except OSError as error:
                raise EngineError(f"cannot start podman: {error.strerror}", hint="run scripts/setup") from None
        try:
            await_service(self._process, self._socket)
        except EngineError as error:
            said = log.read_text(errors="replace").strip()
            raise EngineError(f"{error.message}{f': {said}' if said else ''}", hint=error.hint) from None
        own = _namespace(Path("/proc/self"))
        # Podman runs itself a second time, in the user namespace that it makes.
        inside = {_namespace(one) for one in _processes() if _in_group(one, self._process.pid)} - {own, ""}
        self._namespace = next(iter(inside), "")

    def _identity(self) -> dict[str, Any]:
        """Whom to become; only root can, and must."""
        if os.geteuid() != 0:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": [self._user.pw_gid]}

    def _environment(self) -> dict[str, str]:
        """The caller's environment, or for another user only the proxies of it; and folders of the service's own.

        TMPDIR is where RUN's cache mounts lie, XDG_DATA_HOME holds what is known about compressed blobs.
        """
        given = {name: value for name, value in os.environ.items() if os.geteuid() != 0 or name in _PROXIES}
        own = {"HOME": self._user.pw_dir, "PATH": os.environ.get("PATH", os.defpath),
               "XDG_RUNTIME_DIR": str(self.folder / "runtime"), "XDG_DATA_HOME": str(self.folder / "data"),
               "TMPDIR": str(self.folder / "tmp")}  # fmt: skip
        return {name: value for name, value in (given | own).items() if name not in _ELSEWHERE}

    def close(self) -> None:
        """End the service, whatever runs in its user namespace, and remove its folder."""
        if self._process:
            _end_group(self._process)
            self._process = None
        for process in _processes() if self._namespace else ():
            if _namespace(process) == self._namespace:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(int(process.name), signal.SIGKILL)
        self._remove()

    def _remove(self) -> None:
        """Remove the folder, whose files belong to subordinate ids: only root and the user's namespace reach them."""
        deadline = time.monotonic() + _PATIENCE
        while self.folder.exists() and time.monotonic() < deadline:
            if os.geteuid() == 0:
                shutil.rmtree(self.folder, ignore_errors=True)
            else:
                subprocess.run(["podman", "unshare", "rm", "-rf", str(self.folder)], capture_output=True, check=False)
            time.sleep(0.0 if not self.folder.exists() else 0.5)  # mounts go when the last process has


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group: politely, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            process.poll()  # collects it
            if not any(_in_group(one, process.pid) for one in _processes()):
                return
            time.sleep(0.05)


def _processes() -> Iterator[Path]:
    return (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _in_group(process: Path, group: int) -> bool:
    """Whether a living process belongs to a process group."""
    try:
        fields = (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] != "Z" and int(fields[2]) == group


def _namespace(process: Path) -> str:
    """The user namespace of a process; empty where it is gone or somebody else's."""
    try:
        return str((process / "ns" / "user").readlink())
    except OSError:
        return ""
