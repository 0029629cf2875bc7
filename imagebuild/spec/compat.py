"""The check of rows against the facts and the fleet: everything that clashes, each with the nearest change that works.

What a rule finds depends on the values of its fields alone, so it is kept per rule and values: rows of a matrix share
most of them, and the search for a change that works asks about hundreds of rows that differ in one field.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from imagebuild.spec import repair
from imagebuild.spec.combo import FIELDS, NAMES, PLACES, Combo, combo_of, read
from imagebuild.spec.facts import Facts, load
from imagebuild.spec.findings import Change, Clash, Finding, Suggestion
from imagebuild.spec.fleet import Fleet, check_fleet, understand
from imagebuild.spec.rules import RULES, Context, Rule

__all__ = ["FIELDS", "Change", "Checker", "Finding", "Fleet", "Suggestion", "check_fleet", "check_row", "checker"]

#: Rules whose name a value that cannot be read is reported under, where that is not `version`.
_UNREADABLE = {"variant": "torch-variant", "base": "image", "inference_base": "image", "opset": "opset"}


class _Planned(NamedTuple):
    """A rule with the places of its fields in a combo, and what it found so far."""

    rule: Rule
    pick: Callable[[Combo], tuple[str | None, ...]]
    required: tuple[int, ...]
    kept: dict[tuple[str | None, ...], tuple[Finding, ...]]


class Checker:
    """Checks rows against one fleet and one set of facts, and remembers what it found."""

    def __init__(self, facts: Facts, fleet: Fleet, *, strict: bool = False) -> None:
        hosts = understand(fleet, facts)
        self.facts = facts
        self.fleet = fleet
        self._context = Context(facts, hosts.drivers, hosts.gpus, strict)
        self._rules = [_planned(rule) for rule in RULES]
        self._rows: dict[Combo, tuple[Finding, ...]] = {}
        self._repaired: dict[Combo, list[Finding]] = {}
        self._suggestions: repair.Memo = {}

    def findings(self, combo: Combo) -> tuple[Finding, ...]:
        """Everything that clashes in a row, in the order of its fields; without suggestions."""
        kept = self._rows.get(combo)
        if kept is None:
            found = _unreadable(combo)
            for number in range(len(self._rules)):
                found += self._found(number, combo)
            found.sort(key=lambda finding: (finding.severity, PLACES.get(finding.field, -1)))
            kept = self._rows[combo] = tuple(dict.fromkeys(found))
        return kept

    def errors(self, combo: Combo) -> list[tuple[int, Finding]]:
        """What refuses the row, each with the number of its rule (as `touched` has it)."""
        unreadable = [(~PLACES[finding.field], finding) for finding in _unreadable(combo)]
        found = ((number, self._found(number, combo)) for number in range(len(self._rules)))
        clashes = [(number, one) for number, some in found for one in some if one.severity == "error"]
        return [*unreadable, *clashes]

    @functools.cache  # noqa: B019  (a checker lives as long as the process)
    def touched(self, fields: tuple[str, ...]) -> frozenset[int]:
        """The numbers of the rules that read any of these fields; that a field can be read is a rule too."""
        wanted = set(fields)
        rules = {number for number, planned in enumerate(self._rules) if wanted & set(planned.rule.fields)}
        return frozenset(rules | {~PLACES[field] for field in fields})

    @functools.cache  # noqa: B019
    def horizon(self, fields: tuple[str, ...]) -> tuple[int, ...]:
        """The places in a combo of everything that the rules read that read any of these fields."""
        rules = (self._rules[number].rule for number in self.touched(fields) if number >= 0)
        return tuple(
            sorted({PLACES[name] for rule in rules for name in rule.fields} | {PLACES[name] for name in fields})
        )

    def breaks(self, combo: Combo, rules: Iterable[int], allowed: Collection[Clash]) -> bool:
        """Whether any of these rules refuses the row, for another clash than the allowed ones."""
        return any(
            finding.severity == "error" and finding.clash not in allowed
            for number in rules
            if number >= 0
            for finding in self._found(number, combo)
        )

    def with_suggestions(self, combo: Combo) -> list[Finding]:
        """`findings`, each error with the nearest change that works."""
        kept = self._repaired.get(combo)
        if kept is None:
            kept = self._repaired[combo] = repair.repaired(self, combo, self._suggestions)
        return list(kept)

    def _found(self, number: int, combo: Combo) -> tuple[Finding, ...]:
        planned = self._rules[number]
        key = planned.pick(combo)
        found = planned.kept.get(key)
        if found is None:
            found = planned.kept[key] = self._run(planned, key)
        return found

    def _run(self, planned: _Planned, key: tuple[str | None, ...]) -> tuple[Finding, ...]:
        arguments = [read(name, text) for name, text in zip(planned.rule.fields, key, strict=True)]
        if any(arguments[place] is None for place in planned.required):
            return ()
        return tuple(planned.rule.find(self._context, *arguments))


def _planned(rule: Rule) -> _Planned:
    places = [PLACES[name] for name in rule.fields]
    one = places[0]
    pick: Callable[[Combo], tuple[str | None, ...]] = (
        operator.itemgetter(*places) if len(places) > 1 else lambda combo: (combo[one],)
    )
    required = tuple(place for place, name in enumerate(rule.fields) if name not in rule.optional)
    return _Planned(rule, pick, required, {})


@functools.lru_cache(maxsize=65536)
def _unreadable_text(field: str, text: str) -> Finding | None:
    try:
        FIELDS[field](text)
    except ValueError as error:
        return Finding(_UNREADABLE.get(field, "version"), f"{field}: {error}", field)
    return None


def _unreadable(combo: Combo) -> list[Finding]:
    pairs = zip(NAMES, combo, strict=True)
    return [found for name, text in pairs if text is not None and (found := _unreadable_text(name, text))]


@functools.cache
def _checker(fleet: Fleet, facts: Facts, strict: bool) -> Checker:
    return Checker(facts, fleet, strict=strict)


def checker(fleet: Fleet, facts: Facts | None = None, *, strict: bool = False) -> Checker:
    """The checker for a fleet: the same one each time, so that it remembers."""
    return _checker(fleet, facts or load(), strict)


def check_row(
    row: object,
    fleet: Fleet | None = None,
    facts: Facts | None = None,
    *,
    strict: bool = False,
    suggestions: bool = True,
) -> list[Finding]:
    """Everything in a row that clashes: errors first, then warnings, each in the order of the row's fields.

    Args:
        row: any object with attributes named as in `FIELDS`; what it lacks is not checked.
        fleet: the drivers and GPUs to run on; what is wrong with itself is told by `check_fleet`.
        facts: the facts to go by; those that come with buildkit, if none are given.
        strict: refuse what the facts do not know, and drivers older than the toolkit's own.
        suggestions: look for the nearest change that works, for each error. It is what takes the time.
    """
    checks = checker(fleet or Fleet(), facts, strict=strict)
    combo = combo_of(row)
    return checks.with_suggestions(combo) if suggestions else list(checks.findings(combo))
