"""YAML with every value's place kept, read strictly: no duplicate keys, no tags, one document.

PyYAML's node composer costs ten times its C parser, so the tree is built straight from the parser's
events: a matrix of ten thousand rows loads in well under a second.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from imagebuild.errors import InputError, Location, Problem, ProblemList

Mark = tuple[int, int]  # line and column, from 1

# Plain scalars that start otherwise can only be text; the table is PyYAML's own, read once.
_RESOLVERS = yaml.SafeLoader.yaml_implicit_resolvers
_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Plain(str):
    """An unquoted scalar that YAML reads as something other than text, such as `3.10` or `yes`.

    It is the text as written; `value` is what YAML makes of it (a number, a bool, a date, None).
    """

    __slots__ = ("value",)
    value: Any

    def __new__(cls, text: str, value: Any) -> Plain:
        """Keep both readings of one scalar."""
        self = super().__new__(cls, text)
        self.value = value
        return self


class Map(dict[str, Any]):
    """A mapping whose keys and values know where they stand."""

    __slots__ = ("key_marks", "mark", "marks")

    def __init__(self, mark: Mark = (0, 0)) -> None:
        super().__init__()
        self.mark = mark
        self.key_marks: dict[str, Mark] = {}
        self.marks: dict[str, Mark] = {}

    def put(self, key: str, value: Any, key_mark: Mark, mark: Mark) -> None:
        """Add one entry with its places."""
        self[key] = value
        self.key_marks[key] = key_mark
        self.marks[key] = mark


class Seq(list[Any]):
    """A list whose items know where they stand."""

    __slots__ = ("mark", "marks")

    def __init__(self, mark: Mark = (0, 0)) -> None:
        super().__init__()
        self.mark = mark
        self.marks: list[Mark] = []


@dataclass
class _Open:
    """A collection that is being filled, and the key that waits for its value."""

    node: Map | Seq
    anchor: str | None
    key: str | None = None
    key_mark: Mark = (0, 0)
    merges: list[Map] = field(default_factory=list)


class _Composer:
    """Builds the tree of one document from parser events; problems are collected, not raised."""

    def __init__(self, file: str, problems: ProblemList) -> None:
        self.file = file
        self.problems = problems
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[Any, Mark]] = {}
        self.root: Any = None
        self.documents = 0

    def feed(self, event: Any) -> None:
        """Take one parser event."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._refuse_tag(event)
            plain = event.implicit[0]
            self._value(_resolve(event.value) if plain else event.value, _mark(event), event.anchor)
        elif kind is yaml.MappingStartEvent:
            self._refuse_tag(event)
            self._open(Map(_mark(event)), event.anchor)
        elif kind is yaml.SequenceStartEvent:
            self._refuse_tag(event)
            self._open(Seq(_mark(event)), event.anchor)
        elif kind in (yaml.MappingEndEvent, yaml.SequenceEndEvent):
            self._close()
        elif kind is yaml.AliasEvent:
            self._alias(event)
        elif kind is yaml.DocumentStartEvent:
            self.documents += 1
            if self.documents > 1:
                self._problem("a second document starts here; one file holds one document", _mark(event))

    def _open(self, node: Map | Seq, anchor: str | None) -> None:
        top = self.stack[-1] if self.stack else None
        if top and isinstance(top.node, Map) and top.key is None:
            self._problem("a key must be text, not a list or a mapping", node.mark)
            top.key, top.key_mark = f"?{len(top.node)}", node.mark
            self.stack.append(_Open(type(node)(node.mark), anchor, key=None))
            return
        self.stack.append(_Open(node, anchor))

    def _close(self) -> None:
        done = self.stack.pop()
        if isinstance(done.node, Map):
            for base in done.merges:
                for key in base.keys() - done.node.keys():
                    done.node.put(key, base[key], base.key_marks[key], base.marks[key])
        self._value(done.node, done.node.mark, done.anchor)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            self._problem(f"*{event.anchor} names an anchor that does not exist (yet)", _mark(event))
            self._value(None, _mark(event), None)
            return
        value, _ = self.anchors[event.anchor]
        self._value(value, _mark(event), None)

    def _value(self, value: Any, mark: Mark, anchor: str | None) -> None:
        """Place a finished value: as the root, a list item, a key or a key's value."""
        if anchor:
            self.anchors[anchor] = (value, mark)
        if not self.stack:
            if self.documents <= 1:
                self.root = value
            return
        top = self.stack[-1]
        if isinstance(top.node, Seq):
            top.node.append(value)
            top.node.marks.append(mark)
        elif top.key is None:
            top.key, top.key_mark = str(value), mark
        else:
            self._entry(top, value, mark)

    def _entry(self, top: _Open, value: Any, mark: Mark) -> None:
        assert isinstance(top.node, Map) and top.key is not None  # noqa: S101, PT018  (narrowing)
        key, top.key = top.key, None
        if key == "<<":
            bases = value if isinstance(value, Seq) else [value]
            top.merges += [base for base in bases if isinstance(base, Map)]
        elif key in top.node:
            first = top.node.key_marks[key][0]
            self._problem(
                f"duplicate key {key!r}, first given on line {first}", top.key_mark, "remove one", "duplicate-key"
            )
        else:
            top.node.put(key, value, top.key_mark, mark)

    def _refuse_tag(self, event: Any) -> None:
        if event.tag not in (None, "!"):
            self._problem(f"the tag {event.tag} is not used here", _mark(event), "remove it", "yaml")

    def _problem(self, message: str, mark: Mark, hint: str = "", rule: str = "yaml") -> None:
        self.problems.add(message, Location(self.file, *mark), hint=hint, rule=rule)


def _mark(event: Any) -> Mark:
    mark = event.start_mark
    return mark.line + 1, mark.column + 1


@functools.lru_cache(maxsize=65536)
def _resolve(text: str) -> str | Plain | None:
    """Tell text from what YAML reads as a number, a bool, a date or null."""
    if not text:
        return None
    for tag, pattern in _RESOLVERS.get(text[0], ()):
        if pattern.match(text) and tag != "tag:yaml.org,2002:merge":
            return _native(text)
    return text


def _native(text: str) -> str | Plain | None:
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, OverflowError):
        return text
    return None if value is None else Plain(text, value)


def parse(text: str, file: str) -> Any:
    """Read YAML text into `Map`, `Seq`, `str`, `Plain` and None.

    Args:
        text: the YAML.
        file: the name to use in locations.

    Raises:
        InputError: with every problem of form: syntax, duplicate keys, tags, several documents.
    """
    problems = ProblemList()
    composer = _Composer(file, problems)
    try:
        for event in _events(text):
            composer.feed(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Location(file, mark.line + 1, mark.column + 1) if mark else Location(file)
        what = " ".join(part for part in (error.context, error.problem) if part)
        problems.add(f"not valid YAML: {what}", place, rule="yaml")
    except yaml.YAMLError as error:
        problems.add(f"not valid YAML: {error}".splitlines()[0], Location(file), rule="yaml")
    problems.raise_any()
    return composer.root


def _events(text: str) -> Iterator[Any]:
    """What `yaml.parse` gives, without asking before each event whether there is one."""
    parser = _PARSER(text)
    try:
        while not isinstance(event := parser.get_event(), yaml.StreamEndEvent):
            yield event
    finally:
        parser.dispose()


def load(path: Path, name: str) -> Any:
    """Read a YAML file; `name` is how messages call it.

    Raises:
        InputError: the file cannot be read, is not UTF-8, or is not strict YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            Problem("no such file", Location(name), "run buildkit in a project folder, or use -C")
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"not UTF-8 text: byte {error.start}", Location(name))) from None
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", Location(name))) from None
    return parse(text, name)
