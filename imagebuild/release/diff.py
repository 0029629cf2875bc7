"""Which packages changed between two images, by what their smoke checks wrote down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from imagebuild.engine.registry import Registry
from imagebuild.errors import WorkError
from imagebuild.run import evidence
from imagebuild.spec.reference import Reference

FILE = "packages.json"  # written by images/common/smoke/90-packages.py
Kind = Literal["os", "python"]


class Packages(BaseModel):
    """The packages in one image: name -> version, of the system and of Python."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    os: dict[str, str]
    python: dict[str, str]


@dataclass(frozen=True)
class Change:
    """A package that is in only one of two images, or in another version; None where it is absent."""

    kind: Kind
    package: str
    before: str | None
    after: str | None


def read(files: Mapping[str, bytes], what: str) -> Packages:
    """The packages among the files that a smoke run left.

    Raises:
        WorkError: they are not there, or not readable.
    """
    hint = "its smoke checks must have passed with this version of buildkit: `buildkit smoke --again`, then push"
    if FILE not in files:
        raise WorkError(f"nobody wrote down the packages in {what}", hint=hint)
    try:
        return Packages.model_validate_json(files[FILE])
    except ValidationError as error:
        raise WorkError(f"the list of packages in {what} is not readable: {error}", hint=hint) from None


def packages_at(registry: Registry, reference: Reference) -> Packages:
    """The packages in an image in the registry.

    Raises:
        WorkError: there is no such image, or nobody wrote down its packages.
    """
    found = registry.head(reference)
    if found is None:
        raise WorkError(f"{reference} is not in the registry")
    return read(evidence.artifacts(registry, reference.repository, found.digest), str(reference))


def changes(before: Packages, after: Packages) -> Iterator[Change]:
    """What changed, the system's packages first, by name."""
    pairs: tuple[tuple[Kind, Mapping[str, str], Mapping[str, str]], ...] = (
        ("os", before.os, after.os), ("python", before.python, after.python),
    )  # fmt: skip
    for kind, old, new in pairs:
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield Change(kind, name, old.get(name), new.get(name))
