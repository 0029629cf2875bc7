"""Rows that would work on a fleet: for each wheel variant the newest torch that everything allows, best first.

Nothing here knows a rule. A row is put together field by field, each time with the newest value that `check` accepts,
so what is suggested passes the check by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from imagebuild.errors import InputError, Problem
from imagebuild.spec import values
from imagebuild.spec.combo import NAMES, combo_of
from imagebuild.spec.compat import Checker, checker
from imagebuild.spec.facts import Facts, load
from imagebuild.spec.findings import Finding
from imagebuild.spec.fleet import Fleet, check_fleet
from imagebuild.spec.values import BOOTSTRAP

REPOSITORY = "docker.io/nvidia/cuda"
#: In the order of preference: what buildkit can bootstrap anywhere, then what needs an image from elsewhere.
SYSTEMS = ("debian12", "debian13", "rockylinux8", "rockylinux9", "ubuntu24.04", "ubuntu22.04")
_MOST_IMAGES = 4  # of a system, tried for one variant

#: Filled in this order, as an ONNX Runtime for CUDA 11 decides on NumPy, and Gymnasium on MuJoCo.
_STACK: dict[str, Callable[[Facts], Iterable[Version]]] = {
    "sb3": lambda facts: [release for release in facts.sb3.releases if release not in facts.sb3.yanked],
    "sb3_contrib": lambda facts: facts.sb3_contrib.releases,
    "gymnasium": lambda facts: facts.gymnasium.releases,
    "mujoco": lambda facts: facts.mujoco.releases,
    "onnxruntime": lambda facts: [line.newest for line in facts.onnxruntime.lines.values()],
    "numpy": lambda facts: [line.newest for line in facts.numpy.lines.values()],
}


@dataclass(frozen=True)
class Proposal:
    """A row that works: its fields, and for each the reason why it is not a newer one."""

    name: str
    fields: dict[str, str]
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def row(self) -> SimpleNamespace:
        """The row as an object that `check_row` takes."""
        return SimpleNamespace(**(dict.fromkeys(NAMES) | self.fields))

    @property
    def torch(self) -> Version:
        """Its torch release, by which proposals are ordered."""
        return values.version(self.fields["torch"])


def suggest(
    drivers: Sequence[str] = (),
    gpus: Sequence[str] = (),
    *,
    python: str | None = None,
    torch: str | None = None,
    variant: str | None = None,
    os: str | None = None,
    facts: Facts | None = None,
) -> list[Proposal]:
    """Rows that would work on these drivers and GPUs, the newest torch first; one for each wheel variant at most.

    Args:
        drivers: driver versions or branches, all of which the row must run on.
        gpus: GPU models or compute capabilities, likewise.
        python: the Python to keep to, such as `3.11`; otherwise the newest that the operating system packages.
        torch: a version or a requirement, such as `>=2.4`.
        variant: the wheel variant to keep to; `cpu` rows are only suggested if asked for, or if there is no fleet.
        os: the operating system to keep to.
        facts: the facts to go by; those that come with buildkit, if none are given.

    Raises:
        InputError: a driver, GPU, version, variant or system cannot be understood.
    """
    facts = facts or load()
    fleet = Fleet(tuple(drivers), tuple(gpus))
    wanted = _wanted(facts, fleet, python, torch, variant, os)
    checks = checker(fleet, facts)
    releases = [release for release in reversed(facts.torch.by_version) if values.admits(wanted, release)]
    found = []
    for name in _variants(facts, fleet, variant):
        proposal = _newest(checks, name, releases, python, [os] if os else SYSTEMS)
        if proposal:
            found.append(proposal)
    return sorted(found, key=lambda proposal: proposal.torch, reverse=True)


def obstacles(
    drivers: Sequence[str] = (),
    gpus: Sequence[str] = (),
    *,
    python: str | None = None,
    torch: str | None = None,
    variant: str | None = None,
    facts: Facts | None = None,
) -> list[str]:
    """Why `suggest` finds nothing: for each variant, what stands in the way of its newest torch."""
    facts = facts or load()
    fleet = Fleet(tuple(drivers), tuple(gpus))
    wanted = _wanted(facts, fleet, python, torch, variant, None)
    reasons = []
    for name in _variants(facts, fleet, variant):
        newest_first = reversed(facts.torch.by_version.items())
        having = [v for v, entry in newest_first if name == "cpu" or name in entry.variants_of(v)]
        release = next((v for v in having if values.admits(wanted, v)), having[0])
        row = {"torch": str(release), "variant": name} | ({"python": python} if python else {})
        reasons += [finding.message for finding in _errors(checker(fleet, facts), row)]
        if not values.admits(wanted, release):
            reasons.append(f"no torch {values.spelled(wanted)} has a {name} wheel (the newest with one is {release})")
    return list(dict.fromkeys(reasons))


def as_yaml(proposal: Proposal) -> str:
    """The proposal as text to paste under `rows:` in matrix.yaml, with the reasons as comments."""
    lines = [f"  {proposal.name}:"]
    for name, text in proposal.fields.items():
        shown = f'"{text}"' if text.count(".") < 2 and text.replace(".", "").isdigit() else text
        reason = proposal.reasons.get(name)
        lines.append(f"    {name}: {shown}".ljust(32) + (f"  # {reason}" if reason else ""))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _wanted(
    facts: Facts, fleet: Fleet, python: str | None, torch: str | None, variant: str | None, os: str | None
) -> SpecifierSet:
    """The requirement on torch, once everything that was asked for is understood."""
    problems = [Problem(found.message, rule=found.rule) for found in check_fleet(fleet, facts, strict=True)
                if found.severity == "error"]  # fmt: skip
    try:
        wanted = SpecifierSet(f"=={torch}" if torch and torch[0].isdigit() else torch or "")
    except InvalidSpecifier:
        wanted = SpecifierSet()
        problems.append(Problem(f"{torch!r} is not a requirement on torch, like >=2.4"))
    for reader, text in ((values.version, python), (values.variant, variant)):
        try:
            reader(text) if text is not None else None
        except ValueError as error:
            problems.append(Problem(str(error)))
    if os is not None and os not in facts.os:
        problems.append(Problem(f"the facts do not know the operating system {os} ({', '.join(facts.os)})"))
    if problems:
        raise InputError(problems)
    return wanted


def _variants(facts: Facts, fleet: Fleet, variant: str | None) -> list[str]:
    """The variants to try: the newest CUDA first."""
    if variant is not None:
        return [variant]
    cuda = sorted(facts.torch.floors, key=lambda name: int(name.removeprefix("cu")), reverse=True)
    return cuda if fleet.drivers or fleet.gpus else [*cuda, "cpu"]


def _newest(
    checks: Checker, variant: str, releases: Sequence[Version], python: str | None, systems: Sequence[str]
) -> Proposal | None:
    """The row with the newest of these torch releases that works as this variant."""
    refused = ""
    for release in releases:
        start = {"variant": variant, "torch": str(release)}
        errors = _errors(checks, start)
        if not errors:
            for platform in _platforms(checks.facts, variant, python, systems):
                fields = _filled(checks, platform | start)
                if fields:
                    return Proposal(variant, fields, _reasons(checks, fields, refused, python))
            errors = _errors(checks, start | ({"python": python} if python else {}))
        # The most telling reason is the one against the next newer release.
        refused = errors[0].message if errors else f"torch {release} finds no platform here"
    return None


def _platforms(facts: Facts, variant: str, python: str | None, systems: Sequence[str]) -> Iterator[dict[str, str]]:
    """Operating system, base and Python, the most wanted first."""
    cuda = values.variant(variant).cuda
    for system in systems:
        entry = facts.os[system]
        pythons = [values.version(python)] if python else sorted(entry.python, reverse=True)
        bases = [BOOTSTRAP, *_images(facts, system, cuda)] if cuda else [BOOTSTRAP]
        for base in bases if not system.startswith(("ubi", "centos")) else bases[1:]:
            yield from ({"os": system, "base": base, "python": str(one)} for one in pythons)


def _images(facts: Facts, system: str, cuda: Version) -> list[str]:
    """Images with cuDNN of a system and a CUDA major, the nearest to the wheel's CUDA first."""
    order = [release.v for release in facts.image.releases]
    here = sum(release < cuda for release in order)
    fitting = [
        image
        for image in facts.image.published
        if image.os == system and image.cudnn and image.flavour == "runtime" and image.cuda in order
        and image.cuda.major == cuda.major
    ]  # fmt: skip
    fitting.sort(key=lambda image: abs(order.index(image.cuda) - here) if image.cuda else 0)
    return [f"{REPOSITORY}:{image.tag}" for image in fitting[:_MOST_IMAGES]]


def _filled(checks: Checker, start: dict[str, str]) -> dict[str, str] | None:
    """The row completed with the newest of everything, or None if something has no value that fits."""
    if _flaws(checks, start):
        return None
    fields = dict(start)
    for name, known in _STACK.items():
        newest_first = sorted(known(checks.facts), reverse=True)
        fitting = (str(release) for release in newest_first if not _flaws(checks, fields | {name: str(release)}))
        text = next(fitting, None)
        if text is None:
            return None
        fields[name] = text
    return fields


def _reasons(checks: Checker, fields: dict[str, str], refused: str, python: str | None) -> dict[str, str]:
    """For each field, why it is what it is: what refuses the next newer value."""
    reasons = {"torch": f"the newest that works as {fields['variant']}" + (f" ({refused})" if refused else "")}
    if python:
        reasons["python"] = "as asked for"
    else:
        reasons["python"] = f"the newest of {fields['os']} that all of this takes"
    for name, known in _STACK.items():
        newer = sorted(release for release in known(checks.facts) if release > values.version(fields[name]))
        flaws = _flaws(checks, fields | {name: str(newer[0])}) if newer else []
        reasons[name] = (
            f"not {newer[0]}: {flaws[0].message}" if flaws else "the newest" if not newer else "goes with the rest"
        )
    return reasons


def _flaws(checks: Checker, fields: dict[str, str]) -> list[Finding]:
    """What speaks against a suggestion: warnings too, as there is something better then; old friends excepted."""
    found = checks.findings(combo_of(SimpleNamespace(**(dict.fromkeys(NAMES) | fields))))
    return [finding for finding in found if finding.severity == "error" or finding.rule not in {"driver", "triton"}]


def _errors(checks: Checker, fields: dict[str, str]) -> list[Finding]:
    return [finding for finding in _flaws(checks, fields) if finding.severity == "error"]
