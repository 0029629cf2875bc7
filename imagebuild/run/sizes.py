"""What images weigh: layer by layer, and package by package as their smoke checks measured it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from imagebuild.engine import layers
from imagebuild.engine.layers import Layer
from imagebuild.errors import EngineError
from imagebuild.events import silent
from imagebuild.plan.steps import comments
from imagebuild.run.decide import Presence, address

if TYPE_CHECKING:
    from imagebuild.engine.podman import Podman
    from imagebuild.engine.registry import Registry
    from imagebuild.plan.plan import Plan, PlannedTarget
    from imagebuild.run.results import SmokeResults
    from imagebuild.spec.reference import Reference, Repository

LAYERS_FILE = "layers.json"  # diff ID -> bytes; written by us, as nobody in the container knows its layers
SIZES_FILE = "sizes.json"  # written by the check
CHECK = "05-sizes.py"  # in images/common/smoke/
_LIBRARY = "smokelib.py"


class Contents(BaseModel):
    """What lies in an image: package (or path of what belongs to none) -> bytes of its files."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    os: dict[str, int]
    python: dict[str, int]
    files: dict[str, int]

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(sum(part.values()) for part in (self.os, self.python, self.files))


@dataclass(frozen=True)
class Measured:
    """What is known of an image's weight. `digest` is the registry's, and empty for one that is only here."""

    digest: str
    layers: tuple[Layer, ...]
    contents: Contents | None = None

    @property
    def size(self) -> int | None:
        """Bytes of all layers, uncompressed; None where one is unknown."""
        return _total(layer.size for layer in self.layers)

    @property
    def pull(self) -> int | None:
        """Bytes of all layers as they travel; None where one is unknown."""
        return _total(layer.pull for layer in self.layers)


def _total(sizes: Iterable[int | None]) -> int | None:
    known = list(sizes)
    return None if None in known or not known else sum(size for size in known if size is not None)


def megabytes(size: int) -> str:
    """A size for people, in MB of 1,000,000 bytes, or in kB of 1,000 where that is next to nothing."""
    if 0 < abs(size) < 50_000:
        return f"{size / 1e3:.1f} kB"
    return f"{size / 1e6:.1f} MB" if abs(size) < 10e6 else f"{size / 1e6:.0f} MB"


def layers_file(of: Sequence[Layer]) -> bytes:
    """What smoke evidence keeps of the layers: a registry knows their compressed sizes only."""
    return json.dumps({layer.diff_id: layer.size for layer in of}, indent=1).encode()


def recorded_size(results: SmokeResults, presence: Presence, repository: Repository) -> int:
    """Bytes of an image, uncompressed, as its smoke evidence has them; 0 where that does not say."""
    files = results.artifacts(presence, repository, (LAYERS_FILE,))
    return sum(_recorded(files).values())


def step_names(planned: Iterable[PlannedTarget]) -> dict[str, tuple[str, str]]:
    """What the steps of targets are called: step -> (the target, the comment in its Containerfile)."""
    return {step: (one.name, said) for one in planned for step, said in comments(one.containerfile).items()}


class Scales:
    """Weighs images that are in a registry, in Podman's store, or in both."""

    def __init__(
        self, plan: Plan, registry: Registry, results: SmokeResults, podman: Callable[[], Podman]
    ) -> None:  # fmt: skip
        self._plan = plan
        self._registry = registry
        self._results = results
        self._connect = podman

    def planned(self, planned: PlannedTarget, presence: Presence) -> Measured:
        """Weigh the image of a target's inputs. Where no smoke check measured it, that check is run now if it is here.

        Raises:
            EngineError, RegistryError: it could not be read.
        """
        repository = address(planned, self._registry.host).repository
        if not presence.in_registry:
            measured = self._measured("", layers.in_store(self._connect(), presence.in_store), presence, repository)
        else:
            measured = self.in_registry(repository.at(presence.in_registry), presence)
            if measured.size is None and (here := self._here(planned)):
                presence, measured = replace(presence, in_store=here[0]), _with_sizes(measured, here[1])
        if measured.contents is None and presence.in_store:
            measured = replace(measured, contents=self._weigh(planned, presence.in_store))
        return measured

    def in_registry(self, reference: Reference, presence: Presence | None = None) -> Measured:
        """Weigh an image in the registry, by its manifest and its evidence.

        Raises:
            RegistryError: it is not there, or not readable.
        """
        manifest = self._registry.get_manifest(reference)
        known = replace(presence or Presence(), in_registry=manifest.digest, in_store=manifest.config_digest)
        found = layers.in_registry(self._registry, reference)
        return self._measured(manifest.digest, found, known, reference.repository)

    def _measured(
        self, digest: str, found: Sequence[Layer], presence: Presence, repository: Repository
    ) -> Measured:  # fmt: skip
        files = self._results.artifacts(presence, repository, (LAYERS_FILE, SIZES_FILE))
        return _with_sizes(Measured(digest, tuple(found), _contents(files)), _recorded(files))

    def _here(self, planned: PlannedTarget) -> tuple[str, dict[str, int]] | None:
        """The image ID and the layers' sizes of a target that may be in the store as well as in the registry."""
        try:
            podman = self._connect()
            image = podman.image(planned.local_name)
            return (image.id, {diff_id: size for diff_id, _, size in podman.layers(image.id)}) if image else None
        except EngineError:  # no engine here: then what it may have is not known
            return None

    def _weigh(self, planned: PlannedTarget, image_id: str) -> Contents | None:
        """Run the one check that measures; None in a project without it."""
        from imagebuild.run.smoke import Request, Suite, run_smoke

        suite = Suite.load(self._plan.folder, planned.target.stage)
        if CHECK not in suite.files:
            return None
        alone = Suite({name: suite.files[name] for name in (CHECK, _LIBRARY)})
        owner = f"size-{self._plan.folder}-{planned.name}"
        request = Request(planned.target, image_id, image_id, alone, gpu_mode="off", owner=owner)
        return _contents(run_smoke(self._connect(), request, silent, StringIO()).artifacts)


def _contents(files: Mapping[str, bytes]) -> Contents | None:
    try:
        return Contents.model_validate_json(files[SIZES_FILE]) if SIZES_FILE in files else None
    except ValidationError:  # of another version of buildkit
        return None


def _recorded(files: Mapping[str, bytes]) -> dict[str, int]:
    try:
        return TypeAdapter(dict[str, int]).validate_json(files.get(LAYERS_FILE, b"{}"))
    except ValidationError:
        return {}


def _with_sizes(measured: Measured, sizes: Mapping[str, int]) -> Measured:
    filled = (one if one.size is not None else replace(one, size=sizes.get(one.diff_id)) for one in measured.layers)
    return replace(measured, layers=tuple(filled))
