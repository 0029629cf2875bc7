"""Copy the closure of a few distributions, and what it needs of the system, into a new root.

Runs in a build stage on top of the train image. The result has the train image's own files, to the byte, and nothing
else: no torch, no pip, no shell, no package manager.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

#: Files of a distribution that nothing reads at run time.
UNUSED = (
    "*/tests/*", "*/testing/*", "*/f2py/*", "numpy/distutils/*", "numpy/*/include/*", "../../../bin/*",
    "*.pyi", "*.a", "*.c", "*.cpp", "*.h", "*.hpp", "*.pxd", "*.pyx",
    # tools to make and change models; and the library for C++ programs: Python's own module has it all in it
    "onnxruntime/backend/*", "onnxruntime/datasets/*", "onnxruntime/quantization/*", "onnxruntime/tools/*",
    "onnxruntime/transformers/*", "onnxruntime/capi/libonnxruntime.so*",
)  # fmt: skip
#: Distributions that only those tools import.
UNUSED_DISTRIBUTIONS = {"coloredlogs", "flatbuffers", "packaging", "protobuf", "sympy"}
#: Parts of the standard library that a policy server does not use.
UNUSED_STDLIB = {
    "test", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "pydoc_data", "distutils", "site-packages",
    "dist-packages", "venv",
}  # fmt: skip
#: What a program expects to find in any root, where the train image has it.
SYSTEM = (
    "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/os-release", "/usr/lib/os-release", "/etc/ld.so.conf",
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/usr/bin/tini",
)  # fmt: skip
SYSTEM_TREES = ("/etc/ld.so.conf.d", "/usr/lib/locale/C.utf8", "/usr/lib/locale/C.UTF-8")
#: Libraries of the driver, which must be the host's: CDI brings them in.
OF_THE_DRIVER = ("libcuda.so.*", "libnvidia-*")
#: Libraries that are opened by name at run time, by the library that opens them: no ELF header names them.
OPENED_BY_NAME = {"libcudnn.so": ("libcudnn*.so.*", "libnvrtc*.so.*"), "libc.so": ("libnss_*.so.2",)}


def canonical(name: str) -> str:
    """Return a distribution's name as PEP 503 spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(roots: Iterable[str]) -> list[metadata.Distribution]:
    """Return the distributions that ``roots`` need, themselves included, sorted by name.

    A requirement that is not installed does not apply to this platform; one that only an extra asks for, or that
    nothing imports at run time, is left out.
    """
    found: dict[str, metadata.Distribution] = {}
    waiting = [canonical(root) for root in roots]
    for root in waiting:
        metadata.distribution(root)  # a root must exist
    while waiting:
        name = waiting.pop()
        if name in found or name in UNUSED_DISTRIBUTIONS:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = distribution
        for requirement in distribution.requires or ():
            match = re.match(r"[A-Za-z0-9._-]+", requirement)
            if match and not re.search(r"\bextra\s*==", requirement):
                waiting.append(canonical(match[0]))
    return [found[name] for name in sorted(found)]


def distribution_files(distribution: metadata.Distribution) -> Iterator[Path]:
    """Yield the files of a distribution that are used at run time, each source with its bytecode."""
    for entry in distribution.files or ():
        if any(fnmatch.fnmatch(str(entry), pattern) for pattern in UNUSED):
            continue
        path = Path(os.path.normpath(str(distribution.locate_file(entry))))
        if path.suffix == ".pyc" or not path.exists():
            continue
        yield path
        yield from bytecode(path)


def bytecode(source: Path) -> Iterator[Path]:
    """Yield the compiled form of a Python source, if there is one."""
    compiled = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
    if source.suffix == ".py" and compiled.exists():
        yield compiled


def interpreter_files() -> Iterator[Path]:
    """Yield the virtual environment's own files, beside its distributions."""
    prefix = Path(sys.prefix)
    yield prefix / "pyvenv.cfg"
    yield from sorted((prefix / "bin").glob("python*"))
    if (prefix / "lib64").is_symlink():
        yield prefix / "lib64"


def stdlib_files() -> Iterator[Path]:
    """Yield the base interpreter and the used part of its standard library."""
    yield Path(os.path.realpath(sys.executable))
    for folder in sorted({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}):
        base = Path(folder.replace(sys.prefix, sys.base_prefix, 1))
        for path in walk(base):
            parts = path.relative_to(base).parts
            if parts[0] not in UNUSED_STDLIB and not parts[0].startswith("config-"):
                yield path


def walk(folder: Path) -> Iterator[Path]:
    """Yield every file below a folder, in a fixed order."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(names))


def needed_libraries(files: Iterable[Path]) -> set[Path]:
    """Return the shared libraries that the ELF files among ``files`` load, and those that these open by name."""
    found: set[Path] = set()
    for path in files:
        if path.is_symlink() or not path.is_file() or path.open("rb").read(4) != b"\x7fELF":
            continue
        listing = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False).stdout
        found.update(Path(name) for name in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listing, re.MULTILINE))
    names = {library.name for library in found}
    for opener, patterns in OPENED_BY_NAME.items():
        if any(name.startswith(opener) for name in names):
            found.update(path for path in loader_cache() if any(fnmatch.fnmatch(path.name, each) for each in patterns))
    return {path for path in found if not any(fnmatch.fnmatch(path.name, pattern) for pattern in OF_THE_DRIVER)}


def loader_cache() -> list[Path]:
    """Return the libraries that the dynamic loader knows by name."""
    listing = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return [Path(path) for path in re.findall(r"=> (/\S+)$", listing, re.MULTILINE)]


class Root:
    """A new root filesystem, filled with files of this one at the same places."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.top.mkdir(parents=True)

    def add(self, path: Path) -> None:
        """Copy a file; a symbolic link is copied with what it points at, and so are links on the way to it."""
        path = Path(os.path.realpath(path.parent)) / path.name
        place = self.top / path.relative_to("/")
        if place.exists() or place.is_symlink():
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place, follow_symlinks=False)
        if path.is_symlink() and not path.is_dir():
            self.add(path.parent / path.readlink())

    def add_skeleton(self) -> None:
        """Make the folders and links at the top, as they are here."""
        for name in ("bin", "sbin", "lib", "lib64"):
            source = Path("/", name)
            if source.is_symlink():
                (self.top / name).symlink_to(source.readlink())
        for name, mode in (("tmp", 0o1777), ("proc", 0o555), ("sys", 0o555), ("dev", 0o755), ("run", 0o755)):
            (self.top / name).mkdir(exist_ok=True)
            (self.top / name).chmod(mode)
        for name in ("home/worker", "workspace"):
            (self.top / name).mkdir(parents=True)
            os.chown(self.top / name, 1000, 1000)


def main() -> None:
    """Fill the new root."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, required=True, help="the new root; it must not exist")
    parser.add_argument(
        "--system", action="store_true", help="also take the interpreter and the libraries of the system"
    )
    parser.add_argument("distributions", nargs="+")
    arguments = parser.parse_args()
    root = Root(arguments.to)
    files = [*interpreter_files()]
    for distribution in closure(arguments.distributions):
        print(f"{distribution.name} {distribution.version}")
        files += distribution_files(distribution)
    if arguments.system:
        root.add_skeleton()
        files += stdlib_files()
        files += (path for name in SYSTEM if (path := Path(name)).exists())
        files += (path for name in SYSTEM_TREES for path in walk(Path(name)))
    libraries = needed_libraries(files)
    if not arguments.system:
        libraries = {library for library in libraries if library.is_relative_to(sys.prefix)}
    for path in [*files, *sorted(libraries)]:
        root.add(path)
    if arguments.system:
        subprocess.run(["ldconfig", "-X", "-r", str(root.top)], check=True)
        shutil.rmtree(root.top / "var", ignore_errors=True)


if __name__ == "__main__":
    main()
