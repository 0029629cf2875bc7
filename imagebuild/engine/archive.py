"""An image in a file: an OCI archive, read without unpacking it."""

from __future__ import annotations

import gzip
import json
import tarfile
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self, cast

from imagebuild.engine.manifest import OCI_MANIFEST, Descriptor, Manifest
from imagebuild.errors import WorkError

_GZIP = b"\x1f\x8b"


class ImageArchive:
    """One image in an OCI archive. To be used in a `with` block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._tar = tarfile.open(path)  # noqa: SIM115  (closed by __exit__)
        except (OSError, tarfile.TarError) as error:
            raise WorkError(f"{path} is not an OCI archive: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_unused: object) -> None:
        self._tar.close()

    @cached_property
    def manifest(self) -> Manifest:
        """The image's manifest."""
        index = json.loads(self._member("index.json").read())
        (entry,) = index["manifests"]
        return Manifest(self.blob(entry["digest"]).read(), str(entry.get("mediaType") or OCI_MANIFEST))

    @cached_property
    def config(self) -> dict[str, Any]:
        """The image's config, whose digest is the image ID."""
        return cast("dict[str, Any]", json.loads(self.blob(self.manifest.config_digest).read()))

    @property
    def diff_ids(self) -> list[str]:
        """The digests of the layers as they are uncompressed."""
        return [str(digest) for digest in self.config["rootfs"]["diff_ids"]]

    @property
    def layers(self) -> list[Descriptor]:
        """The layers as they travel, compressed."""
        return self.manifest.layers

    @property
    def steps(self) -> list[str]:
        """The instruction that made each layer."""
        history = self.config.get("history") or []
        return [str(step.get("created_by", "")) for step in history if not step.get("empty_layer")]

    def blob(self, digest: str) -> IO[bytes]:
        """The content with this digest, as a file that can seek."""
        return self._member(f"blobs/{digest.replace(':', '/')}")

    def layer(self, number: int) -> IO[bytes]:
        """A layer's tar as a stream; layers count from 0."""
        blob = self.blob(self.layers[number].digest)
        compressed = blob.read(2) == _GZIP
        blob.seek(0)
        return cast("IO[bytes]", gzip.open(blob)) if compressed else blob

    def _member(self, name: str) -> IO[bytes]:
        try:
            content = self._tar.extractfile(name)
        except KeyError:
            content = None
        if content is None:
            raise WorkError(f"{self.path} has no {name}: it is not a whole OCI archive")
        return content
