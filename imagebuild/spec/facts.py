"""The compatibility facts: `compat.yaml`, read once into typed, frozen objects."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from imagebuild.spec import values
from imagebuild.spec.values import Arch, Base, Capability, Driver, PythonRange

FILE = Path(__file__).with_name("compat.yaml")


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


class _Fact(BaseModel):
    """Frozen, and strict about names: a misspelt key in the facts would silently be no fact."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True)

    def __hash__(self) -> int:
        """By identity: facts are loaded once, and caches are kept per set of facts."""
        return id(self)


class Source(_Fact):
    """Where the facts of a section come from, and when that was read."""

    date: str
    text: str

    def __str__(self) -> str:
        return f"{self.text} ({self.date})"


class TorchRelease(_Fact):
    """Releases of torch that share one entry; `torchvision` and `torchaudio` are parallel to `v`."""

    v: tuple[V, ...]
    py: Pythons
    default: str
    glibc: V
    tag: str
    triton: str = ""
    torchvision: tuple[V, ...]
    torchaudio: tuple[V, ...]
    variants: dict[str, tuple[V | None, str]]
    only: dict[str, tuple[V, ...]] = {}
    glibc_override: dict[str, V] = {}
    no_triton: dict[V, V] = {}
    unsure: tuple[str, ...] = ()
    note: str = ""

    def variants_of(self, release: Version) -> list[str]:
        """The CUDA variants of one of these releases."""
        return [name for name in self.variants if release in self.only.get(name, self.v)]

    def torchvision_of(self, release: Version) -> Version:
        """The torchvision that was made for this release."""
        return self.torchvision[self.v.index(release)]


class PythonBan(_Fact):
    """A Python patch release that a range of torchvision releases refuses."""

    python: V
    torchvision: Spec


class TorchFacts(_Fact):
    """Wheels of torch and torchvision."""

    sm_sets: dict[str, tuple[ArchEntry, ...]]
    releases: tuple[TorchRelease, ...]
    ceilings: dict[str, V]
    floors: dict[str, V]
    never_published: tuple[str, ...]
    unconfirmed: dict[str, V]
    numpy2_from: V
    cxx20_headers_from: V
    torchvision_yanked: tuple[V, ...]
    torchvision_free: dict[V, Spec]
    torchvision_not_on: PythonBan

    @functools.cached_property
    def by_version(self) -> dict[Version, TorchRelease]:
        """Every known release, oldest first."""
        return {release: entry for entry in self.releases for release in entry.v}

    @functools.cached_property
    def torchvisions(self) -> tuple[Version, ...]:
        """Every known torchvision that is not yanked, oldest first."""
        return tuple(sorted({release for entry in self.releases for release in entry.torchvision}))


class CudnnDrop(_Fact):
    """From this cuDNN on, GPUs below this compute capability are left out."""

    from_: V = Field(alias="from")
    below_cc: Cc


class DriverDrop(_Fact):
    """From this driver on, GPUs below this compute capability are left out."""

    from_: DriverText = Field(alias="from")
    below_cc: Cc


class GpuFacts(_Fact):
    """Compute capabilities, and who stopped serving which."""

    cc: dict[str, Cc]
    consumer: frozenset[str]
    driver_drops: DriverDrop
    cudnn_drops: CudnnDrop


class Toolkit(_Fact):
    """One CUDA toolkit: the driver it was made for, and the [lowest, highest] capability it compiles for."""

    v: V
    driver: DriverText
    cc: tuple[Cc, Cc]
    unsure: bool = False
    note: str = ""


class Rhel8(_Fact):
    """What is known of CUDA on RHEL 8."""

    proven_through: V


class CudaFacts(_Fact):
    """Toolkits and drivers."""

    minor_compat_driver: dict[int, DriverText]
    toolkits: tuple[Toolkit, ...]
    not_released: tuple[V, ...]
    rhel8: Rhel8

    @functools.cached_property
    def first_of_minor(self) -> dict[Version, Toolkit]:
        """The oldest toolkit of each CUDA major.minor."""
        found: dict[Version, Toolkit] = {}
        for toolkit in self.toolkits:
            found.setdefault(values.minor_of(toolkit.v), toolkit)
        return found

    @functools.cached_property
    def by_version(self) -> dict[Version, Toolkit]:
        """Each toolkit under its version."""
        return {toolkit.v: toolkit for toolkit in self.toolkits}


class ImageRelease(_Fact):
    """The nvidia/cuda images of one CUDA release."""

    v: V
    cudnn: str | None
    cudnn_v: V | None
    os: str
    no_cudnn_on: frozenset[str] = frozenset()
    old_branches: tuple[int, ...]


class CudnnWord(_Fact):
    """The word in a tag for images with cuDNN, through this CUDA release."""

    word: str
    through: V | None = None


class ImageFacts(_Fact):
    """Published tags of nvidia/cuda."""

    os_sets: dict[str, tuple[str, ...]]
    releases: tuple[ImageRelease, ...]
    tags_seen: tuple[str, ...]
    no_cudnn: tuple[V, ...]
    cudnn_words: tuple[CudnnWord, ...]
    os_first_cuda: dict[str, V]
    os_last_cuda: dict[str, V]
    policy: str

    @functools.cached_property
    def by_version(self) -> dict[Version, ImageRelease]:
        """Each CUDA release's images under its version."""
        return {release.v: release for release in self.releases}

    @functools.cached_property
    def published(self) -> tuple[Base, ...]:
        """Every image that the list of releases stands for."""
        tags = []
        for entry in self.releases:
            for system in self.os_sets[entry.os]:
                words = [entry.cudnn] if entry.cudnn and system not in entry.no_cudnn_on else []
                tags += [f"{entry.v}-{flavour}-{system}" for flavour in ("base", "runtime", "devel")]
                tags += [f"{entry.v}-{word}-{flavour}-{system}" for word in words for flavour in ("runtime", "devel")]
        return tuple(values.base(tag) for tag in tags)

    def cudnn_word(self, cuda: Version) -> str:
        """The word that a tag of this CUDA release uses for cuDNN."""
        return next(rule.word for rule in self.cudnn_words if rule.through is None or cuda <= rule.through)


class Sb3Release(_Fact):
    """What one release of Stable-Baselines3 requires."""

    py: Spec
    torch: Spec
    gym: str = ""
    gymnasium: Spec | None = None
    numpy: Spec = SpecifierSet("")
    note: str = ""


class Sb3Facts(_Fact):
    """Stable-Baselines3."""

    releases: dict[V, Sb3Release]
    not_released: tuple[V, ...]
    yanked: tuple[V, ...]
    numpy2_from: V


class ContribRelease(_Fact):
    """What one release of sb3-contrib requires."""

    py: Spec
    sb3: Spec


class ContribFacts(_Fact):
    """sb3-contrib."""

    releases: dict[V, ContribRelease]


class GymnasiumRelease(_Fact):
    """What one release of Gymnasium requires."""

    py: Spec
    mujoco: Spec
    numpy: Spec
    mujoco_max: Spec = SpecifierSet("")
    envs: tuple[str, ...] = ()


class GymnasiumFacts(_Fact):
    """Gymnasium."""

    releases: dict[V, GymnasiumRelease]
    mujoco4_measured_from: V
    environments: tuple[dict[str, str], ...]

    def at(self, release: Version) -> GymnasiumRelease | None:
        """The entry of this release, or of the nearest known one of the same major.minor line."""
        if release in self.releases:
            return self.releases[release]
        line = [known for known in self.releases if values.minor_of(known) == values.minor_of(release)]
        return self.releases[min(line, key=lambda known: abs(known.micro - release.micro))] if line else None


class MujocoRelease(_Fact):
    """What one release of MuJoCo's wheels requires."""

    glibc: V
    py: Pythons
    note: str = ""


class MujocoFacts(_Fact):
    """MuJoCo."""

    releases: dict[V, MujocoRelease]
    upgrade_trap: str
    mujoco_py: dict[str, Any]

    def around(self, release: Version) -> list[MujocoRelease]:
        """The entries that speak for a release: its own, or those of both neighbours in the sample."""
        if release in self.releases:
            return [self.releases[release]]
        older = [entry for known, entry in self.releases.items() if known < release]
        newer = [entry for known, entry in self.releases.items() if known > release]
        return [older[-1], newer[0]] if older and newer else []


class Line(_Fact):
    """A line of releases (major.minor) and the newest patch seen of it."""

    newest: V
    py: Pythons


class NumpyFacts(_Fact):
    """NumPy."""

    lines: dict[V, Line]
    yanked: tuple[V, ...]


class RayLine(_Fact):
    """A range of Ray's major.minor lines and the Gymnasium that RLlib pins there."""

    first: V
    last: V
    gymnasium: V
    py: Pythons


class RayFacts(_Fact):
    """Ray with RLlib."""

    lines: tuple[RayLine, ...]
    newest: V

    def at(self, release: Version) -> RayLine | None:
        """The line that a release belongs to."""
        minor = values.minor_of(release)
        return next((line for line in self.lines if line.first <= minor <= line.last), None)


class OrtLine(Line):
    """A line of ONNX Runtime; `cuda` and `cudnn` are what the GPU wheel is built for."""

    cuda: V | None = None
    cudnn: int | None = None
    tensorrt: str = ""
    opset: int | None = None
    glibc: V
    numpy: Spec = SpecifierSet("")
    cpu_only: bool = False
    extras: bool = True
    unsure: bool = False
    note: str = ""


class Symptom(_Fact):
    """What a wrong CUDA looks like, through this line."""

    symptom: str
    through: V | None = None


class OrtFacts(_Fact):
    """ONNX Runtime."""

    lines: dict[V, OrtLine]
    extras_from: V
    cudnn_optional_from: V
    cuda13_min_cc: Cc
    onnx_default_opset: dict[V, int]
    wrong_cuda: tuple[Symptom, ...]

    def symptom(self, release: Version) -> str:
        """What a wrong CUDA looks like with this release."""
        minor = values.minor_of(release)
        return next(one.symptom for one in self.wrong_cuda if one.through is None or minor <= one.through)


class TensorRTPackage(_Fact):
    """The first and last release of tensorrt-cuNN (`last`: ended; `newest`: so far), and the driver it needs."""

    first: V | None = None
    last: V | None = None
    newest: V | None = None
    driver: DriverText | None = None


class TensorRTMajor(_Fact):
    """The TensorRT major that ONNX Runtime needs, through this line."""

    major: int
    through: V | None = None


class TensorRTFacts(_Fact):
    """TensorRT."""

    packages: dict[str, TensorRTPackage]
    metapackage: dict[Literal["cu13_from"], V]
    releases: tuple[V, ...]
    onnxruntime_needs: tuple[TensorRTMajor, ...]
    min_cc: dict[V, Cc]
    note: str


class OsRelease(_Fact):
    """An operating system's C library, Pythons and end of life."""

    glibc: V
    python: tuple[V, ...]
    since: dict[V, str] = {}
    default: V
    complete: bool = False
    until: str


class Claim(_Fact):
    """A claim in circulation, and whether it holds."""

    claim: str
    verdict: Annotated[str, BeforeValidator(lambda value: {True: "true", False: "false"}.get(value, value))]
    why: str
    source: str


class Claims(_Fact):
    """Claims in circulation."""

    list: tuple[Claim, ...]


class Facts(_Fact):
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
