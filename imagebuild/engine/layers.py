"""The layers of an image: how large each is, and the step that made it, from Podman's store or from a registry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imagebuild.errors import RegistryError
from imagebuild.plan.steps import step_of

if TYPE_CHECKING:
    from imagebuild.engine.podman import Podman
    from imagebuild.engine.registry import Registry
    from imagebuild.spec.reference import Reference


@dataclass(frozen=True)
class Layer:
    """One layer: `diff_id` is the digest of its tar, `size` the bytes of that, `pull` its bytes as it travels.

    None is unknown: a registry knows only what travels, and Podman's store only what lies on the disk.
    """

    diff_id: str
    step: str  # as `step_of` spells it
    size: int | None = None
    pull: int | None = None


def in_store(podman: Podman, image: str) -> list[Layer]:
    """The layers of an image in Podman's store, lowest first."""
    return [Layer(diff_id, step_of(step), size) for diff_id, step, size in podman.layers(image)]


def size_in_store(podman: Podman, image: str) -> int:
    """Bytes of an image's layers, uncompressed; 0 where its history does not tell.

    Podman's own `Size` also counts a copy of the top layer for each mapping of users that the image was run with.
    """
    return sum(size for _, _, size in podman.layers(image))


def in_registry(registry: Registry, reference: Reference) -> list[Layer]:
    """The layers of an image in a registry, lowest first.

    Raises:
        RegistryError: there is no such image, or its config is not readable.
    """
    manifest = registry.get_manifest(reference)
    try:
        config = json.loads(registry.get_blob(reference.repository, manifest.config_digest))
        steps = [str(entry.get("created_by", "")) for entry in config["history"] if not entry.get("empty_layer")]
        rows = list(zip(config["rootfs"]["diff_ids"], steps, manifest.layers, strict=True))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        message = f"the config of {reference} does not describe its layers: {error!r}"
        raise RegistryError(message, hint="is it an image, and for one platform only?") from None
    return [Layer(diff_id, step_of(step), pull=layer.size) for diff_id, step, layer in rows]
