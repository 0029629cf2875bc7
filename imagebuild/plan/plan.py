"""The plan: for each target its Containerfile, context, inputs digest and address.

Pure: it reads the project folder and nothing else; no clock, no network, no environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from imagebuild.errors import InputError, Location, Problem
from imagebuild.plan.inputs import FORMAT_VERSION, ContextFile, Part, inputs_digest, sha256
from imagebuild.plan.render import ReadRow, Renderer
from imagebuild.plan.rootfs import RootfsRecipe, recipe
from imagebuild.plan.targets import Target, targets_of, with_ancestors
from imagebuild.spec.matrix import Matrix
from imagebuild.spec.reference import address_tag

INPUTS_LABEL = "io.buildkit.inputs-digest"
REQUIREMENTS = "requirements.txt"


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
    """Plans targets of one project on demand, each once."""

    def __init__(self, folder: Path, matrix: Matrix) -> None:
        self.folder = folder
        self.matrix = matrix
        self.targets: Mapping[str, Target] = targets_of(matrix)
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

    def _plan(self, target: Target) -> PlannedTarget:
        parents = {parent: self[parent] for parent in target.parents}
        row, stage = ReadRow(target.row), target.stage
        base_image = self._base_image(target)
        variables: dict[str, Any] = {
            "row": row,
            "stage": stage,
            "target": target.name,
            "project": self.matrix.header.project,
            "epoch": self.matrix.header.epoch.isoformat(),
            "parents": {parent.target.stage: parent.local_name for parent in parents.values()},
            "locked": False,
        } | ({"base_image": base_image} if base_image else {})
        template = f"{stage}.Containerfile.j2"
        body = self._renderer.render(template, variables)
        context = (*self._context(stage), *self._requirements(stage, variables))
        rootfs = self._rootfs(target)
        parts = (
            Part("format", FORMAT_VERSION, "buildkit"),
            Part("containerfile", sha256(_without_addresses(body, parents.values()).encode()), f"templates/{template}"),
            *(file.as_part() for file in context),
            *(Part(f"parent:{name}", parent.digest, name) for name, parent in parents.items()),
            *([Part("base", base_image, str(self._where(target, "base")))] if base_image else []),
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

    def _base_image(self, target: Target) -> str | None:
        """The registry image under this target, if its template starts from one."""
        row = target.row
        if target.stage == "base":
            return None if row.base == "bootstrap" else row.base
        return row.inference_base if target.stage == "inference" else None

    def _rootfs(self, target: Target) -> RootfsRecipe | None:
        if target.stage != "base" or target.row.base != "bootstrap":
            return None
        return recipe(self.folder, target.row.os, self.matrix.header.timestamp, self._where(target, "base"))

    def _context(self, stage: str) -> Iterator[ContextFile]:
        """The files under `images/<stage>/files/`, by path."""
        top = self.folder / "images" / stage
        for path in sorted((top / "files").rglob("*")):
            if path.is_dir() or "__pycache__" in path.parts:
                continue
            origin = str(path.relative_to(self.folder))
            if path.is_symlink():
                raise InputError(Problem("a link cannot go into an image", Location(origin), "copy the file"))
            yield ContextFile(str(path.relative_to(top)), path.read_bytes(), bool(path.stat().st_mode & 0o100), origin)

    def _requirements(self, stage: str, variables: Mapping[str, Any]) -> Iterator[ContextFile]:
        name = f"{stage}/requirements.in.j2"
        if (self.folder / "images" / name).exists():
            text = self._renderer.render(name, variables)
            yield ContextFile(REQUIREMENTS, text.encode(), executable=False, origin=f"images/{name}")


def _without_addresses(containerfile: str, parents: Iterable[PlannedTarget]) -> str:
    """A Containerfile without its parents' digests, which are parts of their own: so each change shows once."""
    for parent in parents:
        containerfile = containerfile.replace(parent.local_name, parent.target.stage)
    return containerfile
