"""Smoke results and the files that the checks left: on this machine by image ID, in the registry as evidence."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from imagebuild.engine.registry import Registry
from imagebuild.run import evidence
from imagebuild.run.decide import Presence
from imagebuild.run.evidence import SmokeReport
from imagebuild.run.state import State
from imagebuild.spec.reference import Reference, Repository

_REPORT = "report.json"


class SmokeResults:
    """Where smoke results are looked for, and kept."""

    def __init__(self, state: State, registry: Registry) -> None:
        self._state = state
        self._registry = registry

    def of(self, presence: Presence, repository: Repository) -> list[SmokeReport]:
        """All known reports about an image: this machine's and the registry's."""
        local = self.local(presence.in_store) if presence.in_store else None
        remote = evidence.find(self._registry, repository, presence.in_registry) if presence.in_registry else []
        return [*([local] if local else []), *remote]

    def local(self, image_id: str) -> SmokeReport | None:
        """The report that this machine has about an image."""
        try:
            return SmokeReport.from_json(self._state.path("smoke", _short(image_id), _REPORT).read_bytes())
        except (OSError, ValueError):
            return None

    def keep(self, report: SmokeReport, artifacts: Mapping[str, bytes]) -> None:
        """Keep a report and its artifacts on this machine; artifacts of a failed run are not kept."""
        folder = _short(report.image_id)
        self._state.write(("smoke", folder, _REPORT), report.to_json())
        for name, data in artifacts.items() if report.green else ():
            self._state.write(("smoke", folder, "out", *name.split("/")), data)

    def publish(self, reference: Reference, report: SmokeReport, artifacts: Mapping[str, bytes]) -> None:
        """Hang a report and its artifacts on the image in the registry."""
        descriptor = self._registry.head(reference)
        if descriptor:
            evidence.attach(self._registry, reference.repository, descriptor, report, artifacts)

    def artifacts(self, presence: Presence, repository: Repository, only: Collection[str] = ()) -> dict[str, bytes]:
        """The files that the checks of an image left, from here or from the registry; `only` these, if given."""
        local = self.local_artifacts(presence.in_store, only) if presence.in_store else {}
        if local or not presence.in_registry:
            return local
        return evidence.artifacts(self._registry, repository, presence.in_registry, only)

    def local_artifacts(self, image_id: str, only: Collection[str] = ()) -> dict[str, bytes]:
        """The files that this machine has."""
        folder = self._state.path("smoke", _short(image_id), "out")
        paths = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
        return {name: path.read_bytes() for name, path in paths.items() if not only or name in only}


def _short(image_id: str) -> str:
    return image_id.removeprefix("sha256:")[:24]
