"""The ledger: who pointed which channel at what, when and why. It is only ever added to.

Each entry is a small OCI manifest in `<project>/releases`, under a tag of its own that is made from its
sequence number and its content. So two writers at the same moment cannot overwrite each other: both
entries stay, with the same number, and the next entry names both as its predecessors.

A promotion or a rollback is an *intent*, and later a *done* or an *undone* entry that names the intent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from imagebuild.engine.manifest import canonical_json, digest_of
from imagebuild.errors import RegistryError
from imagebuild.spec.reference import Channel, ledger_repository

if TYPE_CHECKING:
    from imagebuild.engine.registry import Registry

ENTRY_TYPE = "application/vnd.buildkit.release.v1+json"
_ANNOTATION = "io.buildkit.release"
_TAG = re.compile(r"\d{8,}-[0-9a-f]{16}")
_CONCURRENT = 16

Action = Literal["promote", "rollback"]
State = Literal["intent", "done", "undone"]
Verdict = Literal["passed", "refused", "overridden", "not needed"]
Clock = Callable[[], datetime]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Gate(_Value):
    """What one gate said, and why."""

    name: str
    verdict: Verdict
    detail: str = ""


class Override(_Value):
    """A gate that somebody passed over, and the reason given."""

    name: str
    reason: str


class Entry(_Value):
    """One entry.

    `previous` is the digest that the alias named before (empty: none), `candidate` the reference that was
    promoted, `intent` the digest of the intent that a done or undone entry closes, `note` the reason given,
    or why it was undone.
    """

    sequence: int
    action: Action
    state: State
    stage: str
    row: str
    channel: Channel
    version: str
    digest: str
    previous: str = ""
    candidate: str = ""
    who: str
    when: AwareDatetime
    commit: str = ""
    gates: tuple[Gate, ...] = ()
    overrides: tuple[Override, ...] = ()
    predecessors: tuple[str, ...] = ()
    intent: str = ""
    note: str = ""


@dataclass(frozen=True)
class Record:
    """An entry in the ledger, and the digest of the manifest that holds it."""

    digest: str
    entry: Entry

    @property
    def position(self) -> tuple[int, datetime, str]:
        """Where it stands in the ledger: the same for every reader, also where two have the same number."""
        return self.entry.sequence, self.entry.when, self.digest


@dataclass(frozen=True)
class Release:
    """An intent and what became of it: `intent` means that it was broken off, or is going on now."""

    record: Record
    state: State
    closed: Record | None = None

    @property
    def entry(self) -> Entry:
        """What was intended."""
        return self.record.entry

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        value = self.entry.model_dump(mode="json", exclude={"predecessors", "intent", "note"})
        closed = self.closed.entry if self.closed else None
        return value | {
            "state": self.state,
            "note": (closed.note if closed else "") or self.entry.note,
            "closed": closed.when.isoformat() if closed else None,
            "entry": self.record.digest,
        }


class Ledger:
    """The ledger of one project in one registry."""

    def __init__(self, registry: Registry, project: str) -> None:
        self.registry = registry
        self.repository = ledger_repository(registry.host, project)
        self._known: dict[str, Record] = {}

    def read(self) -> list[Record]:
        """Every entry, oldest first. Entries never change, so each is fetched once."""
        tags = [tag for tag in self.registry.list_tags(self.repository) if _TAG.fullmatch(tag)]
        new = [tag for tag in tags if tag not in self._known]
        with ThreadPoolExecutor(_CONCURRENT) as pool:
            self._known.update(
                (tag, record) for tag, record in zip(new, pool.map(self._fetch, new), strict=True) if record
            )
        return sorted((self._known[tag] for tag in tags if tag in self._known), key=lambda record: record.position)

    def releases(self) -> list[Release]:
        """Every promotion and rollback, oldest first, with what became of it."""
        return fold(self.read())

    def append(self, entry: Entry) -> Record:
        """Add an entry. Its `sequence` and `predecessors` are set here.

        Whoever writes at the same moment is seen by reading again afterwards: the later writer always
        sees the earlier one.
        """
        records = self.read()
        named = {digest for record in records for digest in record.entry.predecessors}
        heads = tuple(record.digest for record in records if record.digest not in named)
        sequence = 1 + max((record.entry.sequence for record in records), default=0)
        entry = entry.model_copy(update={"sequence": sequence, "predecessors": heads})
        text = canonical_json(entry.model_dump(mode="json"))
        tag = f"{sequence:08d}-{digest_of(text).removeprefix('sha256:')[:16]}"
        pushed = self.registry.push_artifact(
            self.repository, ENTRY_TYPE, {}, annotations={_ANNOTATION: text.decode()}, tag=tag
        )
        if tag not in self.registry.list_tags(self.repository):
            raise RegistryError(f"{self.repository}:{tag} was written, but the registry does not list it")
        self._known[tag] = Record(pushed.digest, entry)
        return self._known[tag]

    def close(self, release: Release, state: State, *, who: str, when: datetime, note: str = "") -> Record:
        """Add the entry that says what became of an intent."""
        update = {"state": state, "intent": release.record.digest, "who": who, "when": when, "note": note}
        return self.append(release.entry.model_copy(update=update))

    def lost(self) -> list[str]:
        """Digests of entries that others name as predecessors but that are gone: somebody deleted them."""
        records = self.read()
        there = {record.digest for record in records}
        return sorted({digest for record in records for digest in record.entry.predecessors} - there)

    def _fetch(self, tag: str) -> Record | None:
        """The entry under a tag, or None while it is being written: docker-registry lists a tag before it has one.

        Its writer reads the ledger after that, so whoever does not see it is seen by it.
        """
        reference = self.repository.tagged(tag)
        try:
            manifest = self.registry.get_manifest(reference)
            return Record(manifest.digest, Entry.model_validate_json(manifest.annotations[_ANNOTATION]))
        except RegistryError as error:
            if error.status == 404:
                return None
            raise
        except (ValidationError, LookupError) as error:
            raise RegistryError(f"{reference} is not a ledger entry: {error}") from error


def fold(records: Sequence[Record]) -> list[Release]:
    """What became of each intent. Done weighs more than undone: what is done has been seen by others."""
    closed: dict[str, Record] = {}
    for record in records:
        intent, state = record.entry.intent, record.entry.state
        if state == "done" or (state == "undone" and intent not in closed):
            earlier = closed.get(intent)
            closed[intent] = earlier if earlier and earlier.entry.state == "done" else record
    intents = [record for record in records if record.entry.state == "intent"]
    ends = [closed.get(record.digest) for record in intents]
    return [
        Release(record, end.entry.state if end else "intent", end) for record, end in zip(intents, ends, strict=True)
    ]


def of_alias(releases: Sequence[Release], stage: str, row: str, channel: Channel) -> list[Release]:
    """Those that are about one alias."""
    wanted = (stage, row, channel)
    return [each for each in releases if (each.entry.stage, each.entry.row, each.entry.channel) == wanted]


def standing(releases: Sequence[Release]) -> list[Release]:
    """The releases of one alias that a rollback can return to, oldest first; the last one is current.

    A promotion goes on top. A rollback takes away what lies above the release that it returns to, so that
    a second rollback goes one further back.
    """
    stack: list[Release] = []
    for release in releases:
        if release.state != "done":
            continue
        same = [place for place, below in enumerate(stack) if is_same(below, release)]
        if release.entry.action == "rollback" and same:
            del stack[same[-1] + 1 :]
        else:
            stack.append(release)
    return stack


def is_same(one: Release, other: Release) -> bool:
    """Whether two releases are of the same version and content."""
    return (one.entry.version, one.entry.digest) == (other.entry.version, other.entry.digest)
