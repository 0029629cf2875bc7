"""How a rule is written: a generator over the fields that its parameters name.

    @rule
    def sb3_torch(ctx: Context, sb3: Version, torch: Version) -> Findings: ...

It runs on rows that have all of its fields; a parameter with a default is an optional one. A value that could not be
read counts as missing, so that a rule only ever sees values with a meaning, and it sees nothing but its fields, so that
its findings can be kept for all the rows that agree in them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from imagebuild.spec.facts import Facts
from imagebuild.spec.findings import Finding
from imagebuild.spec.fleet import Gpu
from imagebuild.spec.values import Driver

Findings = Iterator[Finding]

#: Findings of this rule are about what the facts do not know yet; `--strict` makes them errors.
UNKNOWN = "unknown"
NOT_RELEASED = "not-released"
YANKED = "yanked"


@dataclass(frozen=True)
class Context:
    """What a rule may know beside its fields."""

    facts: Facts
    drivers: tuple[Driver, ...]
    gpus: tuple[Gpu, ...]
    strict: bool

    def error(self, rule: str, message: str, fields: tuple[str, ...], section: str) -> Finding:
        """A clash between `fields`, the first of which is pointed at; `section` is that of the facts."""
        return Finding(rule, message, fields[0], fields[1:], self.facts.source(section))

    def warning(self, rule: str, message: str, fields: tuple[str, ...], section: str) -> Finding:
        """As `error`, for what may work but should be known."""
        return Finding(rule, message, fields[0], fields[1:], self.facts.source(section), "warning")

    def unknown(self, message: str, fields: tuple[str, ...], section: str) -> Finding:
        """Something that the facts cannot judge: a warning, and an error under `--strict`."""
        severity: Any = "error" if self.strict else "warning"
        return Finding(UNKNOWN, message, fields[0], fields[1:], self.facts.source(section), severity)


@dataclass(frozen=True)
class Rule:
    """A registered rule: its function, the fields it reads, and which of them it can do without."""

    find: Callable[..., Findings]
    fields: tuple[str, ...]
    optional: frozenset[str]


RULES: list[Rule] = []


def rule(find: Callable[..., Findings]) -> Callable[..., Findings]:
    """Register a rule; its parameters name its fields."""
    parameters = list(inspect.signature(find).parameters.values())[1:]
    optional = frozenset(parameter.name for parameter in parameters if parameter.default is None)
    RULES.append(Rule(find, tuple(parameter.name for parameter in parameters), optional))
    return find


def release_findings(
    ctx: Context,
    field: str,
    package: str,
    release: Version,
    known: Collection[Version],
    *,
    complete: bool,
    section: str,
) -> Findings:
    """Judge whether a release exists; `complete` if `known` has every one between its oldest and newest."""
    if release in known:
        return
    oldest, newest = min(known), max(known)
    if release.is_prerelease:
        yield ctx.unknown(f"{package} {release} is a pre-release, which the facts do not cover", (field,), section)
    elif release > newest:
        message = f"{package} {release} is newer than the facts of {ctx.facts.as_of}, which end with {newest}"
        yield ctx.unknown(message, (field,), section)
    elif release < oldest:
        yield ctx.unknown(f"{package} {release} is older than the facts, which begin with {oldest}", (field,), section)
    elif complete:
        below, above = max(k for k in known if k < release), min(k for k in known if k > release)
        message = f"there is no {package} {release}: after {below} came {above}"
        yield ctx.error(NOT_RELEASED, message, (field,), section)


def listing(items: Collection[object]) -> str:
    """Items as a phrase: `a, b and c`."""
    texts = [str(item) for item in items]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}" if texts else "none"
