"""The inputs digest: what decides a target's content, part by part, each with where it came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

# Raise it when buildkit itself changes what the same inputs produce.
FORMAT_VERSION = "2"


def sha256(data: bytes) -> str:
    """The digest of some bytes, in OCI's notation."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass(frozen=True)
class Part:
    """One thing that decides the content: a name, a value that changes with it, and its origin."""

    name: str
    value: str
    origin: str


def inputs_digest(parts: Sequence[Part]) -> str:
    """The digest over names and values. Origins do not count: a moved line changes no image."""
    named = {part.name: part.value for part in parts}
    if len(named) != len(parts):
        raise ValueError("two parts of an inputs digest have the same name")
    return sha256(json.dumps(named, sort_keys=True, separators=(",", ":")).encode())


@dataclass(frozen=True)
class ContextFile:
    """A file that a Containerfile may COPY. `mode` is only ever executable or not, as in git."""

    path: str
    data: bytes
    executable: bool
    origin: str

    @property
    def mode(self) -> int:
        """The permission bits in the image."""
        return 0o755 if self.executable else 0o644

    def as_part(self) -> Part:
        """The file as a part of the inputs digest."""
        return Part(f"context:{self.path}", f"{self.mode:o} {sha256(self.data)}", self.origin)
