"""The image that builds bind-mount: the pinned uv, and the wheels that lie on this host."""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
from pathlib import Path

from imagebuild.engine.host import PythonSettings, uv_binary
from imagebuild.engine.podman import OnLine, Podman

TOOLS_IMAGE = "localhost/buildkit/tools:latest"
_LABEL = "io.buildkit.tools-digest"


def ensure_tools(podman: Podman, python: PythonSettings, on_line: OnLine) -> None:
    """Make the tools image if it does not hold just what this host has now.

    Raises:
        WorkError: uv is missing, or the build failed.
    """
    files = {"uv": uv_binary(), **{f"wheels/{wheel.name}": wheel for wheel in python.wheels()}}
    digest = _digest(files)
    present = podman.image(TOOLS_IMAGE)
    if present and present.labels.get(_LABEL) == digest:
        return
    on_line(f"buildkit: making {TOOLS_IMAGE} with {', '.join(files)}")
    containerfile = f'FROM scratch\nCOPY tools/ /\nLABEL {_LABEL}="{digest}"\n'
    with tempfile.TemporaryFile() as buffer:
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            _folder(tar, "tools/wheels")
            for name, path in files.items():
                tar.add(path.resolve(), f"tools/{name}")
            _text(tar, "Containerfile", containerfile)
        buffer.seek(0)
        podman.build(buffer, TOOLS_IMAGE, secrets=(), timestamp=0, cache=True, network="host", on_line=on_line)


def _digest(files: dict[str, Path]) -> str:
    """What the image is made from. Size and time stand for the bytes: wheels are large, and this runs each build."""
    described = [
        (name, stat.st_size, stat.st_mtime_ns) for name, path in sorted(files.items()) if (stat := path.stat())
    ]
    return hashlib.sha256(repr(described).encode()).hexdigest()


def _folder(tar: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    tar.addfile(entry)


def _text(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(text.encode())
    tar.addfile(entry, io.BytesIO(text.encode()))
