"""Turns pydantic's complaints about a YAML tree into problems that name the place and the remedy."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from imagebuild.errors import Location, ProblemList
from imagebuild.spec.yamlfile import Map, Mark, Seq

Model = TypeVar("Model", bound=BaseModel)
Path = tuple[str | int, ...]
Locate = Callable[[Path, bool], Location]


def closest(word: str, known: Iterable[str]) -> str:
    """A hint that names the known word nearest to `word`, or all of them where none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, 1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"


def expect_map(value: Any, what: str, where: Location, problems: ProblemList) -> Map:
    """`value` as a mapping; anything else is a problem, and an empty mapping stands in for it."""
    if isinstance(value, Map):
        return value
    problems.add(f"{what} should be a mapping, not {_kind(value)}", where, hint="key: value lines", rule="type")
    return Map()


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return "a list" if isinstance(value, Seq) else "text"


def locator(tree: Map, file: str) -> Locate:
    """A function from a path in `tree` to its place; `as_key` asks for the key rather than the value."""

    def locate(path: Path, as_key: bool) -> Location:
        node: Any = tree
        mark: Mark = tree.mark
        for step in path:
            if isinstance(node, Map) and step in node:
                mark = node.key_marks[step] if as_key and step == path[-1] else node.marks[str(step)]  # type: ignore[index]
                node = node[str(step)]
            elif isinstance(node, Seq) and isinstance(step, int) and step < len(node):
                mark, node = node.marks[step], node[step]
            else:
                break
        return Location(file, *mark)

    return locate


def validate(
    model: type[Model], data: Any, locate: Locate, problems: ProblemList, *, subject: str = "", remedy: str = ""
) -> Model | None:
    """Check `data` against a model; what is wrong goes to `problems`, and the answer is then None.

    Args:
        model: the model.
        data: the tree.
        locate: where a path of `data` stands in its file.
        problems: collects what is wrong.
        subject: what messages call the thing, such as `row cpu`; empty for the file itself.
        remedy: the hint for a missing key.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        for found in error.errors(include_url=False, include_input=True):
            _report(model, found, subject, locate, problems, remedy)
    return None


def _report(
    model: type[BaseModel], found: Any, subject: str, locate: Locate, problems: ProblemList, remedy: str
) -> None:
    """Say one of pydantic's complaints in our words."""
    path: Path = tuple(part for part in found["loc"] if part != "[key]")
    name = ".".join(str(part) for part in path)
    last = str(path[-1]) if path else ""
    kind, context = found["type"], found.get("ctx", {})
    if kind == "missing":
        message, hint, rule = f"missing key `{name}`", remedy, "missing-key"
    elif kind == "extra_forbidden":
        message, hint, rule = f"unknown key `{name}`", closest(last, _fields(model)), "unknown-key"
    elif kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"])
        message, rule = f"`{name}`: {found['input']!s} is not one of {', '.join(choices)}", "value"
        hint = closest(str(found["input"]), choices)
    else:
        hint, rule = context.get("hint", ""), "value" if kind == "buildkit" else "type"
        plain = found["msg"].removeprefix("Input s").replace("dictionary", "mapping").replace("valid tuple", "list")
        message = f"`{name}`: {'s' + plain if found['msg'].startswith('Input s') else found['msg']}"
    at_key = kind == "extra_forbidden" or "[key]" in found["loc"]
    problems.add(message, locate(path, at_key), hint=hint, rule=rule, subject=subject)


def _fields(model: type[BaseModel]) -> Sequence[str]:
    return [name for name in model.model_fields if name != "name"]
