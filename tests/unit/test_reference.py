"""References and the tags that buildkit writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagebuild.errors import InputError
from imagebuild.spec import reference
from imagebuild.spec.reference import Reference, Repository, parse_reference

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "registry", "path", "target"),
    [
        ("ubuntu", "docker.io", "library/ubuntu", "latest"),
        ("nvidia/cuda:11.8.0-cudnn8-devel-rockylinux8", "docker.io", "nvidia/cuda", "11.8.0-cudnn8-devel-rockylinux8"),
        ("127.0.0.1:5000/p/train:cpu-prod", "127.0.0.1:5000", "p/train", "cpu-prod"),
        ("[::1]:5000/p/train:cpu", "[::1]:5000", "p/train", "cpu"),
        ("localhost/p/train:cpu", "localhost", "p/train", "cpu"),
        (f"registry.lab:5000/p@{DIGEST}", "registry.lab:5000", "p", DIGEST),
        (f"registry.lab:5000/p:cpu@{DIGEST}", "registry.lab:5000", "p", DIGEST),
    ],
)
def test_references_are_read_as_podman_does(text: str, registry: str, path: str, target: str) -> None:
    parsed = parse_reference(text)
    assert parsed.repository == Repository(registry, path)
    assert parsed.target == target
    assert parse_reference(str(parsed)) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "p/train:cpu\n",
        " p/train",
        "p/train:1.0+cu118",
        "https://registry.lab/p",
        "user:password@registry.lab/p",
        "registry.lab/P/train",
        "p@sha256:abc",
        "p@md5:" + "a" * 32,
        "registry.lab/p:" + "x" * 129,
        "registry.lab/p//q",
    ],
)
def test_bad_references_are_input_errors(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_reference(text)
    assert repr(text) in caught.value.message


def test_tags_of_the_design() -> None:
    assert reference.address_tag("cu118", DIGEST) == "cu118-in-0123456789abcdef"
    assert reference.version_tag("cu118", "1.4.0-rc.1") == "cu118-1.4.0-rc.1"
    assert reference.commit_tag("cu118", "a" * 40) == "cu118-gaaaaaaaaaaaa"
    assert reference.newest_tag("cu118") == "cu118"
    assert reference.release_tag("cu118", "1.4.0") == "cu118-1.4.0-prod"
    assert reference.channel_tag("cu118") == "cu118-prod"
    assert reference.channel_tag("cu118", "staging") == "cu118-staging"
    assert (
        str(reference.stage_repository("127.0.0.1:5000", "p", "train").tagged("cu118"))
        == "127.0.0.1:5000/p/train:cu118"
    )
    assert str(reference.ledger_repository("registry.lab", "p")) == "registry.lab/p/releases"


@pytest.mark.parametrize(
    "version", ["1.4.0+cu118", "1.4", "v1.4.0", "", "1.4.0\n", "1.4.0-prod", "1.4.0-rc-staging", "01.0.0"]
)
def test_versions_that_cannot_be_tags(version: str) -> None:
    with pytest.raises(InputError):
        reference.version_tag("cpu", version)


def test_build_metadata_is_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match="'\\+' is not legal in a tag") as caught:
        reference.release_tag("cu118", "1.4.0+cu118")
    assert caught.value.problems[0].hint.startswith("drop '+cu118'")


@pytest.mark.parametrize(
    "row",
    [
        "",
        "CPU",
        "-cpu",
        "cpu_",
        "c pu",
        "cpu+x",
        "cpu-prod",
        "cpu-staging",
        "cpu-1.0.0",
        "cpu-1.0.0-b",
        "cpu-gabcdef0",
        "cpu-in-0123456789abcdef",
        "cpu\n",
        "a" * 129,
    ],
)
def test_rows_that_cannot_begin_a_tag(row: str) -> None:
    with pytest.raises(InputError):
        reference.newest_tag(row)


@pytest.mark.parametrize("tag", ["", ".a", "-a", "a+b", "a b", "a\n", "ä", "a" * 129, "a/b", "a:b"])
def test_illegal_tags(tag: str) -> None:
    with pytest.raises(InputError):
        reference.check_tag(tag)


@pytest.mark.parametrize(
    "digest", ["", "sha256:abc", DIGEST.upper(), DIGEST + "0", DIGEST + "\n", "sha512:" + "0" * 128]
)
def test_illegal_digests(digest: str) -> None:
    with pytest.raises(InputError):
        Repository("registry.lab", "p").at(digest)


@pytest.mark.parametrize("commit", ["", "abc", "HEAD", "g" * 40, "A" * 40])
def test_illegal_commits(commit: str) -> None:
    with pytest.raises(InputError):
        reference.commit_tag("cpu", commit)


NAMES = st.from_regex(r"[a-z0-9]{1,4}(?:[-_.][a-z0-9]{1,7}){0,3}", fullmatch=True)
VERSIONS = st.from_regex(r"[0-9]\.[0-9]\.[0-9](?:-[a-z]{1,4})?", fullmatch=True)
MAKERS = st.one_of(
    st.tuples(st.just("newest"), NAMES, st.just("")),
    st.tuples(st.just("version"), NAMES, VERSIONS),
    st.tuples(st.just("release"), NAMES, VERSIONS),
    st.tuples(st.just("channel"), NAMES, st.sampled_from(["prod", "staging"])),
    st.tuples(st.just("commit"), NAMES, st.from_regex(r"[0-9a-f]{7}", fullmatch=True)),
    st.tuples(st.just("address"), NAMES, st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True)),
)


@given(st.lists(MAKERS, min_size=2, max_size=40, unique=True))
def test_no_two_things_share_a_tag(things: list[tuple[str, str, str]]) -> None:
    seen: dict[str, tuple[str, str, str]] = {}
    for kind, row, detail in things:
        maker = getattr(reference, f"{kind}_tag")
        try:
            tag = maker(row, detail) if detail else maker(row)
        except InputError:
            continue
        assert seen.setdefault(tag, (kind, row, detail)) == (kind, row, detail)


@given(st.text(max_size=40))
def test_any_text_is_a_reference_or_an_input_error(text: str) -> None:
    try:
        parsed = parse_reference(text)
    except InputError:
        return
    assert isinstance(parsed, Reference)
    assert parse_reference(str(parsed)) == parsed
