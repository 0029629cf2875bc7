"""The shape of `matrix.yaml`, as pydantic models: one place for types, for messages and for the editor's schema."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from imagebuild.errors import InputError
from imagebuild.spec.reference import check_row
from imagebuild.spec.yamlfile import Plain

Stage = Literal["base", "train", "diag-tools", "inference"]
STAGES: tuple[Stage, ...] = ("base", "train", "diag-tools", "inference")
Os = Literal[
    "debian12", "debian13", "ubuntu22.04", "ubuntu24.04",
    "rockylinux8", "rockylinux9", "rockylinux10", "ubi8", "ubi9", "ubi10",
]  # fmt: skip

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*((a|b|rc|\.post|\.dev)[0-9]+)?")
_NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")
_PROJECT = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*(/[a-z0-9]+([._-][a-z0-9]+)*)*")
_IMAGE = re.compile(r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,6})([kmg])", re.IGNORECASE)
_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30}


def _wrong(message: str, hint: str = "") -> PydanticCustomError:
    return PydanticCustomError("buildkit", "{message}", {"message": message, "hint": hint})


def text(value: Any) -> str:
    """Take a scalar as text; what YAML reads as a number, date or bool must be quoted to be text."""
    if isinstance(value, Plain):
        kind = "a boolean" if isinstance(value.value, bool) else f"the {type(value.value).__name__} {value.value}"
        raise _wrong(f"should be text, but YAML reads {value} as {kind}", f'write "{value}" in quotes')
    if not isinstance(value, str):
        raise _wrong(f"should be text, not {_kind(value)}")
    return value


def version(value: Any) -> str:
    """Take a version as the text in the file, and refuse one that YAML would change, such as 3.10."""
    if isinstance(value, Plain):
        if isinstance(value.value, bool) or not isinstance(value.value, int | float):
            raise _wrong(f"should be a version, but YAML reads {value} as {_kind(value)}", 'write it like "3.11"')
        if str(value.value) != str(value):
            raise _wrong(f"YAML reads {value} as the number {value.value}", f'write "{value}" in quotes')
        value = str(value)
    if not isinstance(value, str):
        raise _wrong(f"should be a version, not {_kind(value)}", 'write it like "3.11"')
    if "+" in value:
        raise _wrong(f"{value} carries build metadata", f"write {value.split('+')[0]}; `variant:` names the build")
    if not _VERSION.fullmatch(value):
        raise _wrong(f"{value!r} is not a version", 'exact versions only, like "2.9.1"; no ranges, no v')
    return value


def _kind(value: Any) -> str:
    """Say what a value is, in YAML's words."""
    names = {dict: "a mapping", list: "a list", bool: "a boolean", int: "a number", float: "a number", date: "a date"}
    raw = value.value if isinstance(value, Plain) else value
    if raw is None:
        return "nothing"
    return next((name for kind, name in names.items() if isinstance(raw, kind)), "text")


def _matching(pattern: re.Pattern[str], what: str, example: str) -> BeforeValidator:
    def check(value: Any) -> str:
        taken = text(value)
        if not pattern.fullmatch(taken):
            raise _wrong(f"{taken!r} is not {what}", f"for example {example}")
        return taken

    return BeforeValidator(check)


def _whole_number(value: Any) -> int:
    raw = value.value if isinstance(value, Plain) else value
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise _wrong(f"should be a whole number, not {_kind(value)}")
    return raw


def _semver(value: Any) -> str:
    import semver

    taken = str(value) if isinstance(value, Plain) else text(value)
    try:
        parsed = semver.Version.parse(taken)
    except ValueError:
        raise _wrong(f"{taken} is not a semantic version", "three numbers, for example 1.4.0") from None
    if parsed.build:
        raise _wrong(f"{taken!r} carries build metadata, which no tag can hold", f"write {taken.split('+')[0]}")
    return taken


def _date(value: Any) -> date:
    raw = value.value if isinstance(value, Plain) else value
    if isinstance(raw, datetime) or not isinstance(raw, date):
        try:
            raw = date.fromisoformat(str(raw))
        except ValueError:
            raise _wrong(f"should be a date, not {value!r}", "the day of `version:`, like 2026-11-30") from None
    if raw.year < 1980:
        raise _wrong("is before 1980, which wheels (zip files) cannot record")
    return raw


def size_bytes(size: str) -> int:
    """Bytes of a size such as `8g` or `512m` (powers of 1024, as Podman reads them)."""
    found = _SIZE.fullmatch(size)
    if not found:
        raise ValueError(size)
    return int(found[1]) * _UNITS[found[2].lower()]


def _size(value: Any) -> str:
    taken = str(value) if isinstance(value, Plain) else text(value)
    if not _SIZE.fullmatch(taken):
        raise _wrong(f"{taken} is not a size", "a whole number with k, m or g, like 8g")
    return taken.lower()


def _budget(value: Any) -> Any:
    """A budget may be a size alone: that of the image, uncompressed."""
    if isinstance(value, dict):
        if not value:
            raise _wrong("names no size", "like 2g, or {size: 2g, pull: 800m}")
        return value
    return {"size": value}


def _row_name(value: Any) -> str:
    """A row's name begins its tags: it must be legal there, and not end like the tag of another row."""
    taken = str(value)
    try:
        check_row(taken)
    except InputError as error:
        raise _wrong(error.message, error.problems[0].hint) from None
    if len(taken) > 40:
        raise _wrong(f"row name {taken!r} is longer than 40 characters", "it is part of every tag")
    return taken


_JSON_VERSION = WithJsonSchema({"type": ["string", "number"], "description": "an exact version; quote 3.10"})
Version = Annotated[str, BeforeValidator(version), _JSON_VERSION]
Text = Annotated[str, BeforeValidator(text)]
Name = Annotated[str, _matching(_NAME, "a name", "release")]
Image = Annotated[
    str,
    _matching(_IMAGE, "a full image reference", "docker.io/nvidia/cuda:12.8.1-cudnn-devel-rockylinux8"),
]


def _base(value: Any) -> str:
    taken = text(value)
    if taken != "bootstrap" and not _IMAGE.fullmatch(taken):
        raise _wrong(f"{taken!r} is neither `bootstrap` nor a full image reference", "registry/name:tag, or bootstrap")
    return taken


class Strict(BaseModel):
    """A frozen model that knows all of its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Size = Annotated[str, BeforeValidator(_size), WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,6}[kmgKMG]$"})]


class SizeBudget(Strict):
    """What the image of a stage may weigh: `size` as it lies on a disk, `pull` as it travels, compressed."""

    size: Size | None = Field(None, description="Uncompressed, in powers of 1024, like 2g")
    pull: Size | None = Field(None, description="Compressed, in powers of 1024, like 800m")

    def __str__(self) -> str:
        return ", ".join([*([self.size] if self.size else ()), *([f"{self.pull} to pull"] if self.pull else ())])


Budget = Annotated[SizeBudget, BeforeValidator(_budget, json_schema_input_type=Size | SizeBudget)]


class Row(Strict):
    """One platform combination: everything that must agree, as exact versions."""

    name: Annotated[str, BeforeValidator(_row_name)]
    os: Os = Field(description="The operating system of the images")
    base: Annotated[str, BeforeValidator(_base)] = Field(description="`bootstrap`, or the image to build on")
    inference_base: Image | None = Field(None, description="The image that the slim stage builds on")
    python: Version = Field(description="Python, major.minor, from the operating system")
    variant: Annotated[str, _matching(re.compile(r"cpu|cu[0-9]{3}"), "a torch variant", "cpu or cu128")] = Field(
        description="The torch wheel's build: cpu, cu118, ..."
    )
    wheels: Literal["pytorch", "pypi"] = Field("pytorch", description="The index that the torch wheel comes from")
    torch: Version
    torchvision: Version | None = None
    # A package without a version here is installed all the same, in the newest version that fits the others.
    sb3: Version | None = Field(None, description="stable-baselines3")
    sb3_contrib: Version | None = None
    gymnasium: Version | None = None
    mujoco: Version | None = None
    numpy: Version | None = None
    onnx: Version | None = None
    onnxruntime: Version | None = Field(None, description="onnxruntime, or onnxruntime-gpu on a CUDA row")
    ray: Version | None = Field(None, description="Ray with RLlib")
    tensorrt: Version | None = None
    opset: Annotated[int, BeforeValidator(_whole_number)] | None = Field(None, description="ONNX opset of the export")
    shm_size: Size = Field("8g", description="What /dev/shm holds, like 8g")
    stages: tuple[Stage, ...] = Field(STAGES, min_length=1)
    budgets: dict[Stage, Budget] = Field({}, description="What the image of each stage may weigh, like {train: 2g}")

    @property
    def family(self) -> Literal["debian", "rhel"]:
        """The package manager's family."""
        return "debian" if self.os.startswith(("debian", "ubuntu")) else "rhel"

    @property
    def is_cuda(self) -> bool:
        """Whether the row promises a GPU."""
        return self.variant != "cpu"

    @property
    def cuda(self) -> str | None:
        """The CUDA release of the torch wheel, such as `11.8`; None on a cpu row."""
        return f"{self.variant[2:4]}.{self.variant[4:]}" if self.is_cuda else None

    @property
    def torch_requirement(self) -> str:
        """The pip requirement that names exactly this torch build."""
        return f"torch=={self.torch}" if self.wheels == "pypi" else f"torch=={self.torch}+{self.variant}"

    @property
    def kind(self) -> tuple[object, ...]:
        """What rows have in common that differ only in versions: the platform, and which packages there are."""
        given = tuple(getattr(self, name) is not None for name in _OPTIONAL)
        return (self.os, self.base == "bootstrap", self.python, self.variant, self.wheels, self.stages, *given)

    @property
    def shm_bytes(self) -> int:
        """`shm_size` in bytes."""
        return size_bytes(self.shm_size)


_OPTIONAL = tuple(name for name, field in Row.model_fields.items() if field.default is None and not field.is_required())


class Header(Strict):
    """Everything in `matrix.yaml` but its rows."""

    version: Annotated[str, BeforeValidator(_semver)] = Field(description="The release, a semantic version")
    epoch: Annotated[date, BeforeValidator(_date)] = Field(description="The day of the version: the images' `created`")
    project: Annotated[str, _matching(_PROJECT, "a repository path", "drl or robots/drl")] = Field(
        description="The path in the registry under which each stage has a repository"
    )
    groups: dict[Name, tuple[Text, ...]] = Field({}, description="Named sets of targets")
    aliases: dict[Name, Text] = Field({}, description="Other names of single targets")

    @property
    def timestamp(self) -> int:
        """`epoch` at midnight UTC, in seconds since 1970."""
        return int(datetime(self.epoch.year, self.epoch.month, self.epoch.day, tzinfo=UTC).timestamp())


class Axes(Strict):
    """A product of values, one row a combination; `exclude` drops some, `include` adds to or completes them."""

    name: Text = Field(description="The rows' name with {axis} places, like {variant}-py{python}")
    values: dict[str, tuple[Any, ...]] = Field(min_length=1)
    set: dict[str, Any] = Field({}, description="What every row of the product has")
    exclude: tuple[dict[str, Any], ...] = ()
    include: tuple[dict[str, Any], ...] = ()
