"""The shape of the facts about the learning stack and what serves its policies."""

from __future__ import annotations

from typing import Any, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from imagebuild.spec import values
from imagebuild.spec.fact_types import Cc, DriverText, Fact, Pythons, Spec, V


class Sb3Release(Fact):
    """What one release of Stable-Baselines3 requires."""

    py: Spec
    torch: Spec
    gym: str = ""
    gymnasium: Spec | None = None
    numpy: Spec = SpecifierSet("")
    note: str = ""


class Sb3Facts(Fact):
    """Stable-Baselines3."""

    releases: dict[V, Sb3Release]
    not_released: tuple[V, ...]
    yanked: tuple[V, ...]
    numpy2_from: V


class ContribRelease(Fact):
    """What one release of sb3-contrib requires."""

    py: Spec
    sb3: Spec


class ContribFacts(Fact):
    """sb3-contrib."""

    releases: dict[V, ContribRelease]


class GymnasiumRelease(Fact):
    """What one release of Gymnasium requires."""

    py: Spec
    mujoco: Spec
    numpy: Spec
    mujoco_max: Spec = SpecifierSet("")
    envs: tuple[str, ...] = ()


class GymnasiumFacts(Fact):
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


class MujocoRelease(Fact):
    """What one release of MuJoCo's wheels requires."""

    glibc: V
    py: Pythons
    note: str = ""


class MujocoFacts(Fact):
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


class Line(Fact):
    """A line of releases (major.minor) and the newest patch seen of it."""

    newest: V
    py: Pythons


class NumpyFacts(Fact):
    """NumPy."""

    lines: dict[V, Line]
    yanked: tuple[V, ...]


class RayLine(Fact):
    """A range of Ray's major.minor lines and the Gymnasium that RLlib pins there."""

    first: V
    last: V
    gymnasium: V
    py: Pythons


class RayFacts(Fact):
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


class Symptom(Fact):
    """What a wrong CUDA looks like, through this line."""

    symptom: str
    through: V | None = None


class OrtFacts(Fact):
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


class TensorRTPackage(Fact):
    """The first and last release of tensorrt-cuNN (`last`: ended; `newest`: so far), and the driver it needs."""

    first: V | None = None
    last: V | None = None
    newest: V | None = None
    driver: DriverText | None = None


class TensorRTMajor(Fact):
    """The TensorRT major that ONNX Runtime needs, through this line."""

    major: int
    through: V | None = None


class TensorRTFacts(Fact):
    """TensorRT."""

    packages: dict[str, TensorRTPackage]
    metapackage: dict[Literal["cu13_from"], V]
    releases: tuple[V, ...]
    onnxruntime_needs: tuple[TensorRTMajor, ...]
    min_cc: dict[V, Cc]
    note: str
