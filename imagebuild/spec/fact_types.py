"""What the facts are made of: versions, requirements and ranges, each read from its text."""

from __future__ import annotations

from typing import Annotated, Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, PlainValidator

from imagebuild.spec import values
from imagebuild.spec.values import Arch, Capability, Driver, PythonRange


def _python_range(pair: Any) -> PythonRange:
    first, last = pair
    return PythonRange(values.version(first), values.version(last))


def _arch(text: str) -> Arch:
    return Arch(values.capability(text.removesuffix("+PTX")), text.endswith("+PTX"))


DriverText = Annotated[Driver, PlainValidator(values.driver)]
V = Annotated[Version, PlainValidator(values.version)]
Spec = Annotated[SpecifierSet, PlainValidator(SpecifierSet)]
Pythons = Annotated[PythonRange, PlainValidator(_python_range)]
Cc = Annotated[Capability, PlainValidator(values.capability)]
ArchEntry = Annotated[Arch, PlainValidator(_arch)]


class Fact(BaseModel):
    """Frozen, and strict about names: a misspelt key in the facts would silently be no fact."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True)

    def __hash__(self) -> int:
        """By identity: facts are loaded once, and caches are kept per set of facts."""
        return id(self)
