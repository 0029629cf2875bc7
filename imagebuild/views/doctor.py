"""What this host has and lacks for building, each finding with its remedy."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imagebuild.engine.gpu_host import GpuHost, look, obstacles
from imagebuild.engine.host import python_settings
from imagebuild.engine.registry import Registry
from imagebuild.errors import BuildkitError, RegistryError
from imagebuild.spec import facts
from imagebuild.spec.expected import expectations
from imagebuild.spec.models import Row
from imagebuild.spec.site import Site

if TYPE_CHECKING:
    from imagebuild.engine.podman import Podman

_FREE_BYTES = 20e9  # what a CUDA row with its layers takes


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `state` is `ok`, `missing` (builds fail) or `note` (some things will not work)."""

    name: str
    state: str
    detail: str
    remedy: str = ""


def examine(site: Site, connect: Callable[[], Podman], registry: Registry, rows: Iterable[Row] = ()) -> list[Finding]:
    """Look at everything that builds need, and at the GPUs that the rows' images want."""
    podman: Podman | BuildkitError
    try:
        podman = connect()
    except BuildkitError as error:
        podman = error
    host = look() if isinstance(podman, BuildkitError) else look(podman.address, podman.info.version)
    return [*_engine(podman), _bootstrap(), _python(site), _registry(registry), *gpu_findings(host, rows)]


def _engine(podman: Podman | BuildkitError) -> Iterator[Finding]:
    if isinstance(podman, BuildkitError):
        yield Finding("podman", "missing", podman.message, podman.hint)
        return
    info = podman.info
    kind = "rootless" if info.rootless else "as root"
    yield Finding("podman", "ok", f"{info.version}, {kind}, storage {info.storage_driver}, at {podman.address}")
    if info.storage_driver == "vfs":
        yield Finding("storage", "note", "vfs copies every layer whole", 'set driver = "overlay" in storage.conf')
    if info.free_bytes is not None:
        enough = info.free_bytes > _FREE_BYTES
        remedy = "" if enough else "`podman image prune` removes unnamed images"
        yield Finding("disk", "ok" if enough else "note", f"{info.free_bytes / 1e9:.0f} GB free for images", remedy)


def _bootstrap() -> Finding:
    found = shutil.which("mmdebstrap")
    if found:
        return Finding("bootstrap", "ok", f"{found} makes bootstrapped bases")
    return Finding(
        "bootstrap", "note", "no mmdebstrap: rows with `base: bootstrap` cannot be built", "run scripts/setup"
    )


def _python(site: Site) -> Finding:
    settings = python_settings(site)
    count = len(settings.wheels())
    where = "the site's or pip's configured index" if settings.indexes else "the default Python index"
    return Finding("python", "ok", f"{where}, {count} wheels on this host")


def _registry(registry: Registry) -> Finding:
    try:
        registry.ping()
    except RegistryError as error:
        return Finding("registry", "note", error.message, "`buildkit registry up` starts one on loopback")
    return Finding("registry", "ok", f"{registry.host} answers")


def gpu_findings(host: GpuHost, rows: Iterable[Row]) -> Iterator[Finding]:
    """What the GPUs of this host are good for: each obstacle, and the rows whose CUDA the driver is too old for."""
    found = obstacles(host)
    if host.spec and not any(one.blocks for one in found):
        yield Finding("gpu", "ok", f"{host.spec.path} offers nvidia.com/gpu=all, driver {host.driver}")
    yield from (Finding("gpu", "note", one.what, one.remedy) for one in found)
    if not host.driver:
        return
    for row in rows:
        minimum = expectations(row, facts.load()).get("driver", {}).get("value")
        old = [one for one in obstacles(host, cuda=row.cuda, minimum=minimum) if one.code == "driver-too-old"]
        yield from (Finding(f"row {row.name}", "note", one.what, one.remedy) for one in old)
