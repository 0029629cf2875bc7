"""What each package takes on the disk is measured, and written down for `buildkit size`."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import smokelib

# Every file counts once, for the package that it belongs to: bytecode for that of its source. What belongs to none is
# named by itself if it is large, and by its folder if not. This check comes first, as others leave files of their own.
TOP = "/"
DPKG = Path("/var/lib/dpkg/info")
LARGE = 1_000_000  # bytes of a file that is named, though it belongs to no package
DEPTH = 3  # folders of a path that are named for the others


def of_dpkg() -> Iterator[tuple[str, str]]:
    """Yield the paths that dpkg knows, each with its package."""
    for listing in DPKG.glob("*.list"):
        for path in listing.read_text(encoding="utf-8").splitlines():
            yield path, listing.stem.partition(":")[0]


def of_rpm() -> Iterator[tuple[str, str]]:
    """Yield the paths that rpm knows, each with its package."""
    command = ["rpm", "--query", "--all", "--queryformat", r"[%{=NAME}\t%{FILENAMES}\n]"]
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        package, _, path = line.partition("\t")
        yield path, package


def of_python() -> Iterator[tuple[str, str]]:
    """Yield the paths in the RECORD of each distribution, each with its name as PEP 503 spells it."""
    for distribution in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
        top = os.path.realpath(str(distribution.locate_file("")))
        for entry in filter(None, csv.reader((distribution.read_text("RECORD") or "").splitlines())):
            yield os.path.normpath(os.path.join(top, entry[0])), name


def owners() -> dict[str, tuple[str, str]]:
    """Return what each path belongs to: `os` or `python`, and the package."""
    # Packages may know a file under /lib that lies in /usr/lib: the file is found under the latter only.
    merged = {f"/{name}": os.path.realpath(f"/{name}") for name in os.listdir("/") if os.path.islink(f"/{name}")}
    found = {}
    for path, package in of_dpkg() if DPKG.exists() else of_rpm() if shutil.which("rpm") else ():
        top, slash, rest = path[1:].partition("/")
        found[merged.get(f"/{top}", f"/{top}") + slash + rest] = ("os", package)
    found.update((path, ("python", name)) for path, name in of_python())
    return found


def files(top: str) -> Iterator[tuple[str, int]]:
    """Yield the image's own files with their bytes: what is mounted is not in it, and a hard link is nothing more."""
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        passed_over = {line.split()[4] for line in mounts} | {str(smokelib.SMOKE_DIR)}
    seen = set()
    waiting = [top]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except PermissionError:
            continue
        for entry in entries:
            if entry.path in passed_over:
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                if found.st_nlink == 1 or (found.st_dev, found.st_ino) not in seen:
                    seen.add((found.st_dev, found.st_ino))
                    yield entry.path, found.st_size


def source_of(path: str) -> str:
    """Return the source that a file of bytecode is compiled from, or the path itself."""
    folder, name = os.path.split(path)
    if not (name.endswith(".pyc") and folder.endswith("/__pycache__")):
        return path
    return os.path.join(os.path.dirname(folder), f"{name.partition('.')[0]}.py")


sizes: dict[str, dict[str, int]] = {"os": {}, "python": {}, "files": {}}
known = owners()
for path, size in files(TOP):
    nobody = ("files", path if size >= LARGE else "/".join(path.split("/")[: DEPTH + 1]))
    kind, name = known.get(path) or known.get(source_of(path)) or nobody
    sizes[kind][name] = sizes[kind].get(name, 0) + size
for kind, found in sizes.items():
    print(f"{kind}: {len(found)}, {sum(found.values()) / 1e6:.1f} MB")
smokelib.require(any(sizes.values()), "no file was seen", "the image's user must be able to read its folders")
smokelib.OUT.mkdir(exist_ok=True)
(smokelib.OUT / "sizes.json").write_text(json.dumps(sizes, indent=1, sort_keys=True))
