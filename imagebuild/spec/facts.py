"""The compatibility facts: `compat.yaml`, read once into typed, frozen objects."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field

from imagebuild.spec.fact_types import Fact, V
from imagebuild.spec.facts_gpu import CudaFacts, GpuFacts, ImageFacts, TorchFacts
from imagebuild.spec.facts_stack import (
    ContribFacts,
    GymnasiumFacts,
    MujocoFacts,
    NumpyFacts,
    OrtFacts,
    RayFacts,
    Sb3Facts,
    TensorRTFacts,
)

FILE = Path(__file__).with_name("compat.yaml")


class Source(Fact):
    """Where the facts of a section come from, and when that was read."""

    date: str
    text: str

    def __str__(self) -> str:
        return f"{self.text} ({self.date})"


class OsRelease(Fact):
    """An operating system's C library, C++ library (the newest GLIBCXX symbol version), Pythons and end of life."""

    glibc: V
    libstdcxx: V
    python: tuple[V, ...]
    since: dict[V, str] = Field({})
    default: V
    complete: bool = False
    until: str


class Claim(Fact):
    """A claim in circulation, and whether it holds."""

    claim: str
    verdict: Annotated[str, BeforeValidator(lambda value: {True: "true", False: "false"}.get(value, value))]
    why: str
    source: str


class Claims(Fact):
    """Claims in circulation."""

    list: tuple[Claim, ...]


class Facts(Fact):
    """Everything in `compat.yaml`."""

    as_of: str
    sources: dict[str, Source]
    torch: TorchFacts
    gpu: GpuFacts
    cuda: CudaFacts
    image: ImageFacts
    sb3: Sb3Facts
    sb3_contrib: ContribFacts
    gymnasium: GymnasiumFacts
    mujoco: MujocoFacts
    numpy: NumpyFacts
    ray: RayFacts
    onnxruntime: OrtFacts
    tensorrt: TensorRTFacts
    podman: dict[str, Any]
    os: dict[str, OsRelease]
    claims: Claims

    def source(self, section: str) -> str:
        """Where a section's facts come from, with the day."""
        return str(self.sources[section])


def read(path: Path = FILE) -> Mapping[str, Any]:
    """The facts file as plain data."""
    with path.open("rb") as stream:
        data: Mapping[str, Any] = yaml.load(stream, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    return data


@functools.cache
def load() -> Facts:
    """The facts that come with buildkit, read on the first call."""
    return Facts.model_validate(read())
