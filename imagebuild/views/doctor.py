"""What this host has and lacks for building, each finding with its remedy."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from imagebuild.engine.host import has_cdi_gpu, python_settings
from imagebuild.engine.registry import Registry
from imagebuild.errors import BuildkitError, RegistryError
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


def examine(site: Site, connect: Callable[[], Podman], registry: Registry) -> list[Finding]:
    """Look at everything that builds need."""
    return [*_engine(connect), _bootstrap(), _python(site), _registry(registry), _gpu()]


def _engine(connect: Callable[[], Podman]) -> Iterator[Finding]:
    try:
        podman = connect()
    except BuildkitError as error:
        yield Finding("podman", "missing", error.message, error.hint)
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


def _gpu() -> Finding:
    if has_cdi_gpu():
        return Finding("gpu", "ok", "a CDI specification names nvidia.com/gpu")
    driver = Path("/proc/driver/nvidia/version").exists()
    remedy = "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`" if driver else ""
    detail = "the NVIDIA driver is loaded, but no CDI specification names it" if driver else "no NVIDIA driver here"
    return Finding("gpu", "note", detail, remedy)
