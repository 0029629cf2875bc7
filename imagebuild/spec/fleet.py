"""The fleet that images must run on: the driver versions and the GPUs that the site declares."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from imagebuild.spec import values
from imagebuild.spec.facts import Facts, load
from imagebuild.spec.findings import Finding, Severity
from imagebuild.spec.values import Capability, Driver

_BRANDS = re.compile(r"\b(NVIDIA|TESLA|GEFORCE|QUADRO)\b|\(.*?\)", re.IGNORECASE)


@dataclass(frozen=True)
class Fleet:
    """What the site declares: drivers (`470.256.02`, or a branch, `470`), GPU models or compute capabilities."""

    drivers: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gpu:
    """One model of GPU; `datacentre` is None where only the compute capability is known."""

    name: str
    cc: Capability
    datacentre: bool | None = None

    def __str__(self) -> str:
        given = self.name if self.datacentre is not None else "a GPU"
        return f"{given} (compute capability {self.cc})"


@dataclass(frozen=True)
class Hosts:
    """A fleet that was understood; what could not be is left out, and `check_fleet` says so."""

    drivers: tuple[Driver, ...]
    gpus: tuple[Gpu, ...]


def find_gpu(name: str, facts: Facts) -> Gpu | None:
    """The GPU that a model name (`NVIDIA A100-SXM4-80GB`) or a compute capability (`8.0`) means, if it is known."""
    words = re.split(r"[\s_-]+", _BRANDS.sub(" ", str(name)).strip().upper())
    for count in range(len(words), 0, -1):
        model = "".join(words[:count])
        if model in facts.gpu.cc:
            return Gpu(model, facts.gpu.cc[model], model not in facts.gpu.consumer)
    try:
        return Gpu(name, values.capability(str(name)))
    except ValueError:
        return None


def understand(fleet: Fleet, facts: Facts) -> Hosts:
    """Read a fleet's texts."""
    drivers = []
    for text in fleet.drivers:
        try:
            drivers.append(values.driver(str(text)))
        except ValueError:
            continue
    gpus = [found for text in fleet.gpus if (found := find_gpu(text, facts))]
    return Hosts(tuple(dict.fromkeys(drivers)), tuple(dict.fromkeys(gpus)))


def check_fleet(fleet: Fleet, facts: Facts | None = None, *, strict: bool = False) -> list[Finding]:
    """What is wrong with the fleet itself; `field` is `drivers` or `gpus`. `check_row` does not repeat it."""
    facts = facts or load()
    unknown: Severity = "error" if strict else "warning"
    findings = []
    for text in fleet.drivers:
        try:
            values.driver(str(text))
        except ValueError as error:
            findings.append(Finding("driver", str(error), "drivers"))
    for text in fleet.gpus:
        if not find_gpu(text, facts):
            near = difflib.get_close_matches(str(text).upper(), facts.gpu.cc, 1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            message = (
                f"GPU {text!r} is not in the facts{meant}: no row is checked against it; give its compute capability"
            )
            findings.append(Finding("unknown", message, "gpus", (), facts.source("gpu"), unknown))
    return [*findings, *_mismatches(understand(fleet, facts), facts)]


def _mismatches(hosts: Hosts, facts: Facts) -> Iterator[Finding]:
    """GPUs that no driver of the fleet can drive. Any pair may exist, so only a GPU without a single driver is told."""
    if not hosts.drivers:
        return
    drops = facts.gpu.driver_drops
    for gpu in hosts.gpus:
        floor = _first_driver(gpu.cc, facts)
        if floor and not any(driver.reaches(floor) for driver in hosts.drivers):
            message = f"no driver of the fleet knows {gpu}: it takes {floor} or newer"
        elif gpu.cc < drops.below_cc and min(hosts.drivers) >= drops.from_:
            message = f"no driver of the fleet drives {gpu}: branch {drops.from_} and later left it out"
        else:
            continue
        yield Finding("driver", message, "gpus", ("drivers",), facts.source("gpu"), "warning")


@functools.lru_cache(maxsize=256)
def _first_driver_of(cc: Capability, toolkits: tuple[tuple[Driver, Capability], ...]) -> Driver | None:
    ranges = [driver for driver, highest in toolkits if highest >= cc]
    # The oldest toolkit that we know says nothing of what came before it.
    return ranges[0] if ranges and toolkits[0][1] < cc else None


def _first_driver(cc: Capability, facts: Facts) -> Driver | None:
    """The driver of the first toolkit that compiles for a GPU, where the facts reach back that far."""
    return _first_driver_of(cc, tuple((toolkit.driver, toolkit.cc[1]) for toolkit in facts.cuda.toolkits))
