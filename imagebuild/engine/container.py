"""A container for as long as something is tried in it: made, started, fed, asked, and removed."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
import threading
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import requests
import urllib3.exceptions

from imagebuild.engine.cdi import hint_for
from imagebuild.engine.podman import Cancelled, Podman
from imagebuild.errors import EngineError

OWNER_LABEL = "io.buildkit.owner"
_HEADER = 8  # bytes before each frame of an attached stream: which stream, then the length
_ALWAYS_WRITABLE = ("/run", "/tmp", "/var/tmp")  # noqa: S108  (as `podman run --read-only` has it)
# The folders for scratch go with the container. Podman documents this parameter as `v`, and reads `volumes`.
_REMOVAL = {"force": "true", "volumes": "true", "timeout": "0"}
_TIMED_OUT = 124  # as timeout(1) says it


@dataclass(frozen=True)
class Answer:
    """What a command said: its exit code and its output, standard error included, in order."""

    exit_code: int
    output: str
    timed_out: bool = False


@dataclass(frozen=True)
class ContainerSettings:
    """What a container is given.

    Attributes:
        shm_bytes: the size of /dev/shm in bytes.
        seccomp: the profile of system calls; empty for Podman's own, `unconfined` for none.
        read_only: whether the root filesystem is; /tmp, /run and `scratch` can be written all the same.
        scratch: folders that can be written, and that outlast a restart of the container, not its end.
    """

    image: str
    command: Sequence[str]
    shm_bytes: int
    devices: Sequence[str] = ()
    capabilities: Sequence[str] = ()
    environment: Mapping[str, str] | None = None
    network: str = "none"
    seccomp: str = ""
    read_only: bool = False
    scratch: Sequence[str] = ()
    owner: str = "buildkit"

    def as_spec(self) -> dict[str, Any]:
        """The settings as Podman's API wants them. The image keeps its own entrypoint: it is part of what is tried."""
        spec: dict[str, Any] = {
            "image": self.image,
            "command": list(self.command),
            "env": dict(self.environment or {}),
            "shm_size": self.shm_bytes,
            "cap_add": list(self.capabilities),
            "devices": [{"path": device} for device in self.devices],
            "netns": {"nsmode": self.network},
            "labels": {OWNER_LABEL: self.owner},
            "remove": False,
            "read_only_filesystem": self.read_only,
            "mounts": [_in_memory(folder) for folder in (_ALWAYS_WRITABLE if self.read_only else ())],
            "volumes": [{"Dest": folder, "IsAnonymous": True} for folder in self.scratch],
        }
        if self.seccomp:
            spec["seccomp_profile_path"] = self.seccomp
        if self.devices:
            # A confined container may not open the driver's devices; NVIDIA documents this for CDI.
            spec["selinux_opts"] = ["disable"]
        return spec


def _in_memory(folder: str) -> dict[str, Any]:
    options = ["mode=1777", "nosuid", "nodev"]
    return {"type": "tmpfs", "source": "tmpfs", "destination": folder, "options": options}


class Container:
    """A running container. Leaving the `with` block removes it, whatever happened inside."""

    def __init__(self, podman: Podman, settings: ContainerSettings) -> None:
        self._podman = podman
        self._settings = settings
        self.id = ""

    def __enter__(self) -> Self:
        made = self._podman.json(
            "post", "/containers/create", data=json.dumps(self._settings.as_spec()),
            headers={"Content-Type": "application/json"}, doing=f"create a container of {self._settings.image}",
        )  # fmt: skip
        self.id = made["Id"]
        try:
            self._podman.request("post", f"/containers/{self.id}/start", doing=f"start {self._settings.image}")
        except BaseException as error:
            self.remove()
            if isinstance(error, EngineError) and self._settings.devices and (hint := hint_for(error.message)):
                raise EngineError(error.message, hint=hint) from None
            raise
        return self

    def __exit__(self, *_unused: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Stop and remove it; one that is gone already is fine."""
        with contextlib.suppress(EngineError, Cancelled):
            self._podman.request("delete", f"/containers/{self.id}", params=_REMOVAL, doing="remove a container",
                                 missing_ok=True)  # fmt: skip

    def put(self, files: Mapping[str, bytes], folders: Mapping[str, int] | None = None) -> None:
        """Write files, by absolute path, and folders with their mode, all owned by root and readable by anyone."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for path, mode in (folders or {}).items():
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.type, entry.mode = tarfile.DIRTYPE, mode
                tar.addfile(entry)
            for path, data in files.items():
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.size, entry.mode = len(data), 0o644
                tar.addfile(entry, io.BytesIO(data))
        path, headers = f"/containers/{self.id}/archive", {"Content-Type": "application/x-tar"}
        self._podman.request("put", path, params={"path": "/"}, data=buffer.getvalue(), headers=headers,
                             doing="copy files into a container")  # fmt: skip

    def get(self, path: str) -> dict[str, bytes]:
        """The files under a path, by their path below its parent; empty where there is nothing.

        Raises:
            EngineError: the path could not be read, or not to its end.
        """
        response = self._podman.request("get", f"/containers/{self.id}/archive", params={"path": path},
                                        doing=f"copy {path} out of a container", missing_ok=True)  # fmt: skip
        if response is None or not response.content:  # of a container that was killed, Podman may send nothing
            return {}
        try:
            with tarfile.open(fileobj=io.BytesIO(response.content)) as tar:
                files = ((entry.name, tar.extractfile(entry)) for entry in tar if entry.isfile())
                return {name: content.read() for name, content in files if content}
        except (tarfile.TarError, requests.RequestException, EOFError) as error:
            raise EngineError(f"cannot copy {path} out of a container: the archive broke off: {error}") from None

    def run(self, command: Sequence[str], *, timeout: float, environment: Mapping[str, str] | None = None) -> Answer:
        """Run a command in the container to its end.

        Args:
            command: the program and its arguments.
            timeout: seconds after which the command is ended, with all that runs in the container, which starts anew.
            environment: further variables.

        Raises:
            EngineError: the command could not be started, or its output broke off.
            Cancelled: the engine's work was cancelled.
        """
        doing = f"run {' '.join(command)}"
        spec = {"AttachStdout": True, "AttachStderr": True, "Cmd": list(command),
                "Env": [f"{key}={value}" for key, value in (environment or {}).items()]}  # fmt: skip
        headers = {"Content-Type": "application/json"}
        made = self._podman.json("post", f"/containers/{self.id}/exec", data=json.dumps(spec), headers=headers,
                                 doing=doing)  # fmt: skip
        timed_out = threading.Event()
        alarm = threading.Timer(timeout, self._restart, (timed_out,))
        alarm.daemon = True
        alarm.start()
        try:
            output = self._attached(made["Id"], doing, timed_out)
        finally:
            alarm.cancel()
            alarm.join()  # a restart that has begun: whoever comes next finds a running container
        if timed_out.is_set():
            return Answer(_TIMED_OUT, output, timed_out=True)
        state = self._podman.json("get", f"/exec/{made['Id']}/json", doing=doing)
        return Answer(int(state["ExitCode"]), output)

    def _attached(self, session: str, doing: str, timed_out: threading.Event) -> str:
        """Start an exec session and read all that it says."""
        headers = {"Content-Type": "application/json"}
        response = self._podman.request("post", f"/exec/{session}/start", data='{"Detach": false, "Tty": false}',
                                        headers=headers, stream=True, doing=doing)  # fmt: skip
        assert response is not None  # noqa: S101  (only missing_ok gives None)
        parts: list[bytes] = []
        with self._podman.watched(response):
            try:
                parts.extend(_frames(response.iter_content(65536)))
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                if self._podman.is_cancelled:
                    raise Cancelled from None
                if not timed_out.is_set():
                    raise EngineError(f"cannot {doing}: the output broke off: {error}") from None
        return b"".join(parts).decode(errors="replace")

    def _restart(self, timed_out: threading.Event) -> None:
        """End every process: Podman's API has no way to end a single command."""
        timed_out.set()
        with contextlib.suppress(EngineError, Cancelled):
            self._podman.request("post", f"/containers/{self.id}/restart", params={"t": "0"},
                                 doing="restart a container")  # fmt: skip


def _frames(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The payloads of an attached stream, both streams in the order in which they came."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        while len(rest) >= _HEADER:
            end = _HEADER + int.from_bytes(rest[4:_HEADER], "big")
            if len(rest) < end:
                break
            yield rest[_HEADER:end]
            rest = rest[end:]


def remove_left_over(podman: Podman, owner: str) -> int:
    """Remove the containers that an owner's earlier, killed run left behind; how many there were."""
    filters = json.dumps({"label": [f"{OWNER_LABEL}={owner}"]})
    found = podman.json("get", "/containers/json", params={"all": "true", "filters": filters},
                        doing="list containers")  # fmt: skip
    for one in found:
        path = f"/containers/{urllib.parse.quote(one['Id'])}"
        podman.request("delete", path, params=_REMOVAL, doing="remove a container", missing_ok=True)
    return len(found)
