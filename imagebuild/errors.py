"""The errors that buildkit shows to people: where, what is wrong, what would be right.

Every expected failure is a `BuildkitError`; the command line prints it without a traceback and
exits with its `exit_code`. Anything else that escapes is a bug in buildkit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

EXIT_DONE = 0
EXIT_WORK_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_GATE_REFUSED = 3
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, order=True)
class Location:
    """A place in a text file; `line` and `column` count from 1, and 0 means the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an input, and what would be right.

    `rule` is a short stable identifier (`driver`, `duplicate-key`), `source` says where the fact
    behind the rule comes from, and `subject` is the row or target that the problem is about.
    """

    message: str
    location: Location | None = None
    hint: str = ""
    rule: str = ""
    severity: Literal["error", "warning"] = "error"
    source: str = ""
    subject: str = ""

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        kind = "" if self.severity == "error" else "warning: "
        subject = f"{self.subject}: " if self.subject else ""
        return f"{where}{kind}{subject}{self.message}"


class BuildkitError(Exception):
    """An expected failure: a message for a person, an optional hint, and the exit code it leads to."""

    exit_code = EXIT_WORK_FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(BuildkitError):
    """The user's input is wrong: a file, an option or a name. Carries every problem found."""

    exit_code = EXIT_BAD_INPUT

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems = [problems] if isinstance(problems, Problem) else list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class WorkError(BuildkitError):
    """Work on the outside world failed: an engine, a registry, a disk, a network."""


class EngineError(WorkError):
    """Podman refused, broke off, or answered with something that cannot be right."""


class RegistryError(WorkError):
    """A registry refused, broke off, or answered with something that cannot be right.

    `status` is the HTTP status of the answer, or 0 where there was none.
    """

    def __init__(self, message: str, *, hint: str = "", status: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class GateError(BuildkitError):
    """A release gate refused: nothing was moved."""

    exit_code = EXIT_GATE_REFUSED


@dataclass
class ProblemList:
    """Collects problems so that all of them are reported at once."""

    problems: list[Problem] = field(default_factory=list)

    def add(
        self, message: str, location: Location | None = None, *, hint: str = "", rule: str = "", subject: str = ""
    ) -> None:
        """Record one more error."""
        self.problems.append(Problem(message, location, hint, rule, subject=subject))

    def raise_any(self) -> None:
        """Raise `InputError` with everything recorded, in file order, if anything was.

        A value that many rows share, such as a default, is wrong once, not once a row.
        """
        if self.problems:
            once = {(problem.location, problem.message): problem for problem in reversed(self.problems)}
            raise InputError(sorted(once.values(), key=lambda problem: problem.location or Location("")))
