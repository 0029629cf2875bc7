"""What a check finds: a clash in a row, and the nearest change that ends it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]
Clash = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True)
class Change:
    """One field of a row, with another value."""

    field: str
    old: str | None
    new: str

    def __str__(self) -> str:
        return f"{self.field}: {self.old} -> {self.new}" if self.old else f"{self.field}: {self.new}"


@dataclass(frozen=True)
class Suggestion:
    """Changes that end a clash without making another; `complete` if no error at all is left in the row then."""

    changes: tuple[Change, ...]
    complete: bool = True

    def __str__(self) -> str:
        return " and ".join(str(change) for change in self.changes)


@dataclass(frozen=True)
class Finding:
    """One clash: `field` is the row's field to point at, `others` the fields that it clashes with.

    `source` says where the fact comes from. `suggestions` are alternatives, the nearest first.
    """

    rule: str
    message: str
    field: str
    others: tuple[str, ...] = ()
    source: str = ""
    severity: Severity = "error"
    suggestions: tuple[Suggestion, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """Every field that takes part."""
        return (self.field, *self.others)

    @property
    def clash(self) -> Clash:
        """What makes two findings the same clash, though a version in their words moved."""
        return self.rule, self.field, self.others

    @property
    def hint(self) -> str:
        """The suggestions as one line, empty if there are none."""
        if not self.suggestions:
            return ""
        rest = "" if self.suggestions[0].complete else " (ends this clash; the row has others)"
        return "nearest that works: " + ", or ".join(str(suggestion) for suggestion in self.suggestions) + rest

    def with_suggestions(self, suggestions: tuple[Suggestion, ...]) -> Finding:
        """The same finding, with these suggestions."""
        return dataclasses.replace(self, suggestions=suggestions)

    def as_error(self) -> Finding:
        """The same finding, as an error."""
        return dataclasses.replace(self, severity="error")
