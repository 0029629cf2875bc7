"""What the facts say of a row's images. The smoke checks look inside; where they differ, a fact is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from packaging.version import Version

from imagebuild.spec import values
from imagebuild.spec.facts import Facts
from imagebuild.spec.models import Row


@dataclass(frozen=True)
class Expectation:
    """One fact about an image: `value` in JSON, `fact` is its place in compat.yaml, `source` where it is from."""

    name: str
    value: str | list[str]
    fact: str
    source: str


def expectations(row: Row, facts: Facts) -> dict[str, dict[str, Any]]:
    """What the facts say of a row's images, by name, as JSON values. What they do not know is left out."""
    found = (*_system(row, facts), *_torch(row, facts), *_driver(row, facts), *_wheels(row, facts))
    return {one.name: asdict(one) for one in found}


def _system(row: Row, facts: Facts) -> Iterator[Expectation]:
    if system := facts.os.get(row.os):
        source = facts.source("os")
        yield Expectation("glibc", str(system.glibc), f"os.{row.os}.glibc", source)
        yield Expectation("libstdcxx", str(system.libstdcxx), f"os.{row.os}.libstdcxx", source)


def _torch(row: Row, facts: Facts) -> Iterator[Expectation]:
    torch = Version(row.torch)
    entry = facts.torch.by_version.get(torch)
    if entry is None:
        return
    place, source = f"torch.releases {torch}", facts.source("torch")
    override = entry.glibc_override.get(row.variant)
    yield Expectation("torch_glibc", str(override or entry.glibc),
                      f"{place} glibc_override {row.variant}" if override else f"{place} glibc", source)  # fmt: skip
    if row.wheels == "pypi":
        yield Expectation("torch_default", entry.default, f"{place} default", source)
    if row.variant in entry.variants_of(torch):
        cudnn, architectures = entry.variants[row.variant]
        if cudnn:
            yield Expectation("cudnn", str(cudnn), f"{place} variants {row.variant}", source)
        known = [str(one) for one in facts.torch.sm_sets[architectures]]
        where = f"torch.sm_sets {architectures} ({place} variants {row.variant})"
        yield Expectation("architectures", known, where, source)


def _driver(row: Row, facts: Facts) -> Iterator[Expectation]:
    """The oldest driver that runs the wheel's CUDA (minor-version compatibility), and the one that it was made for."""
    if row.cuda is None:
        return
    cuda, source = Version(row.cuda), facts.source("cuda")
    if floor := facts.cuda.minor_compat_driver.get(cuda.major):
        yield Expectation("driver", str(floor), f"cuda.minor_compat_driver {cuda.major}", source)
    if toolkit := facts.cuda.first_of_minor.get(cuda):
        yield Expectation("toolkit_driver", str(toolkit.driver), f"cuda.toolkits {toolkit.v} driver", source)


def _wheels(row: Row, facts: Facts) -> Iterator[Expectation]:
    """The floors of the other wheels with compiled code, where the row says which release it is."""
    around = facts.mujoco.around(Version(row.mujoco)) if row.mujoco else None
    if around:
        place = f"mujoco.releases around {row.mujoco} glibc"
        yield Expectation("mujoco_glibc", str(max(one.glibc for one in around)), place, facts.source("mujoco"))
    minor = values.minor_of(Version(row.onnxruntime)) if row.onnxruntime else None
    if minor and (line := facts.onnxruntime.lines.get(minor)):
        place, source = f"onnxruntime.lines {minor}", facts.source("onnxruntime")
        yield Expectation("onnxruntime_glibc", str(line.glibc), f"{place} glibc", source)
        if row.is_cuda and line.cuda and line.cudnn:
            yield Expectation("onnxruntime_cuda", str(line.cuda.major), f"{place} cuda", source)
            yield Expectation("onnxruntime_cudnn", str(line.cudnn), f"{place} cudnn", source)
