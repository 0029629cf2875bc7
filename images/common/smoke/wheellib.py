"""What compiled libraries say of themselves: the symbol versions that they name, and the tags of their wheel."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import smokelib

#: The glibc that a wheel tag of the days before PEP 600 stands for.
OLD_TAGS = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}


def numbers(text: str) -> tuple[int, ...]:
    """Return a version as numbers that compare."""
    return tuple(int(part) for part in text.split("."))


def symbol_versions(path: Path, family: str) -> Iterator[tuple[int, ...]]:
    """Yield the versions of a family (``GLIBC``, ``GLIBCXX``) that a library's string table names."""
    start = b"\0" + family.encode() + b"_"
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(start)
        while at >= 0:
            found = re.match(rb"[0-9]+(\.[0-9]+)+(?=\0)", content[at + len(start) : at + len(start) + 16])
            if found:
                yield numbers(found[0].decode())
            at = content.find(start, at + 1)


def newest(paths: Iterable[Path], family: str) -> tuple[int, ...] | None:
    """Return the newest version of a family that any of these libraries names."""
    return max((version for path in paths for version in symbol_versions(path, family)), default=None)


def needed_major(path: Path, name: str) -> str | None:
    """Return the major version of a library that another one names, such as 12 of ``libcublas.so.12``."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(b"\0" + name.encode() + b".so.")
        found = re.match(rb"\0[^\0]+\.so\.([0-9]+)\0", content[at : at + 64]) if at >= 0 else None
    return found[1].decode() if found else None


def libraries(distribution: str) -> list[Path]:
    """Return the shared libraries that a distribution installed."""
    found = (Path(str(entry.locate())) for entry in metadata.distribution(distribution).files or ())
    return sorted(path for path in found if re.search(r"\.so(\.[0-9]+)*$", path.name) and path.stat().st_size)


def tags(distribution: str) -> list[str]:
    """Return the tags of the wheel that a distribution was installed from."""
    text = metadata.distribution(distribution).read_text("WHEEL") or ""
    return re.findall(r"^Tag: (\S+)$", text, re.MULTILINE)


def glibc_of(tag: str) -> str | None:
    """Return the glibc that a wheel tag promises to be content with; None for a tag that says nothing of it."""
    found = re.search(r"manylinux_([0-9]+)_([0-9]+)_", tag)
    if found:
        return f"{found[1]}.{found[2]}"
    return next((glibc for name, glibc in OLD_TAGS.items() if f"-{name}_" in tag), None)


def system_library(name: str) -> Path:
    """Return the system's library of this name that is loaded into this process, or end as failed."""
    text = Path("/proc/self/maps").read_text(encoding="utf-8")
    found = next((line.split()[-1] for line in text.splitlines() if f"/{name}" in line), None)
    smokelib.require(found, f"{name} is not loaded", "load something that needs it first")
    return Path(str(found))
