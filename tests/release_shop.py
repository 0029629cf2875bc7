"""Small images in a registry, and a project that releases them: what tests of evidence and releases need."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from imagebuild.engine.manifest import OCI_INDEX, OCI_MANIFEST, Descriptor
from imagebuild.engine.registry import Registry
from imagebuild.engine.transport import Transport
from imagebuild.release.ledger import Ledger
from imagebuild.release.promote import Outcome, history, look, promote, rollback
from imagebuild.run import evidence
from imagebuild.run.evidence import Gpu, SmokeCase, SmokeReport
from imagebuild.run.evidence import Outcome as Result
from imagebuild.spec.reference import Reference, Repository, stage_repository

GREEN: tuple[str, Result] = ("10-a", "passed")
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def push_image(registry: Registry, repository: Repository, text: str, tag: str = "cpu") -> Descriptor:
    """A small image of one layer."""
    config = registry.put_blob(
        repository, json.dumps({"text": text}).encode(), "application/vnd.oci.image.config.v1+json"
    )
    layer = registry.put_blob(repository, text.encode(), "application/vnd.oci.image.layer.v1.tar+gzip")
    value = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config.as_json(), "layers": [layer.as_json()]}
    # Spacing on purpose: the bytes are what counts, not what they mean.
    return registry.put_manifest(repository, tag, json.dumps(value, indent=3).encode(), OCI_MANIFEST)


def push_index(registry: Registry, repository: Repository, image: Descriptor, tag: str) -> Descriptor:
    """An index of one image."""
    value = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [image.as_json()]}
    return registry.put_manifest(repository, tag, json.dumps(value).encode(), OCI_INDEX)


def smoke(
    registry: Registry,
    repository: Repository,
    image: Descriptor,
    *cases: tuple[str, Result],
    target: str = "train-cpu",
    gpu: bool = False,
    minutes: int = 0,
) -> Descriptor:
    """Hang a smoke report on an image: by default a green one."""
    report = SmokeReport(
        target=target,
        image_id=registry.get_manifest(repository.at(image.digest)).config_digest,
        gpu=Gpu(present=gpu, name="H200" if gpu else ""),
        started=START + timedelta(minutes=minutes),
        cases=tuple(SmokeCase(name=name, outcome=outcome) for name, outcome in cases or (GREEN,)),
    )
    return evidence.attach(registry, repository, image, report)


class Crash(BaseException):
    """The process is gone: nothing may catch this."""


class Interrupted(Registry):
    """A registry to which something happens at one of its manifest writes, before or after the write."""

    def __init__(self, transport: Transport, at: int, when: str, happens: Callable[[], object]) -> None:
        super().__init__(transport.host, transport=transport)
        self.at, self.when, self.happens = at, when, happens
        self.writes = 0

    def _put(self, *args: Any) -> Any:
        self.writes += 1
        mine = self.writes == self.at
        if mine and self.when == "before":
            self.happens()
        answer = super()._put(*args)
        if mine and self.when == "after":
            self.happens()
        return answer


@dataclass
class Shop:
    """A project of its own, with one target and short forms of what is done to it."""

    connect: Callable[[], Transport]
    project: str
    minutes: int = 0

    def __post_init__(self) -> None:
        self.registry = self.another()

    def another(self) -> Registry:
        """The registry over a connection of its own."""
        transport = self.connect()
        return Registry(transport.host, transport=transport)

    def interrupted(self, at: int, when: str, happens: Callable[[], object]) -> Interrupted:
        """The registry with something that happens at its manifest write number `at`."""
        return Interrupted(self.connect(), at, when, happens)

    @property
    def repository(self) -> Repository:
        return stage_repository(self.registry.host, self.project, "train")

    def clock(self) -> datetime:
        self.minutes += 1
        return START + timedelta(days=1, minutes=self.minutes)

    def candidate(self, version: str, text: str = "") -> Reference:
        """A green candidate."""
        tag = f"cpu-{version}{text and '-' + text}"
        smoke(self.registry, self.repository, push_image(self.registry, self.repository, version + text, tag))
        return self.repository.tagged(tag)

    def promote(self, version: str, *, registry: Registry | None = None, **options: Any) -> Outcome:
        defaults: dict[str, Any] = {"is_cuda": False, "who": "ann"}
        if "candidate" not in options:
            defaults["candidate"] = self.repository.tagged(f"cpu-{version}")
        common: dict[str, Any] = {"project": self.project, "stage": "train", "row": "cpu", "version": version}
        return promote(registry or self.registry, clock=self.clock, **common, **(defaults | options))

    def rollback(self, *, registry: Registry | None = None, **options: Any) -> Outcome:
        options = {"project": self.project, "stage": "train", "row": "cpu", "who": "bob"} | options
        return rollback(registry or self.registry, clock=self.clock, **options)

    def release(self, *versions: str) -> None:
        for version in versions:
            self.candidate(version)
            self.promote(version)

    def digest(self, tag: str) -> str:
        found = self.registry.head(self.repository.tagged(tag))
        return found.digest if found else ""

    def story(self) -> list[str]:
        """The history, oldest first."""
        releases = reversed(history(self.registry, project=self.project))
        return [f"{each.entry.action} {each.entry.version} {each.state}" for each in releases]

    def tags(self) -> dict[str, str]:
        return {tag: self.digest(tag) for tag in self.registry.list_tags(self.repository) if "sha256" not in tag}


def consistent(shop: Shop) -> None:
    """Tags and ledger agree, and nothing is left open."""
    standing = look(shop.registry, project=shop.project, stage="train", row="cpu")
    assert not standing.unfinished
    assert not standing.drifted
    assert standing.digest
    for release in history(shop.registry, project=shop.project):
        if release.state == "done":
            assert shop.digest(f"cpu-{release.entry.version}-prod") == release.entry.digest
    assert Ledger(shop.registry, shop.project).lost() == []


def crash() -> None:
    """What happens to an `Interrupted` registry whose process is killed."""
    raise Crash
