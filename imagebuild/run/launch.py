"""What a container of a target is to get, and the podman command line that gives it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuild.engine.cdi import has_cdi_gpu
from imagebuild.engine.podman import EngineInfo
from imagebuild.errors import InputError, Problem, WorkError
from imagebuild.plan.plan import PlannedTarget
from imagebuild.run.gpu import gpu_obstacles
from imagebuild.run.smoke import GPU_DEVICE, TOOLS_CAPABILITIES, TOOLS_SECCOMP
from imagebuild.spec.models import Row

WORKSPACE = "/workspace"
# What keeps a container of all of a machine's memory from taking the machine with it.
MEMORY_SHARE = 0.9
_SEALED = ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges")
_LOOKING = (*(f"--cap-add={name}" for name in TOOLS_CAPABILITIES), f"--security-opt=seccomp={TOOLS_SECCOMP}")
_UNCONFINED = "--security-opt=label=disable"
# The caller's own user is the image's `worker`, so that what it writes belongs to the caller.
_KEEP_ID = "--userns=keep-id:uid=1000,gid=1000"
_KEEP_ID_SINCE = (4, 3)


@dataclass(frozen=True)
class Mount:
    """A folder or file of this machine, and where the container sees it."""

    source: Path
    target: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


@dataclass(frozen=True)
class Door:
    """How a server in a container is reached: at 127.0.0.1:`port` of this machine, and from nowhere else.

    With a network of its own the container's port is published on loopback. Without one (rootless networks need
    /dev/net/tun) it shares this machine's, and the server itself has to listen on loopback only.
    """

    port: int
    own_network: bool = True

    @property
    def listen(self) -> str:
        """The address that the server in the container is to listen on."""
        return "0.0.0.0" if self.own_network else "127.0.0.1"  # noqa: S104  (all of the container's own network)

    def arguments(self) -> list[str]:
        """How podman is told."""
        return [f"--publish=127.0.0.1:{self.port}:{self.port}"] if self.own_network else ["--network=host"]


@dataclass(frozen=True)
class Wishes:
    """What a person asks for beside what the row promises.

    `environment` holds `KEY`, passed on from the caller's environment, or `KEY=VALUE`; `volumes` are podman's;
    `memory` is a size such as `16g`, `0` for no limit, or empty for the default.
    """

    gpu: str = "auto"
    workspace: Path | None = None
    volumes: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    memory: str = ""
    cpus: float = 0.0
    name: str = ""


@dataclass(frozen=True)
class Launch:
    """What a container gets; `arguments` is how podman is told.

    `gpu` holds podman's arguments for the GPUs; a `sealed` one can change nothing of its image and win no rights; one
    that `looks` has what the tools of diag-tools need;
    `health` is the command that says whether it is well, run as it is: there may be no shell for it.
    """

    image: str
    command: tuple[str, ...] = ()
    shm_size: str = "64m"
    hostname: str = ""
    name: str = ""
    gpu: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    volumes: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    memory: str = ""
    cpus: float = 0.0
    door: Door | None = None
    network: str = ""
    sealed: bool = False
    looks: bool = False
    tmpfs: tuple[str, ...] = ()
    health: tuple[str, ...] = ()
    unconfined: bool = False
    interactive: bool = False
    detach: bool = False

    def arguments(self) -> list[str]:
        """Everything after `podman`."""
        words = ["run", "--rm", f"--shm-size={self.shm_size}"]
        words += ["--detach"] if self.detach else ["--interactive", "--tty"] if self.interactive else []
        words += [f"--name={self.name}"] if self.name else []
        words += [f"--hostname={self.hostname}"] if self.hostname else []
        words += self.gpu
        words += [_UNCONFINED] if self.unconfined and _UNCONFINED not in self.gpu else []
        words += [_KEEP_ID] if self.mounts or self.volumes else []
        words += [f"--volume={mount}" for mount in (*self.mounts, *self.volumes)]
        words += [f"--env={variable}" for variable in self.environment]
        words += [*self._limits(), *self._network(), *self._isolation()]
        return [*words, self.image, *self.command]

    def _limits(self) -> list[str]:
        memory = [f"--memory={self.memory}"] if self.memory else []
        return [*memory, f"--cpus={self.cpus:g}"] if self.cpus else memory

    def _network(self) -> list[str]:
        return self.door.arguments() if self.door else [f"--network={self.network}"] if self.network else []

    def _isolation(self) -> list[str]:
        rights = _SEALED if self.sealed else _LOOKING if self.looks else ()
        words = [*rights, *(f"--tmpfs={path}" for path in self.tmpfs)]
        if not self.health:
            return words
        return [*words, f"--health-cmd={json.dumps(self.health)}", "--health-interval=10s"]


def launch_of(
    planned: PlannedTarget, wishes: Wishes, command: Sequence[str] = (), *, interactive: bool = False,
    engine: EngineInfo | None = None, service: str = "",
) -> Launch:  # fmt: skip
    """What a container of a target gets: what its row promises, and what was asked for.

    Args:
        planned: the target.
        wishes: what was asked for.
        command: what to run; empty for the image's own command.
        interactive: whether a person sits at a terminal.
        engine: the Podman service; without one, its machine is taken for a usual workstation.
        service: its address: whose Podman it is decides which devices can be opened.

    Raises:
        InputError: a folder's path that podman cannot mount.
        WorkError: something keeps a GPU from containers, or Podman is too old to mount as the caller's user.
    """
    row = planned.target.row
    mounts = (mount(wishes.workspace, WORKSPACE),) if wishes.workspace is not None else ()
    mounted = bool(mounts or wishes.volumes)
    if mounted and engine is not None and _release(engine.version) < _KEEP_ID_SINCE:
        message = f"Podman {engine.version} cannot mount a folder as your own user"
        raise WorkError(message, hint="Podman 4.3 and newer can (--userns=keep-id:uid=1000,gid=1000)")
    return Launch(
        image=planned.local_name,
        command=tuple(command),
        shm_size=row.shm_size,
        name=wishes.name,
        gpu=tuple(_gpu(wishes.gpu, row, service)) if row.is_cuda else (),
        mounts=mounts,
        volumes=wishes.volumes,
        environment=wishes.environment,
        memory=_memory(wishes.memory, engine),
        cpus=wishes.cpus if engine is None or "cpu" in engine.controllers else 0.0,
        # Relabelling somebody's folder for SELinux would outlast the container, so the container goes unconfined.
        unconfined=mounted and engine is not None and engine.selinux,
        interactive=interactive,
        looks=planned.target.stage == "diag-tools",
    )


def mount(source: Path, target: str, *, read_only: bool = False) -> Mount:
    """A mount of a folder or file of this machine.

    Raises:
        InputError: podman could not tell the path from its own separators.
    """
    whole = source.resolve()
    if ":" in str(whole):
        message = f"podman cannot mount {whole}: there is a colon in its path"
        raise InputError(Problem(message, hint="move it, or mount a folder above it"))
    return Mount(whole, target, read_only)


def unmet(wishes: Wishes, engine: EngineInfo) -> list[str]:
    """The limits that were asked for and that the engine's control groups cannot set, each with the reason."""
    reason = f"rootless cgroup v{engine.cgroup_version} has no {{}} controller here"
    wanted = (("memory", wishes.memory not in ("", "0")), ("cpu", bool(wishes.cpus)))
    return [
        f"{controller} limit not set: {reason.format(controller)}"
        for controller, asked in wanted if asked and controller not in engine.controllers
    ]  # fmt: skip


def podman_words(service: str) -> list[str]:
    """How a command line begins: the user's own Podman by itself; any other by its service."""
    own = f"unix://{os.environ.get('XDG_RUNTIME_DIR', f'/run/user/{os.geteuid()}')}/podman/podman.sock"
    return ["podman"] if service == own else ["podman", "--remote", "--url", service]


def _release(version: str) -> tuple[int, ...]:
    """Major and minor; distributions write what they like behind them (`4.9.4-rhel`)."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _memory(wanted: str, engine: EngineInfo | None) -> str:
    if wanted == "0" or (engine is not None and "memory" not in engine.controllers):
        return ""
    if wanted or engine is None:
        return wanted
    return f"{int(engine.memory_bytes * MEMORY_SHARE) // 2**20}m" if engine.memory_bytes else ""


def _gpu(mode: str, row: Row, service: str) -> list[str]:
    if mode == "off" or (mode == "auto" and not has_cdi_gpu()):
        return []
    required = mode == "require"
    for one in gpu_obstacles(row, service):
        if one.stops_the_start or (required and one.blocks):
            what = (
                "a GPU is required, and none can be had" if required else "this host's GPUs do not get into containers"
            )
            raise WorkError(f"{what}: {one.what}", hint=one.remedy + ("" if required else "; or go without: --gpu off"))
    return [f"--device={GPU_DEVICE}", "--security-opt=label=disable"]
