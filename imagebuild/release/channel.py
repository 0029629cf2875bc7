"""One channel of one target: its tags, its part of the ledger, and how the two are brought together.

The ledger is the truth and the tags follow it, as a registry has no compare-and-swap: an intent is
written first, then the release's own tag, then the alias; all is read back, and the intent is closed.
Every step may be repeated by anybody, so a crash at any point, or a second writer, does no harm.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from imagebuild.errors import GateError, RegistryError
from imagebuild.release.ledger import Action, Clock, Entry, Ledger, Release, of_alias, standing
from imagebuild.spec.reference import Channel, Reference, channel_tag, release_tag, stage_repository

if TYPE_CHECKING:
    from imagebuild.engine.registry import Registry

_ROUNDS = 20


@dataclass(frozen=True)
class Move:
    """A tag that names `before` (empty: nothing) and should name `after`."""

    tag: Reference
    before: str
    after: str

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {"tag": str(self.tag), "before": self.before, "after": self.after}


class ChannelOf:
    """A channel of a target (`train-cu118` on `prod`, say) in one registry."""

    def __init__(self, registry: Registry, *, project: str, stage: str, row: str, channel: Channel) -> None:
        self.registry = registry
        self.stage, self.row, self.channel = stage, row, channel
        self.repository = stage_repository(registry.host, project, stage)
        self.alias = self.repository.tagged(channel_tag(row, channel))
        self.ledger = Ledger(registry, project)

    @property
    def target(self) -> str:
        """What users call it."""
        return f"{self.stage}-{self.row}"

    def releases(self) -> list[Release]:
        """What the ledger says about this alias, oldest first."""
        return of_alias(self.ledger.releases(), self.stage, self.row, self.channel)

    def current(self) -> Release | None:
        """The release that the alias should name."""
        stack = standing(self.releases())
        return stack[-1] if stack else None

    def named(self, reference: Reference) -> str:
        """The digest that a tag names now; empty where there is no such tag."""
        found = self.registry.head(reference)
        return found.digest if found else ""

    def tags_of(self, version: str) -> list[Reference]:
        """The tags that a release of `version` needs, in the order in which they are written.

        Only prod keeps a tag for each version: any number of candidates of a version may pass through staging.
        """
        own = [self.repository.tagged(release_tag(self.row, version))] if self.channel == "prod" else []
        return [*own, self.alias]

    def intent(
        self, action: Action, *, version: str, digest: str, candidate: str, who: str, when: datetime, commit: str
    ) -> Entry:
        """The entry to record before anything is moved."""
        return Entry(
            sequence=0,  # the ledger numbers its entries itself
            action=action,
            state="intent",
            stage=self.stage,
            row=self.row,
            channel=self.channel,
            version=version,
            digest=digest,
            previous=self.named(self.alias),
            candidate=candidate,
            who=who,
            when=when,
            commit=commit,
        )

    def broken_off(self) -> list[Release]:
        """What was begun and neither finished nor undone, oldest first."""
        return [release for release in self.releases() if release.state == "intent"]

    def moves(self, version: str, digest: str) -> list[Move]:
        """The difference between what should be and what is."""
        is_now = self.registry.heads(self.tags_of(version))
        befores = [(tag, found.digest if found else "") for tag, found in is_now.items()]
        return [Move(tag, before, digest) for tag, before in befores if before != digest]

    def carry_out(self, entry: Entry, clock: Clock) -> Release:
        """Record an intent and make it so. Returns the release as the ledger has it afterwards."""
        mine = Release(self.ledger.append(entry), "intent")
        if rival := self._rival(mine):
            note = f"at the same moment {rival.entry.who} promotes {rival.entry.digest} under the same version"
            self._abandon(mine, who=entry.who, when=clock(), note=note)
            raise GateError(f"{self.target} {entry.version}: {note}", hint="look at the history, and try again")
        return self._finish(mine, who=entry.who, clock=clock)

    def recover(self, *, who: str, clock: Clock) -> list[Release]:
        """Finish what was broken off, or undo it where it cannot be finished. Returns what was dealt with.

        A call that is still going on looks the same, and being helped along does it no harm.
        """
        return [self._recover(release, who=who, clock=clock) for release in self.broken_off()]

    def _recover(self, release: Release, *, who: str, clock: Clock) -> Release:
        rival = self._rival(release)
        if rival and (rival.state == "done" or rival.record.position < release.record.position):
            return self._abandon(release, who=who, when=clock(), note="the same version was released by somebody else")
        try:
            return self._finish(release, who=who, clock=clock)
        except GateError:
            return self._again(release)  # it could not be finished, and is undone now

    def _rival(self, mine: Release) -> Release | None:
        """Another promotion of the same version with other content, if this channel has a tag per version."""
        if self.channel != "prod":
            return None
        for each in self.releases():
            same_version = each.entry.version == mine.entry.version
            if same_version and each.state != "undone" and each.entry.digest != mine.entry.digest:
                return each
        return None

    def _finish(self, release: Release, *, who: str, clock: Clock) -> Release:
        """Write the tags of an intent, read them back, and close it."""
        entry = release.entry
        source = self.repository.at(entry.digest)
        if not self.named(source):
            self._give_up(release, who, clock(), f"{source} is no longer in the registry")
        for tag in self.tags_of(entry.version)[:-1]:
            taken = self.named(tag)
            if taken and taken != entry.digest:
                self._give_up(release, who, clock(), f"{tag} names {taken} already, and a release never changes")
            if not taken:
                self.registry.retag(source, tag.tag)
                self._read_back(tag, {entry.digest})
        self._move_alias(release)
        if self._again(release).state == "intent":
            self.ledger.close(release, "done", who=who, when=clock())
        self._settle()
        return self._again(release)

    def _move_alias(self, mine: Release) -> None:
        """Let the alias name an intent, unless a later release holds it already."""
        alive = [each for each in self.releases() if each.state == "done" or is_record(each, mine)]
        if is_record(alive[-1], mine) and self.named(self.alias) != mine.entry.digest:
            self.registry.retag(self.repository.at(mine.entry.digest), self.alias.tag)
            self._read_back(self.alias, {each.entry.digest for each in self.releases() if each.state != "undone"})

    def _read_back(self, tag: Reference, allowed: Collection[str]) -> None:
        """Check what a tag names just after it was written; the alias may be somebody else's by then."""
        if (found := self.named(tag)) not in allowed:
            raise RegistryError(f"{tag} was written, but names {found or 'nothing'}")

    def _settle(self) -> None:
        """Let the alias name the newest release that is done.

        Somebody who was slower than a later release may have moved the alias back in between. All who
        come here want the same, so the last of them leaves it right.
        """
        for _round in range(_ROUNDS):
            done = [each for each in self.releases() if each.state == "done"]
            if not done or self.named(self.alias) == done[-1].entry.digest:
                return
            self.registry.retag(self.repository.at(done[-1].entry.digest), self.alias.tag)
        raise RegistryError(f"{self.alias} is moved by somebody else all the time")

    def _give_up(self, release: Release, who: str, when: datetime, note: str) -> None:
        self._abandon(release, who=who, when=when, note=note)
        raise GateError(f"{self.target} {release.entry.version} cannot be released: {note}")

    def _abandon(self, release: Release, *, who: str, when: datetime, note: str) -> Release:
        """Close an intent as undone, and take the alias back if it names what was undone."""
        if self._again(release).state == "intent":
            self.ledger.close(release, "undone", who=who, when=when, note=note)
        digest = release.entry.digest
        standing_digests = [each.entry.digest for each in self.releases() if each.state == "done"]
        if self.named(self.alias) == digest and digest not in standing_digests[-1:]:
            if standing_digests:
                self._settle()
            else:
                self.registry.delete_tag(self.repository, self.alias.tag)
        return self._again(release)

    def _again(self, release: Release) -> Release:
        """The same release, as the ledger has it now."""
        return next(each for each in self.releases() if is_record(each, release))


def is_record(release: Release, other: Release | None) -> bool:
    """Whether both are the same intent."""
    return other is not None and release.record.digest == other.record.digest


def known_versions(releases: Sequence[Release]) -> str:
    """The versions that were ever released, for a hint."""
    return ", ".join(dict.fromkeys(each.entry.version for each in releases if each.state == "done")) or "none"
