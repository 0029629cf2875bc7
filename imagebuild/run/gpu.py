"""Whether containers on this host get GPUs that can run a row, and if not, why."""

from __future__ import annotations

from imagebuild.engine.gpu_host import Obstacle, look, obstacles
from imagebuild.spec import facts
from imagebuild.spec.expected import expectations
from imagebuild.spec.models import Row


def gpu_obstacles(row: Row | None, service: str, podman: str | None = None) -> list[Obstacle]:
    """What keeps this host's GPUs from a row's containers.

    Args:
        row: a row for GPUs, or None for whatever runs there.
        service: the address of the Podman service.
        podman: its version, if known.
    """
    known = expectations(row, facts.load()).get("driver") if row else None
    cuda = row.cuda if row else None
    return obstacles(look(service, podman), cuda=cuda, minimum=known["value"] if known else None)


def first_obstacle(row: Row, service: str, podman: str | None = None) -> Obstacle:
    """The most basic obstacle that blocks, where a GPU was expected and none came."""
    found = [one for one in gpu_obstacles(row, service, podman) if one.blocks]
    unknown = Obstacle("unknown", "nothing on this host explains it", "`buildkit doctor` looks closer")
    return found[0] if found else unknown
