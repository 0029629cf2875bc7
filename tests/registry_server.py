"""A real `docker-registry` on a loopback port, for the tests."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml

# The password is "secret" (bcrypt, made once: making one needs a package that nothing else here needs).
USER, PASSWORD = "ci", "secret"
HTPASSWD = "ci:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n"


class RegistryServer:
    """Runs a registry while its `with` block lasts. `host` is where it listens.

    Args:
        folder: where its configuration, its data and its log go.
        htpasswd: contents of a password file; with it the registry asks for a login.
        delete: whether manifests can be deleted.
    """

    def __init__(self, folder: Path, htpasswd: str | None = None, *, delete: bool = True) -> None:
        self.folder = folder
        self.host = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        config: dict[str, Any] = {
            "version": "0.1",
            "log": {"level": "error"},
            "storage": {
                "filesystem": {"rootdirectory": str(folder / "data")},
                "delete": {"enabled": delete},
                "maintenance": {"uploadpurging": {"enabled": False}},
            },
            "http": {"addr": self.host, "secret": "tests"},
        }
        folder.mkdir(parents=True, exist_ok=True)
        if htpasswd:
            (folder / "htpasswd").write_text(htpasswd)
            config["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
        self._config = folder / "config.yml"
        self._config.write_text(yaml.safe_dump(config))

    def start(self) -> None:
        """Start (again) with the same data, and wait until it answers."""
        program = shutil.which("docker-registry") or shutil.which("registry")
        if not program:
            raise RuntimeError("the integration tests need docker-registry (scripts/test installs it)")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([program, "serve", str(self._config)], stdout=log, stderr=log)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                httpx.get(f"http://{self.host}/v2/", trust_env=False)
            except httpx.TransportError:
                time.sleep(0.05)
            else:
                return
        self.stop()
        raise RuntimeError(f"docker-registry did not start: {(self.folder / 'log').read_text()}")

    def stop(self) -> None:
        """Stop it; what it stored stays."""
        if self._process:
            self._process.terminate()
            self._process.wait(timeout=20)
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
