"""Builds one planned target: its context, its secrets, its log."""

from __future__ import annotations

import io
import re
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from imagebuild.engine import bootstrap, host, interrupt, layers
from imagebuild.engine.podman import Cancelled, Image, Podman
from imagebuild.engine.tools import ensure_tools
from imagebuild.errors import EngineError, WorkError
from imagebuild.events import Emit
from imagebuild.plan.plan import INPUTS_LABEL, PlannedTarget
from imagebuild.plan.rootfs import SUITES
from imagebuild.run.state import BuildRecord, State
from imagebuild.run.watch import Watch
from imagebuild.spec.site import Site

_ATTEMPTS = 3
_HIDDEN = ".buildkit-"  # Podman takes these files out of the context before the first step: no COPY can reach them
# What another process, or the network, may have caused and another try may cure.
_PASSING = re.compile(
    r"layer not known|database is locked|identifier is not a (layer|container)|connection reset|temporary failure|"
    r"could not connect|operation timed out|TLS handshake|unexpected EOF|error sending request|failed to fetch|"
    r"service unavailable",
    re.IGNORECASE,
)


class Builder:
    """Builds targets on one Podman service. Several threads may build at once."""

    def __init__(self, podman: Podman, site: Site, state: State, emit: Emit) -> None:
        self._podman = podman
        self._site = site
        self._state = state
        self._emit = emit
        self._python = host.python_settings(site)
        self._tools_lock = threading.Lock()

    def build(self, planned: PlannedTarget, *, cache: bool = True) -> Image:
        """Build a target and return its image.

        Args:
            planned: the target; its parents are in the engine's store under their local names.
            cache: whether layers of earlier builds may be used.

        Raises:
            WorkError: a step failed; the message names the log.
            Cancelled: the work was cut short, and its container is gone.
        """
        path = self._state.log(planned.name, "build")
        with self._state.lock(planned.name), path.open("w", encoding="utf-8") as log:
            watch = Watch(planned.name, "build", self._emit, log, self._python.secrets)
            started = time.monotonic()
            try:
                image = self._attempts(planned, watch, cache)
            except Cancelled:
                interrupt.end_step(watch.step_line, watch.step_started)
                raise
            except WorkError as error:
                watch.line(f"buildkit: {error.message}")
                said = f"\n{watch.tail}" if isinstance(error, EngineError) else ""
                raise WorkError(f"{error.message}{said}\nlog: {path}", hint=error.hint) from None
            image = replace(image, size=layers.size_in_store(self._podman, image.id) or image.size)
            self._remember(planned, image, time.monotonic() - started)
        return image

    def _attempts(self, planned: PlannedTarget, watch: Watch, cache: bool) -> Image:
        def passing(error: BaseException) -> bool:
            return isinstance(error, EngineError) and bool(_PASSING.search(f"{error}\n{watch.tail}"))

        def say(state: RetryCallState) -> None:
            watch.line(f"buildkit: attempt {state.attempt_number} of {_ATTEMPTS} failed, trying again")

        wait = wait_exponential(multiplier=2, max=20)
        stop, retry = stop_after_attempt(_ATTEMPTS), retry_if_exception(passing)
        retrying = Retrying(stop=stop, wait=wait, retry=retry, before_sleep=say, reraise=True)
        return retrying(self._once, planned, watch, cache)

    def _once(self, planned: PlannedTarget, watch: Watch, cache: bool) -> Image:
        with self._tools_lock:
            ensure_tools(self._podman, self._python, watch.line)
        secrets = self._secrets(planned)
        with _context(planned, secrets, self._rootfs(planned, watch)) as context:
            self._podman.build(
                context, planned.local_name, secrets=[f"id={name},src={_HIDDEN}{name}" for name in secrets],
                timestamp=planned.timestamp, cache=cache, network=self._site.build_network, on_line=watch.line,
            )  # fmt: skip
        image = self._podman.image(planned.local_name)
        if image is None or image.labels.get(INPUTS_LABEL) != planned.digest:
            raise EngineError(f"{planned.local_name} is not in Podman's store with its inputs digest after its build")
        return image

    def _secrets(self, planned: PlannedTarget) -> Mapping[str, bytes]:
        """What a build may know of this host, each readable in the RUN steps that ask for it."""
        row = planned.target.row
        extra = host.torch_index(self._site, self._python, row)
        secrets = {"ca": host.ca_bundle(self._site), "uv": self._python.uv_toml(extra).encode()}
        if row.family == "debian":
            secrets["apt"] = host.apt_sources(self._site, row.os, SUITES[row.os]).encode()
        return secrets

    def _rootfs(self, planned: PlannedTarget, watch: Watch) -> Path | None:
        if planned.rootfs is None:
            return None
        sources = host.apt_sources(self._site, planned.rootfs.os, planned.rootfs.suite)
        return bootstrap.rootfs(planned.rootfs, sources, self._state.folder / "rootfs", watch.line)

    def _remember(self, planned: PlannedTarget, image: Image, seconds: float) -> None:
        parts = {part.name: part.value for part in planned.parts}
        values = {part.name: part.value for part in planned.values}
        self._state.remember_build(
            BuildRecord(planned.name, planned.digest, image.id, seconds, image.size, parts, values)
        )


@contextmanager
def _context(planned: PlannedTarget, secrets: Mapping[str, bytes], rootfs: Path | None) -> Iterator[IO[bytes]]:
    """The build context as a tar stream."""
    with tempfile.TemporaryFile() as buffer:
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            _add(tar, "Containerfile", planned.containerfile.encode(), 0o644, planned.timestamp)
            for file in planned.context:
                _add(tar, file.path, file.data, file.mode, planned.timestamp)
            for name, data in secrets.items():
                _add(tar, f"{_HIDDEN}{name}", data, 0o600, planned.timestamp)
            if rootfs:
                tar.add(rootfs, "rootfs.tar")
        buffer.seek(0)
        yield buffer


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int, timestamp: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(data), mode, timestamp
    tar.addfile(entry, io.BytesIO(data))
