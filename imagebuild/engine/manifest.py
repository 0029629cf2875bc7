"""The nouns of a registry: what a manifest is, what points at one, and what content is called by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
EMPTY_JSON = "application/vnd.oci.empty.v1+json"
MANIFEST_TYPES = (OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX)
INDEX_TYPES = (OCI_INDEX, DOCKER_INDEX)
TITLE = "org.opencontainers.image.title"


def digest_of(content: bytes) -> str:
    """The name of some content: `sha256:` and 64 hex digits."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def canonical_json(value: Any) -> bytes:
    """JSON that has the same bytes for the same value, so that it has one digest."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True)
class Descriptor:
    """What points at content in a registry: its type, its digest and its size in bytes."""

    media_type: str
    digest: str
    size: int
    artifact_type: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, content: bytes, media_type: str) -> Descriptor:
        """The descriptor of some bytes."""
        return cls(media_type, digest_of(content), len(content))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Descriptor:
        """Read one from a manifest. Raises `KeyError` where a required part is missing."""
        annotations = value.get("annotations") or {}
        artifact_type = str(value.get("artifactType") or "")
        return cls(str(value["mediaType"]), str(value["digest"]), int(value["size"]), artifact_type, dict(annotations))

    def as_json(self) -> dict[str, Any]:
        """The descriptor as a manifest holds it."""
        value: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        if self.artifact_type:
            value["artifactType"] = self.artifact_type
        if self.annotations:
            value["annotations"] = dict(self.annotations)
        return value


@dataclass(frozen=True)
class Manifest:
    """A manifest or an index, with the very bytes that its digest is about.

    Writing these bytes elsewhere, or under another tag, keeps the digest.
    """

    content: bytes
    media_type: str

    @cached_property
    def digest(self) -> str:
        """The digest, computed from the bytes."""
        return digest_of(self.content)

    @cached_property
    def json(self) -> dict[str, Any]:
        """The manifest as JSON. Raises `ValueError` where it is not a JSON object."""
        value = json.loads(self.content)
        if not isinstance(value, dict):
            raise ValueError(f"manifest {self.digest} is not a JSON object")  # noqa: TRY004
        return value

    @property
    def descriptor(self) -> Descriptor:
        """What points at this manifest."""
        return Descriptor(self.media_type, self.digest, len(self.content), self.artifact_type, self.annotations)

    @property
    def is_index(self) -> bool:
        """Whether this lists other manifests (one a platform, say) instead of layers."""
        return self.media_type in INDEX_TYPES

    @property
    def config_digest(self) -> str:
        """The digest of the config blob, which for an image is the image ID; empty for an index."""
        return str((self.json.get("config") or {}).get("digest", ""))

    @property
    def artifact_type(self) -> str:
        """What kind of artifact this is; empty for an image."""
        return str(self.json.get("artifactType") or "")

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations on the manifest itself."""
        return dict(self.json.get("annotations") or {})

    @property
    def layers(self) -> list[Descriptor]:
        """The blobs of an image or an artifact, in order."""
        return [Descriptor.from_json(layer) for layer in self.json.get("layers") or []]

    @property
    def manifests(self) -> list[Descriptor]:
        """What an index lists."""
        return [Descriptor.from_json(entry) for entry in self.json.get("manifests") or []]

    @property
    def size(self) -> int:
        """Bytes of all layers together, as they travel (compressed)."""
        return sum(layer.size for layer in self.layers)
