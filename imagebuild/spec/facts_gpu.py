"""The shape of the facts about wheels of torch, GPUs, CUDA, drivers and the images of nvidia/cuda."""

from __future__ import annotations

import functools

from packaging.version import Version
from pydantic import Field

from imagebuild.spec import values
from imagebuild.spec.fact_types import ArchEntry, Cc, DriverText, Fact, Pythons, Spec, V
from imagebuild.spec.values import Base


class TorchRelease(Fact):
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
    only: dict[str, tuple[V, ...]] = Field({})
    glibc_override: dict[str, V] = Field({})
    no_triton: dict[V, V] = Field({})
    unsure: tuple[str, ...] = ()
    note: str = ""

    def variants_of(self, release: Version) -> list[str]:
        """The CUDA variants of one of these releases."""
        return [name for name in self.variants if release in self.only.get(name, self.v)]

    def torchvision_of(self, release: Version) -> Version:
        """The torchvision that was made for this release."""
        return self.torchvision[self.v.index(release)]


class PythonBan(Fact):
    """A Python patch release that a range of torchvision releases refuses."""

    python: V
    torchvision: Spec


class TorchFacts(Fact):
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


class CudnnDrop(Fact):
    """From this cuDNN on, GPUs below this compute capability are left out."""

    from_: V = Field(alias="from")
    below_cc: Cc


class DriverDrop(Fact):
    """From this driver on, GPUs below this compute capability are left out."""

    from_: DriverText = Field(alias="from")
    below_cc: Cc


class GpuFacts(Fact):
    """Compute capabilities, and who stopped serving which."""

    cc: dict[str, Cc]
    consumer: frozenset[str]
    driver_drops: DriverDrop
    cudnn_drops: CudnnDrop


class Toolkit(Fact):
    """One CUDA toolkit: the driver it was made for, and the [lowest, highest] capability it compiles for."""

    v: V
    driver: DriverText
    cc: tuple[Cc, Cc]
    unsure: bool = False
    note: str = ""


class Rhel8(Fact):
    """What is known of CUDA on RHEL 8."""

    proven_through: V


class CudaFacts(Fact):
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


class ImageRelease(Fact):
    """The nvidia/cuda images of one CUDA release."""

    v: V
    cudnn: str | None
    cudnn_v: V | None
    os: str
    no_cudnn_on: frozenset[str] = frozenset()
    old_branches: tuple[int, ...]


class CudnnWord(Fact):
    """The word in a tag for images with cuDNN, through this CUDA release."""

    word: str
    through: V | None = None


class ImageFacts(Fact):
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
