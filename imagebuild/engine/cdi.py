"""CDI specifications: the files by which a host offers its GPUs to containers, and what Podman says where they fail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

KIND = "nvidia.com/gpu"
FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))  # Podman's, in rising order of weight
GENERATE = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
# What Podman and its runtimes say when a specification names what is not there: the path is in the group.
_ABSENT = (
    re.compile(r'failed to stat CDI host device \\?"([^"\\]+)'),
    re.compile(r"error creating device nodes: mount (\S+?):"),
    re.compile(r"error mounting \\?\"([^\"\\]+)\\?\" to rootfs.*no such file"),
    re.compile(r"cannot stat [`'\"]?(\S+?)[`'\"]?: No such file"),
)


@dataclass(frozen=True)
class CdiSpec:
    """One file: what it offers under `kind`, and what of the host it brings into a container.

    `fault` says why the file could not be read, `devices` are the names that it offers, `nodes` the host's device
    nodes and `mounts` the host's files of all of them.
    """

    path: Path
    kind: str = ""
    devices: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    fault: str = ""

    @property
    def driver(self) -> str | None:
        """The driver that it was made for, which the name of its libcuda tells."""
        found = (re.search(r"/libcuda\.so\.(\d+\.[\d.]+)$", mount) for mount in self.mounts)
        return next((match[1] for match in found if match), None)


def read_specs(folders: Sequence[Path] = FOLDERS) -> list[CdiSpec]:
    """The specifications of NVIDIA's GPUs, those that count more last, and the files that nobody can read."""
    found = (_read(path) for folder in folders for path in _files(folder))
    return [spec for spec in found if spec.kind == KIND or spec.fault]


def has_cdi_gpu(folders: Sequence[Path] = FOLDERS) -> bool:
    """Whether the host has a CDI specification of NVIDIA GPUs."""
    return any(spec.kind == KIND for spec in read_specs(folders))


def hint_for(refusal: str) -> str:
    """What to do when Podman refuses to start a container with a CDI device, by its words; empty if it is not that."""
    if "unresolvable CDI devices" in refusal:
        return f"no CDI specification on Podman's host offers that device: {GENERATE}; `buildkit doctor` looks closer"
    for pattern in _ABSENT:
        if found := pattern.search(refusal):
            return f"the CDI specification names {found[1]}, which is not there: is it stale? {GENERATE}"
    return "`buildkit doctor` looks at the GPUs" if "CDI" in refusal else ""


def _files(folder: Path) -> list[Path]:
    return sorted((*folder.glob("*.yaml"), *folder.glob("*.json")))


def _read(path: Path) -> CdiSpec:
    """Read one file; JSON is YAML too."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        return CdiSpec(path, fault=error.strerror or str(error))
    except yaml.YAMLError as error:
        return CdiSpec(path, fault=f"not YAML: {str(error).splitlines()[0]}")
    if not isinstance(data, dict):
        return CdiSpec(path, fault="not a mapping")
    devices = [device for device in _items(data, "devices") if isinstance(device, dict)]
    edits = [part.get("containerEdits") for part in (data, *devices)]
    brought = [part for part in edits if isinstance(part, dict)]
    nodes = [node for part in brought for node in _items(part, "deviceNodes") if isinstance(node, dict)]
    mounts = [mount for part in brought for mount in _items(part, "mounts") if isinstance(mount, dict)]
    return CdiSpec(
        path, str(data.get("kind", "")), tuple(str(device.get("name", "")) for device in devices),
        _unique(str(node.get("hostPath") or node.get("path") or "") for node in nodes),
        _unique(str(mount.get("hostPath") or "") for mount in mounts),
    )  # fmt: skip


def _items(mapping: Mapping[str, Any], key: str) -> list[Any]:
    value = mapping.get(key)
    return value if isinstance(value, list) else []


def _unique(names: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, names)))
