"""What keeps this host's GPUs out of containers: the facts, and a diagnosis with its remedy for each obstacle."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import InvalidVersion, Version

from imagebuild.engine.cdi import FOLDERS, GENERATE, CdiSpec, read_specs
from imagebuild.spec import values

_NVIDIA = "0x10de"  # the vendor's number on the PCI bus
_FIRST_PODMAN = Version("4.1")  # compat.yaml, podman.features.cdi_device: from here on NVIDIA documents CDI with it
_KERNEL_MODULE = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")


@dataclass(frozen=True)
class Owner:
    """Who may open a device node: its permission bits, and the numbers of its owner and group."""

    mode: int
    uid: int
    gid: int

    def admits(self, uid: int, groups: frozenset[int]) -> bool:
        """Whether these bits let a user read and write."""
        shift = 6 if uid == self.uid else 3 if self.gid in groups else 0
        return (self.mode >> shift) & 0o6 == 0o6


@dataclass(frozen=True)
class HostUser:
    """The user whose Podman runs the containers."""

    name: str
    uid: int
    groups: frozenset[int]


@dataclass(frozen=True)
class GpuHost:
    """The facts. `nodes` are the device nodes that specifications name, `absent` what they name and is not there."""

    cards: int = 0
    driver: str | None = None
    specs: tuple[CdiSpec, ...] = ()
    nodes: Mapping[str, Owner] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    user: HostUser | None = None
    selinux_enforcing: bool = False
    may_use_devices: bool = False
    podman: str | None = None

    @property
    def spec(self) -> CdiSpec | None:
        """The specification that counts: of those that offer `all`, the one in the folder with the most weight."""
        return next((spec for spec in reversed(self.specs) if "all" in spec.devices), None)


@dataclass(frozen=True)
class Obstacle:
    """One thing that is wrong, and what to do. One that does not `block` is only in the way of other tools."""

    code: str
    what: str
    remedy: str
    blocks: bool = True

    @property
    def stops_the_start(self) -> bool:
        """Whether Podman would not even start a container with the device."""
        return self.code in {"podman-too-old", "no-device", "conflict", "stale-spec", "absent"}


# --- the facts ------------------------------------------------------------------------------------


def look(service: str = "", podman: str | None = None, root: Path = Path("/")) -> GpuHost:
    """Gather the facts about this host.

    Args:
        service: the address of the Podman service; its socket's owner is the user who counts.
        podman: Podman's version, if known.
        root: where the host's files lie.
    """
    specs = tuple(read_specs([root / str(folder).lstrip("/") for folder in FOLDERS]))
    offered = [spec for spec in specs if not spec.fault]
    owners = {name: _owner(root / name.lstrip("/")) for spec in offered for name in spec.nodes}
    brought = {name for spec in offered for name in (*spec.nodes, *spec.mounts)}
    found = _KERNEL_MODULE.search(_text(root / "proc/driver/nvidia/version"))
    places = [path.parent for path in (root / "sys/bus/pci/devices").glob("*/vendor")]
    cards = [path for path in places if _text(path / "vendor") == _NVIDIA and _text(path / "class")[:4] == "0x03"]
    return GpuHost(
        cards=len(cards), driver=found[1] if found else None, specs=specs,
        nodes={name: owner for name, owner in owners.items() if owner},
        absent=frozenset(name for name in brought if not (root / name.lstrip("/")).exists()),
        user=_user(service), selinux_enforcing=_text(root / "sys/fs/selinux/enforce") == "1",
        may_use_devices=_text(root / "sys/fs/selinux/booleans/container_use_devices").startswith("1"), podman=podman,
    )  # fmt: skip


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").replace("\0", "").strip()
    except OSError:
        return ""


def _owner(path: Path) -> Owner | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return Owner(state.st_mode & 0o777, state.st_uid, state.st_gid)


def _user(service: str) -> HostUser | None:
    """The owner of the service's socket; without one, whoever calls."""
    try:
        uid = os.stat(service.removeprefix("unix://")).st_uid if service.startswith("unix://") else os.geteuid()
        entry = pwd.getpwuid(uid)
    except (OSError, KeyError):
        return None
    return HostUser(entry.pw_name, uid, frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid)))


# --- the obstacles --------------------------------------------------------------------------------


def obstacles(host: GpuHost, *, cuda: str | None = None, minimum: str | None = None) -> list[Obstacle]:
    """Everything that keeps GPUs out of containers, the most basic first.

    Args:
        host: the facts.
        cuda: the CUDA release of a row, to speak of.
        minimum: the oldest driver that runs it.
    """
    if not host.driver and not host.cards and not host.specs:
        what = "this machine has no NVIDIA GPU: none on its PCI bus, no driver, no CDI specification"
        return [Obstacle("no-gpu", what, f"take one that has; or install the driver, then {GENERATE}")]
    found = [obstacle for step in _STEPS for obstacle in step(host)]
    if minimum and host.driver and not values.driver(host.driver).reaches(values.driver(minimum)):
        what = f"driver {host.driver} is too old: CUDA {cuda} needs {minimum} or newer"
        remedy = f"update the driver, or choose a row with `buildkit suggest --driver {host.driver}`"
        found.insert(0, Obstacle("driver-too-old", what, remedy))
    return found


def _driver(host: GpuHost) -> Iterator[Obstacle]:
    if host.driver is None:
        cards = f"{host.cards} NVIDIA GPUs" if host.cards else "a CDI specification of NVIDIA GPUs"
        what = f"this machine has {cards}, and the NVIDIA kernel driver is not loaded"
        yield Obstacle(
            "no-driver", what, "install NVIDIA's driver, then `sudo modprobe nvidia`; `dmesg` says why it fails"
        )


def _podman(host: GpuHost) -> Iterator[Obstacle]:
    try:
        old = host.podman is not None and Version(host.podman.partition("-")[0]) < _FIRST_PODMAN
    except InvalidVersion:
        return
    if old:
        what = f"Podman {host.podman} is too old for GPUs by CDI"
        yield Obstacle("podman-too-old", what, f"update it to {_FIRST_PODMAN} or newer (RHEL 8.7 has 4.2)")


def _specification(host: GpuHost) -> Iterator[Obstacle]:
    for spec in host.specs:
        if spec.fault:
            yield Obstacle(
                "spec-unreadable", f"{spec.path}: {spec.fault}", f"make it readable, or make it anew: {GENERATE}"
            )
    offering = [spec for spec in host.specs if "all" in spec.devices]
    named = [spec for spec in host.specs if not spec.fault]
    if not named:
        yield Obstacle("no-spec", "no CDI specification names nvidia.com/gpu", f"{GENERATE} makes one")
    elif not offering:
        names = ", ".join(name for spec in named for name in spec.devices) or "no device"
        what = f"{named[-1].path} offers {names}, and not `all`"
        yield Obstacle("no-device", what, f"make it anew: {GENERATE}")
    same = [spec for spec in offering if spec.path.parent == offering[-1].path.parent]
    if len(same) > 1:
        what = f"{' and '.join(str(spec.path) for spec in same)} both offer nvidia.com/gpu=all, so Podman takes neither"
        yield Obstacle("conflict", what, f"remove all but one: sudo rm {same[0].path}")


def _fit(host: GpuHost) -> Iterator[Obstacle]:
    """Whether the specification that counts is of the machine as it is now."""
    spec = host.spec
    if spec is None:
        return
    if spec.driver and host.driver and spec.driver != host.driver:
        what = f"{spec.path} was made for driver {spec.driver}, and {host.driver} runs"
        yield Obstacle("stale-spec", what, f"make it anew: {GENERATE} (nvidia-cdi-refresh does it after each update)")
        return
    absent = [name for name in (*spec.nodes, *spec.mounts) if name in host.absent]
    if absent:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        what = f"{spec.path} names {absent[0]}{more}, which is not there"
        yield Obstacle("absent", what, f"sudo nvidia-modprobe -u -c=0; then make the specification anew: {GENERATE}")


def _permissions(host: GpuHost) -> Iterator[Obstacle]:
    if host.spec is None or host.user is None or host.user.uid == 0:
        return
    for name in host.spec.nodes:
        owner = host.nodes.get(name)
        if owner and not owner.admits(host.user.uid, host.user.groups):
            what = f"user {host.user.name} may not open {name} (mode {owner.mode:04o}, group {_group(owner.gid)})"
            remedy = (
                f"sudo usermod -aG {_group(owner.gid)} {host.user.name} and --group-add keep-groups, "
                "or `options nvidia NVreg_DeviceFileMode=0666` in /etc/modprobe.d"
            )
            yield Obstacle("permissions", what, remedy)
            return


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _selinux(host: GpuHost) -> Iterator[Obstacle]:
    if host.selinux_enforcing and not host.may_use_devices:
        what = "SELinux is enforcing, and its policy lets no container open devices (container_use_devices is off)"
        remedy = (
            "buildkit starts GPU containers with --security-opt label=disable; other tools need that too, "
            "or `sudo setsebool -P container_use_devices=true`"
        )
        yield Obstacle("selinux", what, remedy, blocks=False)


_STEPS: tuple[Callable[[GpuHost], Iterator[Obstacle]], ...]
_STEPS = (_driver, _podman, _specification, _fit, _permissions, _selinux)
