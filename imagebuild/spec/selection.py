"""Which targets a word on the command line or in a group means."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from imagebuild.errors import InputError, Problem
from imagebuild.spec.models import STAGES
from imagebuild.spec.strict import closest


@dataclass(frozen=True)
class Selection:
    """The names that can be selected: targets by row, in order, and the groups and aliases over them."""

    rows: Mapping[str, Sequence[str]]
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def targets(self) -> list[str]:
        """Every target, row by row."""
        return [target for targets in self.rows.values() for target in targets]

    def select(self, words: Iterable[str]) -> list[str]:
        """The targets that the words mean, each once, in the matrix's order.

        A word is a target, an alias, a group, a row, a stage, or a glob over targets.

        Raises:
            InputError: a word means nothing here.
        """
        wanted: set[str] = set()
        problems = []
        for word in words:
            found = self.expand(word)
            if not found:
                problems.append(Problem(f"no target, group, row or stage matches {word!r}", hint=self.hint(word)))
            wanted |= found
        if problems:
            raise InputError(problems)
        return [target for target in self.targets if target in wanted]

    def expand(self, word: str, seen: frozenset[str] = frozenset()) -> set[str]:
        """The targets that one word means; empty where it means none."""
        targets = self.targets
        if word in targets:
            return {word}
        if word in self.aliases and word not in seen:
            return self.expand(self.aliases[word], seen | {word})
        if word in self.groups and word not in seen:
            return set().union(*(self.expand(inner, seen | {word}) for inner in self.groups[word]))
        if word in self.rows:
            return set(self.rows[word])
        if word in STAGES:
            return {stage for row in self.rows for stage in [f"{word}-{row}"] if stage in self.rows[row]}
        if any(mark in word for mark in "*?["):
            return set(fnmatch.filter(targets, word))
        return set()

    def hint(self, word: str) -> str:
        """What may have been meant."""
        known = [*self.targets, *self.groups, *self.aliases, *self.rows]
        near = closest(word, known)
        return near if near.startswith("did") else "`buildkit list` shows the targets and groups"
