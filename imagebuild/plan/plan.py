"""The plan: for each target its Containerfile, context, inputs digest and address.

Pure: it reads the project folder and nothing else; no clock, no network, no environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from imagebuild.errors import InputError, Location, Problem
from imagebuild.plan.inputs import FORMAT_VERSION, ContextFile, Part, inputs_digest, sha256
from imagebuild.plan.locked import Locks
from imagebuild.plan.render import ReadRow, Renderer
from imagebuild.plan.rootfs import RootfsRecipe, recipe
from imagebuild.plan.targets import Target, targets_of, with_ancestors
from imagebuild.spec import facts, lock
from imagebuild.spec.expected import expectations
from imagebuild.spec.lock import Needs, RowLock
from imagebuild.spec.matrix import Matrix
from imagebuild.spec.models import STAGES, Row
from imagebuild.spec.reference import address_tag

INPUTS_LABEL = "io.buildkit.inputs-digest"
REQUIREMENTS = "requirements.txt"
_CONTEXT = ("example", "files")  # the folders of `images/<stage>/` that its Containerfile may COPY
_IMAGE_FIELDS = {"base": "base", "inference": "inference_base"}  # the row's field with the image under a stage


@dataclass(frozen=True)
class PlannedTarget:
    """A target with everything that is to be built, and the digest that says so."""

    target: Target
    project: str
    containerfile: str
    context: tuple[ContextFile, ...]
    rootfs: RootfsRecipe | None
    parts: tuple[Part, ...]
    values: tuple[Part, ...]  # the row's values that the templates read: they are in the parts already
    digest: str
    timestamp: int  # of everything in the image, in seconds since 1970

    @property
    def name(self) -> str:
        """The target's name."""
        return self.target.name

    @property
    def tag(self) -> str:
        """The address tag, `<row>-in-<hash16>`, which nothing but this content is ever given."""
        return address_tag(self.target.row.name, self.digest)

    @property
    def repository(self) -> str:
        """The repository in any registry, `<project>/<stage>`."""
        return f"{self.project}/{self.target.stage}"

    @property
    def local_name(self) -> str:
        """The image's name in Podman's own store."""
        return f"localhost/{self.repository}:{self.tag}"

    @property
    def base_image(self) -> str | None:
        """The registry image that the Containerfile starts from, if it does."""
        return next((part.value for part in self.parts if part.name == "base"), None)


class Plan:
    """Plans targets of one project on demand, each once.

    Args:
        folder: the project's folder.
        matrix: its matrix.
        use_locks: whether rows are built from their locks; without, from what the matrix pins.
    """

    def __init__(self, folder: Path, matrix: Matrix, *, use_locks: bool = True) -> None:
        self.folder = folder
        self.matrix = matrix
        self.targets: Mapping[str, Target] = targets_of(matrix)
        self.locks = Locks(folder, matrix, self.needs, used=use_locks)
        self._planned: dict[str, PlannedTarget] = {}

    @cached_property
    def _renderer(self) -> Renderer:
        return Renderer(self.folder)

    def closure(self, wanted: Iterable[str]) -> list[PlannedTarget]:
        """The wanted targets and their ancestors, planned, parents first."""
        return [self[name] for name in with_ancestors(self.targets, wanted)]

    def try_templates(self, wanted: Iterable[str]) -> None:
        """Render one target of each kind that templates can tell apart other than by a version.

        Ten thousand rows differ in versions; their templates take a handful of ways.

        Raises:
            InputError: a template is wrong.
        """
        targets = [self.targets[name] for name in wanted]
        rows = {target.row.name: target.row for target in targets}
        shown = set({row.kind: name for name, row in rows.items()}.values())
        self.closure(target.name for target in targets if target.row.name in shown)

    def __getitem__(self, name: str) -> PlannedTarget:
        if name not in self._planned:
            self._planned[name] = self._plan(self.targets[name])
        return self._planned[name]

    def needs(self, row: str) -> Needs:
        """What a row asks its lock for."""
        stages: dict[str, Target] = {
            stage: target for stage in STAGES if (target := self.targets.get(f"{stage}-{row}"))
        }  # fmt: skip
        images = {field: image for stage, field in _IMAGE_FIELDS.items() if (image := _image(stages.get(stage)))}
        texts = {stage: self._requirements(target, ReadRow(target.row)) for stage, target in stages.items()}
        requirements = {stage: tuple(_uncommented(text)) for stage, text in texts.items() if text is not None}
        values = self.matrix.rows[row]
        return Needs(row, values.os, values.python, images, requirements)

    def _plan(self, target: Target) -> PlannedTarget:
        parents = {parent: self[parent] for parent in target.parents}
        row, stage = ReadRow(target.row), target.stage
        locked = self.locks.of(target.row.name)
        base = self._base(target, locked)
        variables = self._variables(target, row) | {
            "parents": {parent.target.stage: parent.local_name for parent in parents.values()},
            "locked": locked is not None,
        } | ({"base_image": base.value} if base else {})  # fmt: skip
        template = f"{stage}.Containerfile.j2"
        body = self._renderer.render(template, variables)
        context = (*self._context(stage, variables), *self._packages(target, row, locked))
        rootfs = self._rootfs(target)
        parts = (
            Part("format", FORMAT_VERSION, "buildkit"),
            Part("containerfile", sha256(_without_addresses(body, parents.values()).encode()), f"templates/{template}"),
            *(file.as_part() for file in context),
            *(Part(f"parent:{name}", parent.digest, name) for name, parent in parents.items()),
            *([base] if base else []),
            *([Part("rootfs", rootfs.digest, str(self._where(target, "base")))] if rootfs else []),
            Part("option:timestamp", str(self.matrix.header.timestamp), f"{self.matrix.file}: epoch"),
        )
        digest = inputs_digest(parts)
        values = tuple(
            Part(name, str(getattr(target.row, name)), str(self._where(target, name)))
            for name in sorted(row.read - {"name"})
        )
        labelled = f'{body.rstrip()}\nLABEL {INPUTS_LABEL}="{digest}"\n'
        timestamp = self.matrix.header.timestamp
        return PlannedTarget(
            target, self.matrix.header.project, labelled, context, rootfs, parts, values, digest, timestamp
        )

    def _where(self, target: Target, field: str) -> Location:
        return self.matrix.locate(target.row.name, field)

    def _variables(self, target: Target, row: ReadRow) -> dict[str, Any]:
        """What every template of a target may use."""
        return {
            "row": row,
            "stage": target.stage,
            "target": target.name,
            "project": self.matrix.header.project,
            "epoch": self.matrix.header.epoch.isoformat(),
            "known": partial(_known, target.row),
        }

    def _base(self, target: Target, locked: RowLock | None) -> Part | None:
        """The registry image under this target, if its template starts from one; by digest where that is locked."""
        image, field = _image(target), _IMAGE_FIELDS.get(target.stage, "")
        if image is None:
            return None
        by_digest = locked.image(field) if locked else None
        if by_digest:
            return Part("base", by_digest, f"{lock.FOLDER}/{lock.form_name(target.row.name)}")
        return Part("base", image, str(self._where(target, field)))

    def _rootfs(self, target: Target) -> RootfsRecipe | None:
        if target.stage != "base" or target.row.base != "bootstrap":
            return None
        return recipe(self.folder, target.row.os, self.matrix.header.timestamp, self._where(target, "base"))

    def _context(self, stage: str, variables: Mapping[str, Any]) -> Iterator[ContextFile]:
        """The files that the Containerfile may COPY, by path; one named `x.j2` is a template for `x`."""
        top = self.folder / "images" / stage
        for path in sorted(path for folder in _CONTEXT for path in (top / folder).rglob("*")):
            if path.is_dir() or "__pycache__" in path.parts:
                continue
            origin = str(path.relative_to(self.folder))
            if path.is_symlink():
                raise InputError(Problem("a link cannot go into an image", Location(origin), "copy the file"))
            data = path.read_bytes()
            if path.suffix == ".j2":
                if path.with_suffix("").exists():
                    raise InputError(Problem("what it renders to is there too", Location(origin), "remove one of them"))
                data = self._renderer.render(str(path.relative_to(self.folder / "images")), variables).encode()
            inside = path.relative_to(top).with_suffix("" if path.suffix == ".j2" else path.suffix)
            yield ContextFile(str(inside), data, bool(path.stat().st_mode & 0o100), origin)

    def _packages(self, target: Target, row: ReadRow, locked: RowLock | None) -> Iterator[ContextFile]:
        """The requirements file of a stage that has one: the locked one, or what the template says."""
        text = self._requirements(target, row)
        if text is None:
            return
        origin = f"images/{_requirements_name(target.stage)}"
        if locked:
            text = locked.files[target.stage]
            origin = f"{lock.FOLDER}/{lock.requirements_name(target.row.name, target.stage)}"
        yield ContextFile(REQUIREMENTS, text.encode(), executable=False, origin=origin)

    def _requirements(self, target: Target, row: ReadRow) -> str | None:
        name = _requirements_name(target.stage)
        if not (self.folder / "images" / name).exists():
            return None
        return self._renderer.render(name, self._variables(target, row))


def _image(target: Target | None) -> str | None:
    """The registry image that a target starts from, as its row names it."""
    field = _IMAGE_FIELDS.get(target.stage) if target else None
    image: str | None = getattr(target.row, field) if target and field else None
    return None if image == "bootstrap" else image


def _known(row: Row, names: Iterable[str]) -> dict[str, Any]:
    """What the facts say of a row's images under these names, where they know it; read only if a template asks."""
    found = expectations(row, facts.load())
    return {name: found[name]["value"] for name in names if name in found}


def _requirements_name(stage: str) -> str:
    return f"{stage}/requirements.in.j2"


def _uncommented(text: str) -> Iterator[str]:
    """The requirements of a requirements file."""
    return filter(None, (line.split("#")[0].strip() for line in text.splitlines()))


def _without_addresses(containerfile: str, parents: Iterable[PlannedTarget]) -> str:
    """A Containerfile without its parents' digests, which are parts of their own: so each change shows once."""
    for parent in parents:
        containerfile = containerfile.replace(parent.local_name, parent.target.stage)
    return containerfile
