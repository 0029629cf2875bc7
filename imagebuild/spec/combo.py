"""A row as the check sees it: the texts of the fields that its rules read, and what they mean."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

from imagebuild.spec import values

#: The fields of a row that the rules read, and how each is read. The order is that of the findings.
FIELDS: dict[str, Callable[[str], Any]] = {
    "os": str,
    "base": values.base,
    "inference_base": values.base,
    "python": values.version,
    "variant": values.variant,
    "wheels": str,
    "torch": values.version,
    "torchvision": values.version,
    "sb3": values.version,
    "sb3_contrib": values.version,
    "gymnasium": values.version,
    "mujoco": values.version,
    "numpy": values.version,
    "onnx": values.version,
    "onnxruntime": values.version,
    "ray": values.version,
    "tensorrt": values.tensorrt,
    "opset": values.opset,
}
NAMES = tuple(FIELDS)
PLACES = {name: index for index, name in enumerate(NAMES)}
Combo = tuple[str | None, ...]


_get_all = operator.attrgetter(*NAMES)


def combo_of(row: object) -> Combo:
    """The texts of a row that matter here; anything that is no text is taken as its text."""
    try:
        raw = _get_all(row)
    except AttributeError:
        raw = tuple(getattr(row, name, None) for name in NAMES)
    return tuple(value if value is None or type(value) is str else _text(value) for value in raw)


def _text(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # a number of thousands of digits
        return type(value).__name__


@functools.lru_cache(maxsize=65536)
def read(field: str, text: str | None) -> Any:
    """A field's value, None where it is missing or cannot be read."""
    if text is None:
        return None
    try:
        return FIELDS[field](text)
    except ValueError:
        return None


def changed(combo: Combo, changes: Iterable[tuple[str, str | None]]) -> Combo:
    """A combo with other values in some fields."""
    texts = list(combo)
    for field, text in changes:
        texts[PLACES[field]] = text
    return tuple(texts)


def text_of(combo: Combo, field: str) -> str | None:
    """One field's text."""
    return combo[PLACES[field]]


def value_of(combo: Combo, field: str) -> Any:
    """One field's value, None where it is missing or cannot be read."""
    return read(field, text_of(combo, field))
