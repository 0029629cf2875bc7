"""What a row's texts mean: versions, wheel variants, base images, GPUs and drivers, each read from its text once."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

BOOTSTRAP = "bootstrap"
_VARIANT = re.compile(r"cu([0-9]{2})([0-9])", re.ASCII)
_CUDA_TAG = re.compile(
    r"(?P<cuda>[0-9]+(\.[0-9]+){1,2})(-(?P<cudnn>cudnn[0-9]*))?-(?P<flavour>base|runtime|devel)-(?P<os>[a-z]+[0-9.]+)",
    re.ASCII,
)
_TENSORRT = re.compile(r"(?:(?P<package>tensorrt(?:-cu(?P<cuda>[0-9]{2}))?)==)?(?P<version>[^=\s]+)", re.ASCII)
_DRIVER = re.compile(r"[rR]?([0-9]{3}(\.[0-9]+){0,3})", re.ASCII)
_CC = re.compile(r"(?:sm_?|cc ?)?([0-9]{1,2})\.?([0-9])", re.ASCII | re.IGNORECASE)


class Capability(NamedTuple):
    """A CUDA compute capability, such as 8.6."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class Arch(NamedTuple):
    """One entry of a wheel's architecture list; with PTX it can be compiled for later GPUs too."""

    cc: Capability
    ptx: bool

    def runs_on(self, gpu: Capability) -> bool:
        """Binary code runs on its own major with at least its minor; PTX on anything that is not older."""
        return self.cc <= gpu and (self.ptx or self.cc.major == gpu.major)

    def __str__(self) -> str:
        return f"{self.cc}+PTX" if self.ptx else str(self.cc)


class PythonRange(NamedTuple):
    """The first and the last Python (major.minor) that a release has wheels for."""

    first: Version
    last: Version

    def holds(self, python: Version) -> bool:
        """Whether this Python is in the range; its patch release does not matter."""
        return self.first <= minor_of(python) <= self.last

    def __str__(self) -> str:
        return f"{self.first} to {self.last}"


@dataclass(frozen=True)
class Variant:
    """A torch wheel variant: `cpu`, or `cu118` with its CUDA release."""

    name: str
    cuda: Version | None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Base:
    """What an image is built on. Only for tags of nvidia/cuda do we know what is inside.

    `cuda` is None for all others; `unreadable` marks an nvidia/cuda reference whose tag has no meaning.
    """

    reference: str
    tag: str = ""
    cuda: Version | None = None
    cudnn: str | None = None
    flavour: str = ""
    os: str | None = None
    unreadable: bool = False

    @property
    def is_bootstrap(self) -> bool:
        """Whether buildkit makes the root filesystem itself, from the distribution's packages."""
        return self.reference == BOOTSTRAP

    def with_tag(self, tag: str) -> str:
        """The reference with another tag (and no digest, which would name the old one)."""
        name = self.reference.partition("@")[0]
        return f"{name.removesuffix(':' + self.tag)}:{tag}" if self.tag else f"{name}:{tag}"

    def __str__(self) -> str:
        return self.tag or self.reference


@dataclass(frozen=True)
class TensorRT:
    """A TensorRT release; `package` and `cuda_major` are empty where the text names only a version."""

    version: Version
    package: str = ""
    cuda_major: int | None = None


def version(text: str) -> Version:
    """Read a PEP 440 version.

    Raises:
        ValueError: it is none.
    """
    try:
        return _version(text)
    except InvalidVersion:
        raise ValueError(f"{text!r} is not a version") from None


@functools.lru_cache(maxsize=65536)
def _version(text: str) -> Version:
    return Version(text)


def minor_of(full: Version) -> Version:
    """The major.minor line that a release belongs to."""
    return _version(f"{full.major}.{full.minor}")


@functools.lru_cache(maxsize=65536)
def admits(spec: SpecifierSet, full: Version) -> bool:
    """Whether a requirement admits this version, pre-releases included: the row has named it, nobody is searching."""
    return spec.contains(full, prereleases=True)


def spelled(spec: SpecifierSet) -> str:
    """A requirement as people write it, the floor first."""
    return ",".join(sorted(map(str, spec), reverse=True))


def variant(text: str) -> Variant:
    """Read a wheel variant.

    Raises:
        ValueError: it is neither `cpu` nor of the form cu118.
    """
    if text == "cpu":
        return Variant(text, None)
    found = _VARIANT.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not a variant of the torch wheel, like cpu or cu128")
    return Variant(text, _version(f"{found[1]}.{found[2]}"))


def base(text: str) -> Base:
    """Read `bootstrap`, an image reference, or a bare tag of nvidia/cuda.

    Raises:
        ValueError: it is empty or has blanks.
    """
    if not text or len(text.split()) != 1:
        raise ValueError(f"{text!r} is not an image")
    found = _CUDA_TAG.fullmatch(text)
    if not found:
        name, _, _ = text.partition("@")
        path, _, tag = name.rpartition(":") if ":" in name.rpartition("/")[2] else (name, "", "")
        if not path.endswith("nvidia/cuda"):
            return Base(text, tag)
        found = _CUDA_TAG.fullmatch(tag)
        if not found:
            return Base(text, tag, unreadable=bool(tag) or "@" not in text)
    return Base(text, found[0], _version(found["cuda"]), found["cudnn"], found["flavour"], found["os"])


def tensorrt(text: str) -> TensorRT:
    """Read `10.14` or `tensorrt-cu13==10.14`.

    Raises:
        ValueError: it is neither.
    """
    found = _TENSORRT.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not a TensorRT release, like 10.14.1.48 or tensorrt-cu13==10.14.1.48")
    return TensorRT(version(found["version"]), found["package"] or "", int(found["cuda"]) if found["cuda"] else None)


def opset(text: str) -> int:
    """Read an ONNX opset.

    Raises:
        ValueError: it is not a whole number from 1 on.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and int(text)):
        raise ValueError(f"{text!r} is not an ONNX opset, a whole number from 1 on")
    return int(text)


@dataclass(frozen=True, order=True)
class Driver:
    """An NVIDIA driver: dotted numbers, compared as such and shown as written (`470.256.02`)."""

    parts: tuple[int, ...]
    text: str = field(compare=False)

    @property
    def branch(self) -> int:
        """The release branch, such as 470."""
        return self.parts[0]

    def reaches(self, floor: Driver) -> bool:
        """Whether it is at least `floor`; a bare branch stands for its newest release."""
        return self.branch >= floor.branch if len(self.parts) == 1 else self.parts >= floor.parts

    def __str__(self) -> str:
        return self.text


def driver(text: str) -> Driver:
    """Read an NVIDIA driver version; a branch such as 535 or R535 will do.

    Raises:
        ValueError: it is none.
    """
    found = _DRIVER.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text!r} is not an NVIDIA driver version, like 535.104.05 or 535")
    return Driver(tuple(map(int, found[1].split("."))), found[1])


def capability(text: str) -> Capability:
    """Read a compute capability: `8.6`, `sm_86` or `86`.

    Raises:
        ValueError: it is none.
    """
    found = _CC.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text!r} is not a compute capability, like 8.6")
    return Capability(int(found[1]), int(found[2]))
