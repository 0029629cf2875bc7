"""What a bootstrapped base is made of; `engine.bootstrap` makes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from imagebuild.errors import InputError, Location, Problem
from imagebuild.plan.inputs import sha256

PACKAGES_FILE = "images/base/rootfs-packages.txt"
SUITES = {"debian12": "bookworm", "debian13": "trixie", "ubuntu22.04": "jammy", "ubuntu24.04": "noble"}

# Documentation and translations are a fifth of a small root filesystem; licences stay.
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/lintian/*")
_KEPT = ("/usr/share/doc/*/copyright",)

# What the host or the moment leaves behind. /proc is mounted while hooks run: nothing searches from the top.
_TIDY = """
find "$1/usr" -name __pycache__ -prune -exec rm -rf {} +
for name in hostname resolv.conf machine-id apt/sources.list; do : > "$1/etc/$name"; done
rm -rf "$1"/var/cache/ldconfig/* "$1"/var/cache/debconf/*-old "$1"/var/lib/dpkg/*-old "$1"/var/log/* \\
    "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/*
"""
# Merges /usr before the packages come, so that it takes no `usrmerge`, which brings all of Perl.
_MERGED_USR = "/usr/share/mmdebstrap/hooks/merged-usr"


@dataclass(frozen=True)
class RootfsRecipe:
    """A root filesystem to bootstrap: the release, mmdebstrap's options, and the time stamp of its files.

    `timestamp` is in seconds since 1970.
    """

    os: str
    suite: str
    options: tuple[str, ...]
    timestamp: int

    @property
    def digest(self) -> str:
        """Changes with whatever changes the root filesystem."""
        return sha256(json.dumps(asdict(self), sort_keys=True).encode())


def recipe(folder: Path, os: str, timestamp: int, asked_at: Location) -> RootfsRecipe:
    """The recipe of a row whose base is `bootstrap`.

    Raises:
        InputError: the row's OS cannot be bootstrapped, or the package list is missing.
    """
    if os not in SUITES:
        hint = f"bootstrap works for {', '.join(SUITES)}; name an image in `base:` instead"
        raise InputError(Problem(f"base: bootstrap does not work for {os}", asked_at, hint, rule="base"))
    try:
        lines = (folder / PACKAGES_FILE).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", Location(PACKAGES_FILE))) from None
    words = [line.split("#")[0].strip() for line in lines]
    packages = sorted({word for word in words if word})
    return RootfsRecipe(os, SUITES[os], tuple(_options(packages)), timestamp)


def _options(packages: Sequence[str]) -> Iterator[str]:
    yield "--variant=apt"
    yield "--format=tar"
    yield f"--include={','.join(packages)}"
    yield f"--hook-dir={_MERGED_USR}"
    yield '--aptopt=APT::Install-Recommends "false"'
    yield '--aptopt=Acquire::Languages "none"'
    yield from (f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT)
    yield from (f"--dpkgopt=path-include={pattern}" for pattern in _KEPT)
    yield "--skip=output/dev"
    yield f"--customize-hook={_TIDY}"
