"""The lock: what each row is made from, exactly, as files under `locks/`.

`<row>.yaml` holds the digests of the images that the row starts from, and what all of it was resolved for;
`<row>-<stage>.txt` is a requirements file with the hash of every wheel. No file names an index, a mirror or a
machine: a lock made at one site installs at another.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import yaml
from packaging.utils import canonicalize_name
from pydantic import Field

from imagebuild.errors import InputError, Location, Problem, ProblemList
from imagebuild.spec import yamlfile
from imagebuild.spec.models import STAGES, Strict, Text
from imagebuild.spec.reference import Reference, parse_reference
from imagebuild.spec.strict import expect_map, locator, validate

FOLDER = "locks"
_HEADER = "# Written by `buildkit lock`; not meant to be edited.\n"
_PIN = re.compile(r"([A-Za-z0-9][\w.-]*)==([\w.+!-]+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)", re.ASCII)

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Read = Callable[[str], str | None]  # the text of a file in the folder of locks, None where there is none


@dataclass(frozen=True)
class Needs:
    """What a row asks for: the lock answers it, and fits as long as the row asks for the same."""

    row: str
    os: str
    python: str
    images: Mapping[str, str]  # the row's field -> the reference in it
    requirements: Mapping[str, tuple[str, ...]]  # stage -> requirements without comments; parents first


class Part(Strict):
    """One thing that was looked up: its digest, or why there is none."""

    digest: Digest | None = None
    unresolved: Text = ""


class ImagePart(Part):
    """An image that the row starts from."""

    reference: Text


class StagePart(Part):
    """A stage's Python packages; the digest is that of the stage's requirements file."""

    requirements: tuple[Text, ...]


class Form(Strict):
    """What `<row>.yaml` says."""

    os: Text
    python: Text
    images: dict[str, ImagePart] = Field({})
    stages: dict[str, StagePart] = Field({})


@dataclass(frozen=True)
class Pin:
    """One locked package."""

    version: str
    hashes: frozenset[str]


@dataclass(frozen=True)
class RowLock:
    """The lock of one row."""

    row: str
    form: Form
    files: Mapping[str, str]  # stage -> its requirements file

    def image(self, field: str) -> str | None:
        """The image that a field of the row names, by digest; None where it is not locked."""
        part = self.form.images.get(field)
        return pinned(part.reference, part.digest) if part and part.digest else None

    def pins(self, stage: str) -> dict[str, Pin]:
        """A stage's packages by name."""
        return pins_in(self.files.get(stage, ""))

    @property
    def unresolved(self) -> dict[str, list[str]]:
        """Why parts could not be looked up: each reason with the parts."""
        parts: Mapping[str, Part] = {**self.form.images, **self.form.stages}
        reasons: dict[str, list[str]] = {}
        for name, part in parts.items():
            if not part.digest:
                reasons.setdefault(part.unresolved or "it was not looked up", []).append(name)
        return reasons

    @property
    def spoiled(self) -> list[str]:
        """The stages whose requirements file is not what was locked."""
        return [
            stage
            for stage, part in self.form.stages.items()
            if part.digest and part.digest != digest_of(self.files.get(stage, ""))
        ]


def pinned(reference: str, digest: str) -> str:
    """A reference by digest alone: Podman does not take a tag beside it everywhere."""
    return str(Reference(parse_reference(reference).repository, digest=digest))


def digest_of(text: str) -> str:
    """The digest that vouches for a file."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def pins_in(text: str) -> dict[str, Pin]:
    """The packages of a locked requirements file by their canonical names."""
    return {
        canonicalize_name(name): Pin(version, frozenset(hashes.replace("\\", " ").split()))
        for name, version, hashes in _PIN.findall(text)
    }


def foreign_lines(text: str) -> list[str]:
    """What is in a requirements file besides comments and pins with hashes, such as an address to install from."""
    rest = _PIN.sub("", text)
    return [line for line in rest.splitlines() if line.strip() and not line.startswith("#")]


def requirements_name(row: str, stage: str) -> str:
    """The file with a stage's packages."""
    return f"{row}-{stage}.txt"


def form_name(row: str) -> str:
    """The file with everything else."""
    return f"{row}.yaml"


def on_disk(folder: Path) -> Read:
    """Reads the locks that lie in a folder."""

    def read_file(name: str) -> str | None:
        try:
            return (folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise InputError(Problem(f"not UTF-8 text: byte {error.start}", Location(f"{FOLDER}/{name}"))) from None

    return read_file


def locked_rows(names: Iterable[str]) -> list[str]:
    """The rows whose locks are among these files, sorted."""
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def read(row: str, file: Read) -> RowLock | None:
    """The lock of a row, or None where there is none.

    Raises:
        InputError: the file has not the form of a lock; a merge may have left it so.
    """
    text = file(form_name(row))
    if text is None:
        return None
    name = f"{FOLDER}/{form_name(row)}"
    problems = ProblemList()
    tree = expect_map(yamlfile.parse(text, name), "a lock", Location(name, 1, 1), problems)
    problems.raise_any()
    form = validate(Form, tree, locator(tree, name), problems, remedy=f"buildkit lock {row}")
    problems.raise_any()
    assert form is not None  # noqa: S101  (a form that is None has problems, raised above)
    return RowLock(row, form, {stage: file(requirements_name(row, stage)) or "" for stage in form.stages})


def write(folder: Path, lock: RowLock) -> None:
    """Replace the files of a row. The form, which vouches for the others, comes last."""
    folder.mkdir(exist_ok=True)
    texts = {requirements_name(lock.row, stage): text for stage, text in lock.files.items()}
    values = lock.form.model_dump(mode="json", exclude_defaults=True)
    texts[form_name(lock.row)] = _HEADER + yaml.safe_dump(values, sort_keys=False, width=120)
    for name, text in texts.items():
        (folder / f".{name}.new").write_text(text, encoding="utf-8")
    for name in texts:
        os.replace(folder / f".{name}.new", folder / name)
    for stage in set(STAGES) - lock.files.keys():
        (folder / requirements_name(lock.row, stage)).unlink(missing_ok=True)


def remove(folder: Path, row: str) -> None:
    """Delete the lock of a row that is no more."""
    for name in (form_name(row), *(requirements_name(row, stage) for stage in STAGES)):
        (folder / name).unlink(missing_ok=True)
