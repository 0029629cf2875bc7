"""What differs between two images: in the config, in the manifest, and in the layers, file by file."""

from __future__ import annotations

import itertools
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

from imagebuild.engine.archive import ImageArchive

_CHUNK = 1 << 20
_SHOWN = 24  # bytes of a file, from where they begin to differ
_ABSENT = "absent"
_KINDS = {tarfile.DIRTYPE: "folder", tarfile.SYMTYPE: "link", tarfile.LNKTYPE: "hard link", tarfile.FIFOTYPE: "pipe",
          tarfile.CHRTYPE: "character device", tarfile.BLKTYPE: "block device"}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """One thing that differs.

    `place` is `config`, `manifest` or a layer with the step that made it; `file` is a path in that layer; `what` is
    `mode`, `owner`, `mtime`, `size`, `bytes from offset 12 on` ..., or a path in the JSON.
    """

    place: str
    file: str
    what: str
    first: str
    second: str

    def __str__(self) -> str:
        file = f"/{self.file}: " if self.file else ""
        return f"{self.place}: {file}{self.what}: {self.first} <> {self.second}"


def differences(first: ImageArchive, second: ImageArchive, told: set[tuple[str, str]]) -> Iterator[Difference]:
    """Everything that differs between two images; nothing where their manifest digests are the same.

    Where layers differ, so do their digests in the config: that says nothing more.

    Args:
        first: one image.
        second: the other.
        told: pairs of layers to pass over, because a parent has them too; this image's are added.
    """
    for number, digests in enumerate(itertools.zip_longest(first.diff_ids, second.diff_ids)):
        if digests in told:
            continue
        told.add(digests)
        if None in digests:
            yield Difference(f"layer {number + 1}", "", "layer", digests[0] or _ABSENT, digests[1] or _ABSENT)
        elif digests[0] != digests[1]:
            place = f"layer {number + 1} ({_step(first, number)})"
            with _unpacked(first, number) as one, _unpacked(second, number) as other:
                yield from _layer(place, one, other)
        elif (one_blob := first.layers[number]) != (other_blob := second.layers[number]):
            described = [f"{blob.digest} ({blob.media_type}, {blob.size} bytes)" for blob in (one_blob, other_blob)]
            yield Difference(f"layer {number + 1}", "", "compression", *described)
    configs = [_own_config(archive, same_layers=first.diff_ids == second.diff_ids) for archive in (first, second)]
    yield from _json("config", "", *configs)
    manifests = [_without(archive.manifest.json, "config", "layers") for archive in (first, second)]
    yield from _json("manifest", "", *manifests)


def _step(archive: ImageArchive, number: int) -> str:
    """The instruction behind a layer, without what every RUN begins with, and short."""
    steps = archive.steps
    words = steps[number].split() if number < len(steps) else ["?"]
    text = " ".join(word for word in words if not word.startswith("--mount")).removeprefix("/bin/sh -c ")
    text = text.removeprefix("#(nop) ")
    return text if len(text) <= 100 else f"{text[:99]}…"


def _own_config(archive: ImageArchive, *, same_layers: bool) -> dict[str, Any]:
    """What a config says beside its layers. Older Podman notes the IDs of the images between two steps, too."""
    config = _without(archive.config, "rootfs")
    if not same_layers:
        config["history"] = [_without(step, "comment") for step in config.get("history") or []]
    return config


def _without(value: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: part for key, part in value.items() if key not in keys}


# --- JSON -----------------------------------------------------------------------------------------


def _json(place: str, path: str, first: Any, second: Any) -> Iterator[Difference]:
    """The leaves in which two JSON values differ, each under its path, such as `config.Env[2]`."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted(first.keys() | second.keys()):
            inner = f"{path}.{key}" if path else key
            yield from _json(place, inner, first.get(key, _ABSENT), second.get(key, _ABSENT))
    elif isinstance(first, list) and isinstance(second, list):
        for number, pair in enumerate(itertools.zip_longest(first, second, fillvalue=_ABSENT)):
            yield from _json(place, f"{path}[{number}]", *pair)
    elif first != second:
        yield Difference(place, "", path, *(one if one == _ABSENT else json.dumps(one) for one in (first, second)))


# --- layers ---------------------------------------------------------------------------------------


@contextmanager
def _unpacked(archive: ImageArchive, number: int) -> Iterator[tarfile.TarFile]:
    """A layer's tar in a temporary file, because only that can be read in any order."""
    with ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile(dir=archive.path.parent))
        shutil.copyfileobj(archive.layer(number), file, _CHUNK)
        file.seek(0)
        yield stack.enter_context(tarfile.open(fileobj=file))


def _layer(place: str, first: tarfile.TarFile, second: tarfile.TarFile) -> Iterator[Difference]:
    one = {member.name: member for member in first.getmembers()}
    other = {member.name: member for member in second.getmembers()}
    found = False
    for name in sorted(one.keys() | other.keys()):
        for what, *values in _member(first, second, one.get(name), other.get(name)):
            found = True
            yield Difference(place, name, what, *values)
    if found:
        return
    order = next((names for names in zip(one, other, strict=True) if names[0] != names[1]), None)
    if order:
        yield Difference(place, "", "order of the files", *order)
    else:
        yield Difference(place, "", "tar format", "the same files", "in other bytes")


def _member(
    first: tarfile.TarFile, second: tarfile.TarFile, one: tarfile.TarInfo | None, other: tarfile.TarInfo | None
) -> Iterator[tuple[str, str, str]]:
    """What differs in one file, as (what, first, second)."""
    if one is None or other is None:
        yield "file", _kind(one) if one else _ABSENT, _kind(other) if other else _ABSENT
        return
    before, after = _described(one), _described(other)
    yield from ((what, before[what], after[what]) for what in before if before[what] != after[what])
    if one.isreg() and other.isreg():
        left, right = first.extractfile(one), second.extractfile(other)
        assert left and right  # noqa: S101, PT018  (regular files have content)
        with left, right:
            if found := _first_difference(left, right):
                offset, before_bytes, after_bytes = found
                yield f"bytes from offset {offset} on", repr(before_bytes), repr(after_bytes)


def _described(entry: tarfile.TarInfo) -> dict[str, str]:
    """Everything that a tar says of a file but its content."""
    extended = {key: value for key, value in entry.pax_headers.items() if key.startswith("SCHILY.xattr.")}
    return {
        "type": _kind(entry),
        "mode": f"{entry.mode:04o}",
        "owner": f"{entry.uid}:{entry.gid}",
        "owner's name": f"{entry.uname}:{entry.gname}",
        "mtime": _time(entry.mtime),
        "size": str(entry.size),
        "link": entry.linkname,
        "device": f"{entry.devmajor}:{entry.devminor}" if entry.isdev() else "",
        "attributes": json.dumps(extended, sort_keys=True) if extended else "",
    }


def _kind(entry: tarfile.TarInfo) -> str:
    return _KINDS.get(entry.type, "file")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")


def _first_difference(first: IO[bytes], second: IO[bytes]) -> tuple[int, bytes, bytes] | None:
    """The offset at which two files begin to differ, and what each has there; None where they are the same."""
    offset = 0
    while True:
        one, other = first.read(_CHUNK), second.read(_CHUNK)
        if one != other:
            at = next((at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right),
                      min(len(one), len(other)))  # fmt: skip
            return offset + at, one[at : at + _SHOWN], other[at : at + _SHOWN]
        if not one:
            return None
        offset += len(one)


def summary(found: Sequence[Difference], limit: int) -> list[str]:
    """The first differences in words, and how many more there are."""
    more = len(found) - limit
    return [*(str(one) for one in found[:limit]), *([f"and {more} more"] if more > 0 else [])]
