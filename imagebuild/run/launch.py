"""The podman command line that runs a target as its row promises."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from imagebuild.engine.cdi import has_cdi_gpu
from imagebuild.errors import WorkError
from imagebuild.plan.plan import PlannedTarget
from imagebuild.run.gpu import gpu_obstacles
from imagebuild.run.smoke import GPU_DEVICE
from imagebuild.spec.models import Row


def command_line(
    service: str, planned: PlannedTarget, command: Sequence[str], *, gpu: str, workspace: Path | None, interactive: bool
) -> list[str]:
    """Everything after which a shell would only have to be told Enter.

    Args:
        service: the address of the Podman service that has the image.
        planned: the target.
        command: what to run; empty for the image's own command.
        gpu: `auto`, `require` or `off`.
        workspace: a folder to mount at /workspace.
        interactive: whether a person sits at a terminal.

    Raises:
        WorkError: a GPU is required, and something keeps it from containers.
    """
    row = planned.target.row
    arguments = [*_podman(service), "run", "--rm", f"--shm-size={row.shm_size}"]
    arguments += ["--interactive", "--tty"] if interactive else []
    arguments += _gpu(gpu, row, service) if row.is_cuda else []
    if workspace is not None:
        # The caller's own user is the image's `worker`, so that what it writes belongs to the caller.
        arguments += ["--userns=keep-id:uid=1000,gid=1000", f"--volume={workspace.resolve()}:/workspace"]
    return [*arguments, planned.local_name, *command]


def _podman(service: str) -> list[str]:
    """The user's own Podman by itself; any other by its service."""
    own = f"unix://{os.environ.get('XDG_RUNTIME_DIR', f'/run/user/{os.geteuid()}')}/podman/podman.sock"
    return ["podman"] if service == own else ["podman", "--remote", "--url", service]


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
