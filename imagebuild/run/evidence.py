"""Smoke results as evidence: a report that hangs on the digest of the image it is about."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from imagebuild.engine.manifest import TITLE
from imagebuild.errors import RegistryError, WorkError

if TYPE_CHECKING:
    from imagebuild.engine.manifest import Descriptor
    from imagebuild.engine.registry import Registry
    from imagebuild.spec.reference import Repository

SMOKE_TYPE = "application/vnd.buildkit.smoke.v1+json"
_FILE = "smoke.json"
_ANY_FILE = "application/octet-stream"

Outcome = Literal["passed", "failed", "skipped"]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SmokeCase(_Value):
    """One check: how it went, after how many seconds, and what it printed."""

    name: str
    outcome: Outcome
    seconds: float = 0.0
    message: str = ""
    output: str = ""

    @property
    def is_gpu(self) -> bool:
        """Whether this is a check that needs a GPU."""
        return "-gpu-" in self.name


class Gpu(_Value):
    """What was asked about GPUs (`auto`, `require`, `off`), and what was there."""

    mode: str = "auto"
    present: bool = False
    name: str = ""


class SmokeReport(_Value):
    """All checks of one target in one container.

    `image_id` and `manifest_digest` say what was tested (the digest is the registry's, and empty until
    the image is pushed); `suite_digest` says with which checks; `host` holds facts about the machine.
    """

    target: str
    image_id: str
    manifest_digest: str = ""
    suite_digest: str = ""
    gpu: Gpu = Gpu()
    host: dict[str, str] = Field(default_factory=dict)
    started: AwareDatetime
    cases: tuple[SmokeCase, ...] = ()

    @property
    def failed(self) -> list[SmokeCase]:
        """The checks that failed."""
        return [case for case in self.cases if case.outcome == "failed"]

    @property
    def green(self) -> bool:
        """Whether something passed and nothing failed: a report without checks proves nothing."""
        return not self.failed and any(case.outcome == "passed" for case in self.cases)

    @property
    def gpu_cases(self) -> list[SmokeCase]:
        """The checks that need a GPU."""
        return [case for case in self.cases if case.is_gpu]

    @property
    def gpu_green(self) -> bool:
        """Whether every GPU check really ran, on a GPU, and passed."""
        return self.gpu.present and bool(self.gpu_cases) and all(case.outcome == "passed" for case in self.gpu_cases)

    def to_json(self) -> bytes:
        """The report as a file."""
        return self.model_dump_json(indent=1).encode()

    @classmethod
    def from_json(cls, content: bytes) -> SmokeReport:
        """Read a report back. Raises `ValueError` for anything that is not one."""
        return cls.model_validate_json(content)


def attach(
    registry: Registry,
    repository: Repository,
    descriptor: Descriptor,
    report: SmokeReport,
    artifacts: Mapping[str, bytes] = MappingProxyType({}),
) -> Descriptor:
    """Hang a report, and the files that its checks left, on the image that it is about.

    Args:
        registry: where the image was pushed.
        repository: the image's repository.
        descriptor: the image, as the registry describes it.
        report: about the image with this config digest.
        artifacts: file name -> content; the checks of later images need them.

    Raises:
        WorkError: the report is about another image.
    """
    manifest = registry.get_manifest(repository.at(descriptor.digest))
    if not manifest.is_index and _bare(manifest.config_digest) != _bare(report.image_id):
        raise WorkError(
            f"the smoke report of {report.target} is about image {report.image_id}, not {descriptor.digest}"
        )
    if report.manifest_digest not in ("", descriptor.digest):
        raise WorkError(
            f"the smoke report of {report.target} is about {report.manifest_digest}, not {descriptor.digest}"
        )
    content = report.model_copy(update={"manifest_digest": descriptor.digest}).to_json()
    # A signature is one more artifact, whose subject is the descriptor returned here.
    files = {_FILE: (content, SMOKE_TYPE)} | {name: (data, _ANY_FILE) for name, data in artifacts.items()}
    return registry.push_artifact(repository, SMOKE_TYPE, files, subject=descriptor)


def artifacts(registry: Registry, repository: Repository, digest: str, only: Collection[str] = ()) -> dict[str, bytes]:
    """The files that the newest smoke run which left any left with its report; of these names `only`, if given."""
    found: dict[str, bytes] = {}
    for entry in registry.referrers(repository, digest, SMOKE_TYPE):
        layers = registry.get_manifest(repository.at(entry.digest)).layers
        files = {layer.annotations.get(TITLE, ""): layer for layer in layers if layer.media_type == _ANY_FILE}
        wanted = files.keys() & set(only) if only else files.keys()
        found = {name: registry.get_blob(repository, files[name].digest) for name in sorted(wanted)} or found
    return found


def find(registry: Registry, repository: Repository, digest: str) -> list[SmokeReport]:
    """The smoke reports that hang on a digest, newest first.

    Raises:
        RegistryError: one of them is damaged, or is about something else: evidence is never overlooked.
    """
    reports = []
    for entry in registry.referrers(repository, digest, SMOKE_TYPE):
        reference = repository.at(entry.digest)
        if registry.head(reference) is None:  # deleted, and the list that names it is older
            continue
        layers = registry.get_manifest(reference).layers
        try:
            report = SmokeReport.from_json(registry.get_blob(repository, layers[0].digest))
        except (ValidationError, LookupError) as error:
            raise RegistryError(
                f"{reference} is not a smoke report: {error}", hint="delete it, and smoke again"
            ) from error
        if report.manifest_digest != digest:
            raise RegistryError(f"{reference} hangs on {digest} but is about {report.manifest_digest or 'no digest'}")
        reports.append(report)
    return sorted(reports, key=lambda report: report.started, reverse=True)


def _bare(digest: str) -> str:
    """A digest without its algorithm: engines give image IDs both ways."""
    return digest.rpartition(":")[2]
