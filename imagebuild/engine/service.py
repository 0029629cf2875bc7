"""Finds this machine's rootless Podman service, or starts one for as long as it is used."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from imagebuild.errors import EngineError

SERVICE_USER = "buildkit"  # the user that scripts/setup makes where buildkit itself runs as root
_IDLE_SECONDS = 60
_PATIENCE = 20.0  # seconds


def find_socket(configured: str | None = None) -> str:
    """The address of the Podman service to use, such as `unix:///run/user/1000/podman/podman.sock`.

    A configured address is taken as it is. Otherwise the first socket that answers is used: that of
    `CONTAINER_HOST`, of the user's own session, or, for root, of the unprivileged service user. A normal
    user without one gets a service that ends by itself when idle.

    Raises:
        EngineError: there is no service, and none can be started.
    """
    if configured:
        return configured
    if address := os.environ.get("CONTAINER_HOST"):
        return address
    tried = list(_candidates())
    for path in tried:
        if _answers(path):
            return f"unix://{path}"
    if os.geteuid() != 0 and shutil.which("podman"):
        return _start(tried[0])
    raise EngineError(
        "no Podman service answers at " + " or ".join(map(str, tried)),
        hint="run scripts/setup, or name the service in site.yaml (`podman:`) or $BUILDKIT_PODMAN",
    )


def _candidates() -> Iterator[Path]:
    """Where a service's socket would be, most specific first."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    if os.geteuid() != 0:
        yield Path(runtime) / "podman" / "podman.sock"
        return
    user = service_user()
    yield Path(f"/run/user/{user.pw_uid if user else f'<{SERVICE_USER}>'}/podman/podman.sock")


def service_user() -> pwd.struct_passwd | None:
    """The user whose rootless Podman builds: the caller or, for root, an unprivileged one, if it was made."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    try:
        return pwd.getpwnam(os.environ.get("BUILDKIT_SERVICE_USER") or SERVICE_USER)
    except KeyError:
        return None


def owner_of(address: str) -> pwd.struct_passwd | None:
    """The user that a service on this machine runs as; None where it is elsewhere, or nobody knows."""
    if not address.startswith("unix://"):
        return None
    try:
        return pwd.getpwuid(Path(address.removeprefix("unix://")).stat().st_uid)
    except (OSError, KeyError):
        return None


def _answers(path: Path) -> bool:
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(5)
            probe.connect(str(path))
    except OSError:
        return False
    return True


def _start(path: Path) -> str:
    """Start a service of the user's own that ends after `_IDLE_SECONDS` without a request."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    command = ["podman", "system", "service", f"--time={_IDLE_SECONDS}", f"unix://{path}"]
    # It outlives this process: its words go to a file, as a pipe would break under it.
    log = path.with_name("buildkit-service.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        await_service(process, path)
    except EngineError as error:
        process.terminate()
        said = log.read_text(encoding="utf-8", errors="replace").strip()
        raise EngineError(f"{error.message}{f': {said}' if said else ''}", hint=error.hint) from None
    return f"unix://{path}"


def await_service(process: subprocess.Popen[bytes], path: Path) -> None:
    """Wait until a service that was just started answers at its socket.

    Raises:
        EngineError: it ended, or does not answer in time.
    """
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        if _answers(path):
            return
        time.sleep(0.1)
    raise EngineError(
        f"the Podman service at {path} did not come up",
        hint="try `podman info` as this user; scripts/setup says what is missing",
    )
