"""Builds targets twice from nothing, in two stores that share nothing, and compares what came out, bit for bit."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from imagebuild.engine.archive import ImageArchive
from imagebuild.engine.podman import Podman
from imagebuild.engine.private import PrivateService
from imagebuild.errors import WorkError
from imagebuild.events import Emit, Event, Kind
from imagebuild.plan.plan import Plan, PlannedTarget
from imagebuild.run import ship
from imagebuild.run.build import Builder
from imagebuild.run.difference import Difference, differences
from imagebuild.run.schedule import Result, Scheduler, Status, Task, sigterm_as_interrupt
from imagebuild.run.state import FOLDER_NAME, State
from imagebuild.spec.site import Site

ROUNDS = ("first", "second")


@dataclass(frozen=True)
class Comparison:
    """What two builds of a target gave. `differences` leaves out what its parents have too."""

    target: str
    image_ids: tuple[str, str]
    manifest_digests: tuple[str, str]
    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        """Whether both builds gave the same image under the same digest."""
        return self.image_ids[0] == self.image_ids[1] and self.manifest_digests[0] == self.manifest_digests[1]


class Reproduction:
    """One call of `buildkit reproduce`.

    Args:
        plan: the plan.
        site: its settings count, but for `podman:`.
        emit: gets the events; the two rounds are two tasks of a target.
        jobs: how many targets may be built at once.
    """

    def __init__(self, plan: Plan, *, site: Site, emit: Emit, jobs: int) -> None:
        self._plan = plan
        self._site = site
        self._emit = emit
        self._jobs = jobs
        self._folder = f"{FOLDER_NAME}/reproduce"

    def run(self, wanted: Sequence[str], keep: Path | None = None) -> list[Comparison]:
        """Build the wanted targets and their ancestors twice, and compare them, parents first.

        Args:
            wanted: names of targets.
            keep: a folder in which both images of each target stay, as OCI archives.

        Raises:
            WorkError: one of the builds failed.
            Interrupted: after Ctrl-C, with everything stopped and removed.
        """
        closure = self._plan.closure(wanted)
        with sigterm_as_interrupt(), State(self._plan.folder, self._folder).lock("call"), self._archives(keep) as top:
            for name in ROUNDS:
                self._round(name, closure, top / name)
            return list(self._compared(closure, top))

    @contextmanager
    def _archives(self, keep: Path | None) -> Iterator[Path]:
        if keep:
            yield keep
            return
        parent = self._plan.folder / self._folder
        with tempfile.TemporaryDirectory(prefix="archives-", dir=parent) as folder:
            yield Path(folder)

    def _round(self, name: str, closure: Sequence[PlannedTarget], archives: Path) -> None:
        """Build everything once in a new store, and save it."""
        archives.mkdir(parents=True, exist_ok=True)
        state = State(self._plan.folder, f"{self._folder}/{name}")
        rootfs = state.folder / "rootfs"

        def emit(event: Event) -> None:
            self._emit(replace(event, task=name) if event.task else event)

        shutil.rmtree(rootfs, ignore_errors=True)  # of a call that was killed: a bootstrap is to be done again
        try:
            with PrivateService() as service:
                podman = Podman(service.address)
                builder = Builder(podman, self._site, state, emit)
                tasks = [
                    Task(planned.name, name, partial(self._build, podman, builder, planned, archives),
                         tuple(f"{name}:{parent}" for parent in planned.target.parents))
                    for planned in closure
                ]  # fmt: skip
                results = Scheduler(self._jobs, self._emit, podman.cancel).run(tasks)
                self._emit(Event(Kind.NOTE, message=f"removing the {name} store"))
        finally:
            shutil.rmtree(rootfs, ignore_errors=True)
        failed = [key.partition(":")[2] for key, result in results.items() if result.status is Status.FAILED]
        if failed:
            message = "\n".join(f"{target}: {results[f'{name}:{target}'].message}" for target in failed)
            raise WorkError(f"the {name} build failed, so there is nothing to compare\n{message}")

    def _build(self, podman: Podman, builder: Builder, planned: PlannedTarget, archives: Path) -> Result:
        if planned.base_image and not podman.image(planned.base_image):
            ship.pull_base(podman, planned.base_image, self._site)
        image = builder.build(planned, cache=False)
        podman.save(planned.local_name, _archive(archives, planned))
        return Result(Status.DONE, image.id, data={"image_id": image.id})

    def _compared(self, closure: Sequence[PlannedTarget], top: Path) -> Iterator[Comparison]:
        told: set[tuple[str, str]] = set()
        for planned in closure:
            started = time.monotonic()
            paths = [_archive(top / name, planned) for name in ROUNDS]
            with ImageArchive(paths[0]) as first, ImageArchive(paths[1]) as second:
                found = tuple(differences(first, second, told))
                pair = (first.manifest, second.manifest)
            comparison = Comparison(
                planned.name, (pair[0].config_digest, pair[1].config_digest), (pair[0].digest, pair[1].digest), found
            )
            status = Status.DONE if comparison.same else Status.FAILED
            seconds = time.monotonic() - started
            self._emit(Event(Kind.TASK_DONE if comparison.same else Kind.TASK_FAILED, planned.name, "compare",
                             "the same" if comparison.same else "not the same",
                             {"status": str(status), "seconds": seconds}))  # fmt: skip
            yield comparison


def _archive(folder: Path, planned: PlannedTarget) -> Path:
    return folder / f"{planned.name}.oci.tar"
