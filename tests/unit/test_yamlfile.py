"""YAML is read strictly, and everything read knows its place."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imagebuild.errors import InputError
from imagebuild.spec import yamlfile
from imagebuild.spec.yamlfile import Map, Plain, Seq


def test_values_know_their_places() -> None:
    tree = yamlfile.parse("a: 1\nb:\n  - x\n  - {c: d}\n", "f.yaml")
    assert isinstance(tree, Map)
    assert tree.key_marks["b"] == (2, 1)
    assert tree.marks["a"] == (1, 4)
    assert isinstance(tree["b"], Seq)
    assert tree["b"].marks == [(3, 5), (4, 5)]
    assert tree["b"][1].marks["c"] == (4, 9)


@pytest.mark.parametrize(
    ("text", "value"), [("3.10", 3.1), ("12", 12), ("yes", True), ("0o17", None), ("1_000", 1000), ("2.9.1", None)]
)
def test_plain_scalars_keep_their_text(text: str, value: object) -> None:
    read = yamlfile.parse(f"k: {text}", "f")["k"]
    assert read == text
    assert getattr(read, "value", None) == value


def test_quoted_scalars_are_text() -> None:
    assert not isinstance(yamlfile.parse('k: "3.10"', "f")["k"], Plain)


def test_merge_keys_and_anchors() -> None:
    tree = yamlfile.parse("base: &b {x: 1, y: 2}\nrow: {<<: *b, y: 3}\n", "f")
    assert tree["row"] == {"x": "1", "y": "3"}


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "f:3:1", "duplicate key 'a', first given on line 1"),
        ("a: [1, 2", "f:2:1", "not valid YAML"),
        ("a: !!python/object:os.system x", "f:1:4", "tag"),
        ("--- {}\n--- {}\n", "f:2:1", "second document"),
        ("? [a]\n: b\n", "f:1:3", "key must be text"),
        ("a: *nothing\n", "f:1:4", "anchor"),
        ("a: &a [*a]\n", "f:1:8", "anchor"),
        ("a:\n\t- b\n", "f:2:1", "not valid YAML"),
    ],
)
def test_faults_of_form(text: str, place: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        yamlfile.parse(text, "f")
    problem = caught.value.problems[0]
    assert str(problem.location) == place
    assert said in problem.message


@settings(max_examples=300)
@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):  # and nothing else
        yamlfile.parse(text, "f")


def test_unreadable_files(tmp_path) -> None:  # type: ignore[no-untyped-def]
    binary = tmp_path / "matrix.yaml"
    binary.write_bytes(b"a: \xff\xfe")
    for path, said in ((binary, "UTF-8"), (tmp_path / "none", "no such file"), (tmp_path, "cannot be read")):
        with pytest.raises(InputError) as caught:
            yamlfile.load(path, path.name)
        assert said in caught.value.problems[0].message
