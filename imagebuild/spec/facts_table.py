"""The facts as a listing for people: one line a fact, by subject, each with its source."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from imagebuild.errors import InputError, Problem
from imagebuild.spec.facts import read

#: Subject -> where its facts are: a section of the file, or some keys of one.
SUBJECTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "torch": ("torch", ()),
    "torchvision": ("torch", ("releases", "torchvision_yanked", "torchvision_free", "torchvision_not_on")),
    "gpu": ("gpu", ()),
    "cuda": ("cuda", ()),
    "driver": ("cuda", ("minor_compat_driver", "toolkits")),
    "image": ("image", ()),
    "sb3": ("sb3", ()),
    "sb3-contrib": ("sb3_contrib", ()),
    "gymnasium": ("gymnasium", ()),
    "mujoco": ("mujoco", ()),
    "numpy": ("numpy", ()),
    "ray": ("ray", ()),
    "onnxruntime": ("onnxruntime", ()),
    "tensorrt": ("tensorrt", ()),
    "os": ("os", ()),
    "podman": ("podman", ()),
    "claims": ("claims", ()),
}


@dataclass(frozen=True)
class FactLine:
    """One fact: what of which subject, what is known, and where from (with the day)."""

    subject: str
    name: str
    text: str
    source: str


def facts_table(subject: str | None = None) -> list[FactLine]:
    """The facts of a subject, or of all.

    Raises:
        InputError: there is no such subject.
    """
    data = read()
    if subject is None:
        return [line for name in SUBJECTS if name not in {"torchvision", "driver"} for line in _lines(data, name)]
    name = subject.lower().replace("_", "-")
    if name not in SUBJECTS:
        near = difflib.get_close_matches(name, SUBJECTS, 1)
        hint = f"did you mean {near[0]}?" if near else f"subjects: {', '.join(SUBJECTS)}"
        raise InputError(Problem(f"the facts have no subject {subject!r}", hint=hint))
    return list(_lines(data, name))


def _lines(data: Mapping[str, Any], subject: str) -> Iterator[FactLine]:
    section, keys = SUBJECTS[subject]
    source = data["sources"][section]
    told = f"{source['text']} ({source['date']})"
    for key, value in data[section].items():
        if keys and key not in keys:
            continue
        for name, text, own in _entries(key, value):
            yield FactLine(subject, name, text, own or told)


def _entries(key: str, value: Any) -> Iterator[tuple[str, str, str]]:
    """(name, text, own source) of each fact under a key: a line for each of its entries, if these have parts."""
    if isinstance(value, Mapping) and value and any(_all(kind, value.values()) for kind in (Mapping, list)):
        for name, part in value.items():
            yield f"{key} {name}", describe(part), ""
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for entry in value:
            first, *rest = entry
            own = str(entry.get("source", ""))
            parts = {name: entry[name] for name in rest if name != "source"}
            named = "" if key == "list" else f"{key} "
            if parts:
                yield f"{named}{describe(entry[first])}", describe(parts), own
            else:
                yield f"{key} {first}", describe(entry[first]), own
    else:
        yield key, describe(value), ""


def _all(kind: type, parts: Iterable[Any]) -> bool:
    return all(isinstance(part, kind) for part in parts)


def describe(value: Any) -> str:
    """A piece of data as a phrase."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {describe(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(describe(part) for part in value)
    words: dict[Any, str] = {None: "not known", True: "yes", False: "no"}
    return words[value] if value is None or isinstance(value, bool) else str(value)
