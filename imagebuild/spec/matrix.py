"""Loads `matrix.yaml`: header, defaults, rows and axes, each value with the place that it came from."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from imagebuild.errors import Location, ProblemList
from imagebuild.spec import yamlfile
from imagebuild.spec.models import STAGES, Axes, Header, Row
from imagebuild.spec.selection import Selection
from imagebuild.spec.strict import closest, expect_map, locator, validate
from imagebuild.spec.yamlfile import Map, Seq

FILE_NAME = "matrix.yaml"
_ROW_KEYS = frozenset(Row.model_fields) - {"name"}
_PLACE = re.compile(r"\{(\w*)\}")
_OWN_KEYS = ("rows", "axes", "defaults")
_MERGED = "budgets"  # a row's own entries join those of the defaults, stage by stage; all other keys replace


@dataclass(frozen=True)
class Draft:
    """A row before it is checked: its layers of values, nearest first, and where it is named."""

    name: str
    named_at: Location
    layers: tuple[Map, ...]

    def values(self) -> dict[str, Any]:
        """The layers as one mapping; the nearest layer wins."""
        merged: dict[str, Any] = {}
        for layer in reversed(self.layers):
            farther, nearer = merged.get(_MERGED), layer.get(_MERGED)
            merged.update(layer)
            if isinstance(farther, dict) and isinstance(nearer, dict):
                merged[_MERGED] = {**farther, **nearer}
        merged["name"] = self.name
        return merged

    def layer_of(self, path: Sequence[str | int]) -> Map | None:
        """The nearest layer that says something at a path, such as `("budgets", "train")`."""
        depth = 2 if path[:1] == (_MERGED,) else 1
        for layer in self.layers:
            node: Any = layer
            for step in path[:depth]:
                if not (isinstance(node, Map) and step in node):
                    break
                node = node[str(step)]
            else:
                return layer
        return None


@dataclass(frozen=True)
class Matrix:
    """What `matrix.yaml` says. Rows are in file order."""

    file: str
    header: Header
    rows: Mapping[str, Row]
    drafts: Mapping[str, Draft]

    def locate(self, row: str, *path: str) -> Location:
        """Where a row, or the value at a path in it, is written; the row's own place if nobody wrote it."""
        draft = self.drafts[row]
        layer = draft.layer_of(path)
        return draft.named_at if layer is None or not path else locator(layer, self.file)(path, False)

    def selection(self) -> Selection:
        """The names that a user can select targets by."""
        return _selection(self.header, {name: row.stages for name, row in self.rows.items()})


def load(path: Path) -> Matrix:
    """Read and check a matrix.

    Raises:
        InputError: with every problem in the file, each with line and column.
    """
    return build(yamlfile.load(path, path.name), path.name)


def build(tree: Any, file: str) -> Matrix:
    """Check a parsed tree and make a `Matrix` of it.

    Raises:
        InputError: as `load`.
    """
    problems = ProblemList()
    top = expect_map(tree, "the matrix", Location(file, 1, 1), problems)
    problems.raise_any()
    own = {key: top.get(key) for key in _OWN_KEYS if key in top}
    header = _header(top, file, problems)
    drafts = list(_drafts(own, top, file, problems))
    rows = _rows(drafts, file, problems)
    if header:
        # A row that is wrong elsewhere still has its name, so that groups naming it are not wrong as well.
        listed = own.get("rows")
        names = [*(listed if isinstance(listed, Map) else ()), *(draft.name for draft in drafts)]
        named = dict.fromkeys(names, STAGES) | {name: row.stages for name, row in rows.items()}
        _check_names(_selection(header, named), top, file, problems)
    problems.raise_any()
    assert header is not None  # noqa: S101  (a missing header is a problem, raised above)
    return Matrix(file, header, rows, {draft.name: draft for draft in drafts})


def _header(top: Map, file: str, problems: ProblemList) -> Header | None:
    rest = {key: value for key, value in top.items() if key not in _OWN_KEYS}
    if "rows" not in top and "axes" not in top:
        problems.add("no `rows:` and no `axes:`", Location(file, 1, 1), hint="a matrix has rows", rule="missing-key")
    known = [*Header.model_fields, *_OWN_KEYS]
    for key in [key for key in rest if key not in known]:
        where = Location(file, *top.key_marks[key])
        problems.add(f"unknown key `{key}`", where, hint=closest(key, known), rule="unknown-key")
        del rest[key]
    return validate(Header, rest, locator(top, file), problems, remedy="add it at the top of the file")


def _drafts(own: dict[str, Any], top: Map, file: str, problems: ProblemList) -> Iterator[Draft]:
    """The rows as written and as produced by axes, unchecked."""

    def part(key: str) -> Map:
        if key not in own:
            return Map()
        return expect_map(own[key], f"`{key}:`", Location(file, *top.marks[key]), problems)

    defaults = part("defaults")
    _refuse_unknown(defaults, file, "defaults", problems)
    seen: dict[str, Location] = {}
    listed = part("rows")
    for name, body in listed.items():
        where = Location(file, *listed.key_marks[name])
        seen[name] = where
        if isinstance(body, Map) or body is None:
            yield Draft(name, where, (body or Map(), defaults))
        else:
            expect_map(body, f"row {name}", where, problems)
    products = own.get("axes", Seq())
    if not isinstance(products, Seq):
        where = Location(file, *top.marks["axes"])
        problems.add("`axes:` should be a list of products", where, hint="- name: ... values: ...", rule="type")
        return
    for product, mark in zip(products, products.marks, strict=True):
        for draft in _product(product, Location(file, *mark), defaults, problems):
            if draft.name in seen:
                message = f"row {draft.name} is already defined at line {seen[draft.name].line}"
                problems.add(message, draft.named_at, hint="exclude it, or name it otherwise", rule="duplicate-row")
            else:
                seen[draft.name] = draft.named_at
                yield draft


def _refuse_unknown(layer: Map, file: str, what: str, problems: ProblemList) -> None:
    for key in layer.keys() - _ROW_KEYS:
        where = Location(file, *layer.key_marks[key])
        problems.add(f"unknown key `{key}`", where, hint=closest(key, _ROW_KEYS), rule="unknown-key", subject=what)


def _product(product: Any, where: Location, defaults: Map, problems: ProblemList) -> Iterator[Draft]:
    """The rows of one entry of `axes:`."""
    tree = expect_map(product, "a product of axes", where, problems)
    axes = validate(Axes, tree, locator(tree, where.file), problems, subject="axes", remedy="see README, axes")
    if axes is None:
        return
    values: Map = tree["values"]
    base = tree.get("set", Map())
    for axis, choices in values.items():
        if axis not in _ROW_KEYS:
            place = Location(where.file, *values.key_marks[axis])
            problems.add(f"axes: no row has a key `{axis}`", place, hint=closest(axis, _ROW_KEYS), rule="unknown-key")
        if not choices:
            place = Location(where.file, *values.marks[axis])
            problems.add(f"axes: `{axis}` has no values", place, hint="name at least one", rule="value")
    excludes = list(_clauses(tree, "exclude", values, where.file, problems))
    includes = list(_clauses(tree, "include", values, where.file, problems))
    used: set[int] = set()
    for combination in _combinations(values):
        if any(_covers(clause, combination) for clause in excludes):
            continue
        extra = [clause for clause in includes if _matches(clause, combination)]
        used |= {id(clause) for clause in extra}
        yield from _named(axes.name, where, (*reversed(extra), combination, base, defaults), problems)
    for clause in includes:
        if id(clause) not in used:
            yield from _named(axes.name, where, (clause, base, defaults), problems)


def _clauses(tree: Map, key: str, values: Map, file: str, problems: ProblemList) -> Iterator[Map]:
    """The entries of `exclude` or `include`; one that can never apply is a problem."""
    for clause in tree.get(key, ()):
        allowed = values.keys() if key == "exclude" else _ROW_KEYS
        for name in clause.keys() - allowed:
            place = Location(file, *clause.key_marks[name])
            problems.add(f"{key}: unknown key `{name}`", place, hint=closest(name, allowed), rule="unknown-key")
        for name in clause.keys() & values.keys():
            if key == "exclude" and clause[name] not in values[name]:
                place = Location(file, *clause.marks[name])
                message = f"exclude: {clause[name]} is not a value of `{name}`"
                problems.add(message, place, hint=closest(str(clause[name]), map(str, values[name])), rule="dangling")
        yield clause


def _combinations(values: Map) -> Iterator[Map]:
    """Every combination of axis values, in the order of the file, each value with its place."""
    axes = [[(axis, value, mark) for value, mark in zip(seq, seq.marks, strict=True)] for axis, seq in values.items()]
    for choice in itertools.product(*axes):
        layer = Map()
        for axis, value, mark in choice:
            layer.put(axis, value, mark, mark)
        yield layer


def _covers(clause: Map, combination: Map) -> bool:
    return all(combination.get(axis) == value for axis, value in clause.items())


def _matches(clause: Map, combination: Map) -> bool:
    """Whether an `include` completes this combination: it agrees on every axis that it names, and names one."""
    shared = clause.keys() & combination.keys()
    return bool(shared) and all(combination[axis] == clause[axis] for axis in shared)


def _named(template: str, where: Location, layers: tuple[Map, ...], problems: ProblemList) -> Iterator[Draft]:
    """A draft whose name is made from its own values."""
    draft = Draft("", where, layers)
    values = draft.values()
    missing = [key for key in _PLACE.findall(template) if not isinstance(values.get(key), str) or key == "name"]
    if missing:
        message = f"axes: the name {template!r} cannot be filled in: no row has a value for {missing[0]!r}"
        problems.add(message, where, hint="use the axes' names, like {python}", rule="value")
        return
    yield Draft(_PLACE.sub(lambda found: str(values[found[1]]), template).lower(), where, layers)


def _rows(drafts: Sequence[Draft], file: str, problems: ProblemList) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for draft in drafts:

        def locate(path: tuple[str | int, ...], as_key: bool, draft: Draft = draft) -> Location:
            layer = draft.layer_of(path)
            return draft.named_at if layer is None or not path else locator(layer, file)(path, as_key)

        remedy = "add it to the row, or under `defaults:`"
        row = validate(Row, draft.values(), locate, problems, subject=f"row {draft.name}", remedy=remedy)
        if row:
            rows[draft.name] = _with_parents(row, locate, problems)
    return rows


def _with_parents(row: Row, locate: Any, problems: ProblemList) -> Row:
    """Refuse a row that leaves out a stage which another of its stages is built from."""
    for stage, parent in (("train", "base"), ("diag-tools", "train"), ("inference", "train")):
        if stage in row.stages and parent not in row.stages:
            message = f"row {row.name}: stage {stage} needs stage {parent}"
            problems.add(message, locate(("stages",), False), hint=f"add {parent} to `stages:`", rule="dangling")
    return row


def _selection(header: Header, rows: Mapping[str, Sequence[str]]) -> Selection:
    by_row = {name: [f"{stage}-{name}" for stage in STAGES if stage in stages] for name, stages in rows.items()}
    return Selection(by_row, header.groups, header.aliases)


def _check_names(selection: Selection, top: Map, file: str, problems: ProblemList) -> None:
    """Groups and aliases must mean something, and must not hide another name."""
    taken = {*selection.targets, *STAGES}
    locate = locator(top, file)
    for kind, names in (("groups", selection.groups), ("aliases", selection.aliases)):
        for name, meant in names.items():
            if name in taken:
                problems.add(f"{kind}: {name} already names a target or stage", locate((kind, name), True),
                             hint="choose another name", rule="duplicate-name")  # fmt: skip
            words = [meant] if isinstance(meant, str) else meant
            for index, word in enumerate(words):
                path = (kind, name) if isinstance(meant, str) else (kind, name, index)
                found = selection.expand(word, frozenset({name}))
                if not found:
                    problems.add(f"{kind}: {name}: {word!r} matches no target", locate(path, False),
                                 hint=selection.hint(word), rule="dangling")  # fmt: skip
                elif kind == "aliases" and len(found) > 1:
                    problems.add(f"aliases: {name}: {word!r} means {len(found)} targets", locate(path, False),
                                 hint="an alias names one; use a group", rule="value")  # fmt: skip
    for name in selection.groups.keys() & selection.aliases.keys():
        problems.add(f"{name} is both a group and an alias", locate(("aliases", name), True), rule="duplicate-name")
