"""The steps of a Containerfile that make layers, spelled as an image's history can be, each with its comment."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SHELL = re.compile(r"^(RUN )?(\|\d+ .*?)?/bin/(ba)?sh -c ")
_NOT_RUN = re.compile(r"^RUN #\(nop\) +")
_COPY = re.compile(r"^(COPY|ADD) .*?(\S+)$")
_MAKES_LAYERS = ("RUN", "COPY", "ADD")


def comments(containerfile: str) -> dict[str, str]:
    """The steps of the last stage that make layers -> the comment above each; itself, where there is none.

    A comment counts until the next one, or the next empty line.
    """
    found: dict[str, str] = {}
    comment: list[str] = []
    open_comment = False
    for line in _logical_lines(containerfile):
        keyword = line.partition(" ")[0].upper()
        if line.startswith("#") or not line:
            comment = [*(comment if open_comment else ()), line.removeprefix("#").strip()] if line else []
            open_comment = bool(line)
            continue
        open_comment = False
        if keyword == "FROM":
            found = {}
        elif keyword in _MAKES_LAYERS:
            about = " ".join(comment)
            said = f"{about} ({step_of(line)})" if about and keyword != "RUN" else about
            found[step_of(line)] = said or " ".join(line.split())
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines, those that end in a backslash joined with what follows."""
    whole = ""
    for line in text.splitlines():
        if not whole and line.startswith("#"):
            yield line
        elif line.endswith("\\"):
            whole += line[:-1] + " "
        else:
            yield (whole + line).strip()
            whole = ""


def step_of(text: str) -> str:
    """A step on one line, without mounts and digests of files: a history's spelling of it, or a Containerfile's.

    A COPY or an ADD keeps its destination only, as a history does not say where the files came from.
    """
    step = _NOT_RUN.sub("", _SHELL.sub("RUN ", text.removesuffix("# buildkit")))
    step = " ".join(word for word in step.split() if not word.startswith("--mount=") and word != "\\")
    copied = _COPY.match(step)
    return f"{copied[1]} {copied[2]}" if copied else step
