"""What a bootstrapped base is made of; `engine.bootstrap` makes it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from imagebuild.errors import InputError, Location, Problem
from imagebuild.plan.inputs import sha256

PACKAGES_FILE = "images/base/rootfs-packages.txt"
SUITES = {"debian12": "bookworm", "debian13": "trixie", "ubuntu22.04": "jammy", "ubuntu24.04": "noble"}


@dataclass(frozen=True)
class RootfsRecipe:
    """A root filesystem to bootstrap: the release, its packages, and the time stamp of its files.

    `timestamp` is in seconds since 1970.
    """

    os: str
    suite: str
    packages: tuple[str, ...]
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
    return RootfsRecipe(os, SUITES[os], tuple(sorted({word for word in words if word})), timestamp)
