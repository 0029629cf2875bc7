"""The nearest change that works: the smallest step, in one field or two, that ends a clash and makes none."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

from imagebuild.spec.candidates import candidates
from imagebuild.spec.combo import Combo, changed, text_of
from imagebuild.spec.facts import Facts
from imagebuild.spec.findings import Change, Clash, Finding, Suggestion

#: How many ways out are told. A clash that takes more than two fields is told without.
ALTERNATIVES = 2
_NEAR = 8  # values of each field that are tried together with those of another
_MOST_PAIRS = 400

#: Fields that may have to move with one that moves, though they take no part in the clash.
_FOLLOWERS = {
    "torch": ("torchvision", "variant"),
    "sb3": ("sb3_contrib",),
    "gymnasium": ("mujoco",),
    "base": ("os",),
    "python": ("numpy",),
}

Step = tuple[tuple[str, str], ...]
Memo = dict[tuple[object, ...], tuple[Suggestion, ...]]


class Judge(Protocol):
    """What the search asks: a checker of rows, whose rules have numbers."""

    @property
    def facts(self) -> Facts:
        """The facts that candidates come from."""

    def findings(self, combo: Combo) -> tuple[Finding, ...]:
        """Everything that clashes in a row."""

    def errors(self, combo: Combo) -> list[tuple[int, Finding]]:
        """What refuses a row, with the number of the rule."""

    def touched(self, fields: tuple[str, ...]) -> frozenset[int]:
        """The rules that read any of these fields."""

    def horizon(self, fields: tuple[str, ...]) -> tuple[int, ...]:
        """The places in a combo of everything that these rules read: nothing else decides on a change of the fields."""

    def breaks(self, combo: Combo, rules: Iterable[int], allowed: Collection[Clash]) -> bool:
        """Whether any of these rules refuses a row, for another clash than the allowed ones."""


def repaired(judge: Judge, combo: Combo, memo: Memo) -> list[Finding]:
    """A row's findings, each error with its suggestions: changes that mend the row, or else that end this one clash."""
    findings = judge.findings(combo)
    errors = [finding for finding in findings if finding.severity == "error"]
    if not errors:
        return list(findings)
    search = _Search(judge, combo, memo)
    whole = search.suggestions(dict.fromkeys(itertools.chain.from_iterable(one.fields for one in errors)), frozenset())
    return [_mended(search, finding, whole, errors) for finding in findings]


def _mended(search: _Search, finding: Finding, whole: tuple[Suggestion, ...], errors: Sequence[Finding]) -> Finding:
    if finding.severity != "error":
        return finding
    others = frozenset(other.clash for other in errors) - {finding.clash}
    fitting = whole if whole or not others else search.suggestions(finding.fields, others)
    return finding.with_suggestions(fitting)


class _Search:
    """The search around one row.

    What it finds is kept in `memo` for all rows that agree in everything that decides on it.
    """

    def __init__(self, judge: Judge, combo: Combo, memo: Memo) -> None:
        self._memo = memo
        self._judge = judge
        self._combo = combo
        self._errors = judge.errors(combo)
        self._near = functools.cache(lambda field: list(candidates(judge.facts, combo, field)))

    def suggestions(self, fields: Iterable[str], allowed: frozenset[Clash]) -> tuple[Suggestion, ...]:
        """Changes in these fields that leave no error but the allowed ones, the nearest first.

        The first is the nearest of all; the others move other fields, and not more of them.
        """
        fields = tuple(fields)
        movable = dict.fromkeys([*fields, *(name for field in fields for name in _FOLLOWERS.get(field, ()))])
        horizon = tuple(self._combo[place] for place in self._judge.horizon(tuple(movable)))
        wrong = tuple((number, finding.clash) for number, finding in self._errors)
        key = (fields, allowed, wrong, horizon)
        if key not in self._memo:
            self._memo[key] = self._nearest(fields, tuple(movable), allowed)
        return self._memo[key]

    def _nearest(
        self, fields: tuple[str, ...], movable: tuple[str, ...], allowed: frozenset[Clash]
    ) -> tuple[Suggestion, ...]:
        taken: dict[tuple[str, ...], Suggestion] = {}
        for step in self._steps(fields, movable, allowed):
            moved = tuple(field for field, _ in step)
            if taken and len(moved) > len(next(iter(taken))):
                break
            if moved not in taken and self._works(step, moved, allowed):
                changes = tuple(Change(field, text_of(self._combo, field), text) for field, text in step)
                taken[moved] = Suggestion(changes, complete=not allowed)
                if len(taken) == ALTERNATIVES:
                    break
        return tuple(taken.values())

    def _works(self, step: Step, moved: tuple[str, ...], allowed: frozenset[Clash]) -> bool:
        return not self._judge.breaks(changed(self._combo, step), self._judge.touched(moved), allowed)

    def _reaches(self, moved: tuple[str, ...], allowed: frozenset[Clash]) -> bool:
        """Whether every error that must go has a rule that reads one of these fields."""
        touched = self._judge.touched(moved)
        return all(number in touched or finding.clash in allowed for number, finding in self._errors)

    def _steps(self, fields: tuple[str, ...], movable: tuple[str, ...], allowed: frozenset[Clash]) -> Iterator[Step]:
        """Changes of one field, the nearest first; then of two."""
        alone = [field for field in fields if self._reaches((field,), allowed)]
        ranks = itertools.zip_longest(*([(field, text) for text in self._near(field)] for field in alone))
        yield from ((pair,) for rank in ranks for pair in rank if pair)
        pairs = [
            (first + second, (left, one), (right, other))
            for left, right in itertools.combinations(movable, 2)
            if self._reaches((left, right), allowed)
            for first, one in enumerate(self._near(left)[:_NEAR])
            for second, other in enumerate(self._near(right)[:_NEAR])
        ]
        pairs.sort(key=lambda pair: pair[0])
        yield from ((one, other) for _, one, other in pairs[:_MOST_PAIRS])
