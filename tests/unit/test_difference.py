"""What is said of two images that differ, on images made for it."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from imagebuild.engine.archive import ImageArchive
from imagebuild.engine.manifest import OCI_MANIFEST, digest_of
from imagebuild.errors import WorkError
from imagebuild.run.difference import Difference, differences, summary

Change = Callable[[tarfile.TarInfo], None]


def entry(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    """A file in a layer: by default a regular one of root's, of 1970."""
    made = tarfile.TarInfo(name)
    made.size, made.mode = len(data), 0o644
    for key, value in fields.items():
        setattr(made, key, value)
    return made, data


def layer(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def image(path: Path, layers: Sequence[bytes], config: Mapping[str, Any] | None = None, level: int = 6,
          annotations: Mapping[str, str] | None = None) -> ImageArchive:  # fmt: skip
    """An OCI archive with these layers, each made by a step `RUN step N`."""
    blobs: dict[str, bytes] = {}

    def put(content: bytes) -> dict[str, Any]:
        blobs[digest_of(content)] = content
        return {"mediaType": "x", "digest": digest_of(content), "size": len(content)}

    history = [{"created_by": f"/bin/sh -c step {number}"} for number, _ in enumerate(layers, 1)]
    rootfs = {"type": "layers", "diff_ids": [digest_of(one) for one in layers]}
    whole = {"config": {"Env": ["A=1"]}, "history": history, "rootfs": rootfs, **(config or {})}
    manifest = {
        "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": put(json.dumps(whole).encode()),
        "layers": [put(gzip.compress(one, level, mtime=0)) for one in layers], "annotations": annotations or {},
    }  # fmt: skip
    index = {"manifests": [put(json.dumps(manifest).encode())]}
    with tarfile.open(path, "w") as tar:
        for name, content in [("index.json", json.dumps(index).encode())] + [
            (f"blobs/{digest.replace(':', '/')}", content) for digest, content in blobs.items()
        ]:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return ImageArchive(path)


def between(tmp_path: Path, one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Difference]:
    with image(tmp_path / "1.tar", **one) as first, image(tmp_path / "2.tar", **other) as second:
        same = first.manifest.digest == second.manifest.digest
        found = list(differences(first, second, set()))
    assert same == (found == [])
    return found


def in_layer(tmp_path: Path, one: Sequence[Any], other: Sequence[Any]) -> list[tuple[str, str, str, str]]:
    found = between(tmp_path, {"layers": [layer(*one)]}, {"layers": [layer(*other)]})
    assert {difference.place for difference in found} <= {"layer 1 (step 1)"}
    return [(one.file, one.what, one.first, one.second) for one in found]


def test_the_same_images_do_not_differ(tmp_path: Path) -> None:
    assert in_layer(tmp_path, [entry("a", b"x")], [entry("a", b"x")]) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"mode": 0o755}, ("mode", "0644", "0755")),
        ({"uid": 1000, "gid": 5}, ("owner", "0:0", "1000:5")),
        ({"uname": "root"}, ("owner's name", ":", "root:")),
        ({"mtime": 86400}, ("mtime", "1970-01-01T00:00:00", "1970-01-02T00:00:00")),
        ({"pax_headers": {"SCHILY.xattr.user.a": "1"}}, ("attributes", "", '{"SCHILY.xattr.user.a": "1"}')),
    ],
)
def test_what_a_file_differs_in(tmp_path: Path, fields: dict[str, Any], expected: tuple[str, str, str]) -> None:
    assert in_layer(tmp_path, [entry("etc/a", b"x")], [entry("etc/a", b"x", **fields)]) == [("etc/a", *expected)]


def test_the_first_byte_that_differs_is_named_however_far_in(tmp_path: Path) -> None:
    long = bytes(3_000_000)
    changed = long[:2_500_000] + b"\x01" + long[2_500_001:]
    ((file, what, before, after),) = in_layer(tmp_path, [entry("a", long)], [entry("a", changed)])
    assert (file, what) == ("a", "bytes from offset 2500000 on")
    assert before == repr(bytes(24))
    assert after == repr(b"\x01" + bytes(23))


def test_a_longer_file_differs_in_size_and_from_its_end_on(tmp_path: Path) -> None:
    assert in_layer(tmp_path, [entry("a", b"12")], [entry("a", b"123")]) == [
        ("a", "size", "2", "3"),
        ("a", "bytes from offset 2 on", "b''", "b'3'"),
    ]


def test_files_that_only_one_has_links_and_kinds(tmp_path: Path) -> None:
    link = entry("l", type=tarfile.SYMTYPE, linkname="x")
    other = entry("l", type=tarfile.SYMTYPE, linkname="y")
    assert in_layer(tmp_path, [entry("a"), link], [other, entry("b")]) == [
        ("a", "file", "file", "absent"),
        ("b", "file", "absent", "file"),
        ("l", "link", "x", "y"),
    ]
    folder = entry("a", type=tarfile.DIRTYPE)
    assert in_layer(tmp_path, [entry("a")], [folder]) == [("a", "type", "file", "folder")]


def test_the_order_and_the_format_of_a_tar_count_too(tmp_path: Path) -> None:
    one, other = entry("a", b"1"), entry("b", b"2")
    assert in_layer(tmp_path, [one, other], [other, one]) == [("", "order of the files", "a", "b")]
    plain, extended = layer(one), layer(one, form=tarfile.GNU_FORMAT)
    (found,) = between(tmp_path, {"layers": [plain]}, {"layers": [extended]})
    assert found.what == "tar format"


def test_the_compression_of_the_same_layer(tmp_path: Path) -> None:
    content = layer(entry("a", b"abc" * 10_000 + bytes(range(256)) * 50))
    (found,) = between(tmp_path, {"layers": [content], "level": 1}, {"layers": [content], "level": 9})
    assert (found.place, found.what) == ("layer 1", "compression")


def test_the_config_by_its_path_and_the_manifest(tmp_path: Path) -> None:
    content = [layer(entry("a"))]
    one = {"layers": content, "config": {"config": {"Env": ["A=1", "B=2"], "User": "0"}}}
    other = {"layers": content, "config": {"config": {"Env": ["A=1", "B=3", "C=4"]}}, "annotations": {"k": "v"}}
    assert [(found.place, found.what, found.first, found.second) for found in between(tmp_path, one, other)] == [
        ("config", "config.Env[1]", '"B=2"', '"B=3"'),
        ("config", "config.Env[2]", "absent", '"C=4"'),
        ("config", "config.User", '"0"', "absent"),
        ("manifest", "annotations.k", "absent", '"v"'),
    ]


def test_what_a_parent_has_too_is_told_once(tmp_path: Path) -> None:
    told: set[tuple[str, str]] = set()
    parents = [[layer(entry("a", text))] for text in (b"1", b"2")]
    own = layer(entry("b"))
    comments = [{"history": [{"created_by": "/bin/sh -c step 1", "comment": f"FROM {text}"}]} for text in "12"]
    for name, extra in (("parent", []), ("child", [own])):
        with image(tmp_path / f"{name}1.tar", parents[0] + extra, comments[0]) as first, \
             image(tmp_path / f"{name}2.tar", parents[1] + extra, comments[1]) as second:  # fmt: skip
            found = [one.file for one in differences(first, second, told)]
        assert found == (["a"] if name == "parent" else [])


def test_another_number_of_layers(tmp_path: Path) -> None:
    one, other = layer(entry("a")), layer(entry("b"))
    found = between(tmp_path, {"layers": [one]}, {"layers": [one, other]})
    assert (found[0].place, found[0].first, found[0].second) == ("layer 2", "absent", digest_of(other))


def test_what_is_no_archive_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"no tar")
    with pytest.raises(WorkError, match="is not an OCI archive"):
        ImageArchive(tmp_path / "x")
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    with ImageArchive(tmp_path / "empty.tar") as archive, pytest.raises(WorkError, match=r"has no index\.json"):
        _ = archive.manifest


def test_a_summary_counts_what_it_leaves_out() -> None:
    found = [Difference("layer 1", f"f{number}", "mode", "0644", "0755") for number in range(5)]
    assert summary(found, 2) == [
        "layer 1: /f0: mode: 0644 <> 0755", "layer 1: /f1: mode: 0644 <> 0755", "and 3 more",
    ]  # fmt: skip
    assert summary(found[:1], 2) == ["layer 1: /f0: mode: 0644 <> 0755"]
