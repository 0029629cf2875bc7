"""Promote, roll back, and look at what was done: the three things a release manager does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from imagebuild.errors import GateError, InputError, Problem
from imagebuild.release import gates as release_gates
from imagebuild.release.channel import ChannelOf, Move, is_record, known_versions
from imagebuild.release.ledger import Clock, Entry, Gate, Ledger, Release, is_same, standing
from imagebuild.spec.reference import Channel, Reference, check_version

if TYPE_CHECKING:
    from imagebuild.engine.registry import Registry


@dataclass(frozen=True)
class Outcome:
    """What a promotion or a rollback did, or with `dry_run` would do.

    `moves` are the tags that changed (none: all was as wanted), `recovered` earlier calls that had been
    broken off (with `dry_run` they still are), `overtaken` somebody else's release that holds the alias
    because it came later still, `lost` ledger entries that somebody deleted.
    """

    target: str
    alias: Reference
    action: str
    version: str
    digest: str
    previous: str
    moves: tuple[Move, ...] = ()
    gates: tuple[Gate, ...] = ()
    release: Release | None = None
    recovered: tuple[Release, ...] = ()
    overtaken: Release | None = None
    lost: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def changed(self) -> bool:
        """Whether there was something to do."""
        return bool(self.moves) or self.release is not None

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "target": self.target,
            "alias": str(self.alias),
            "action": self.action,
            "version": self.version,
            "digest": self.digest,
            "previous": self.previous,
            "changed": self.changed,
            "dry_run": self.dry_run,
            "moves": [move.as_json() for move in self.moves],
            "gates": [gate.model_dump(mode="json") for gate in self.gates],
            "release": self.release.as_json() if self.release else None,
            "recovered": [release.as_json() for release in self.recovered],
            "overtaken": self.overtaken.as_json() if self.overtaken else None,
            "lost": list(self.lost),
        }


@dataclass(frozen=True)
class Standing:
    """What an alias names and what the ledger says about it; `drifted` where the two differ."""

    alias: Reference
    digest: str
    release: Release | None
    unfinished: tuple[Release, ...] = field(default=())

    @property
    def drifted(self) -> bool:
        """Whether the alias was moved by something else than buildkit."""
        expected = self.release.entry.digest if self.release else ""
        return not self.unfinished and self.digest != expected

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "alias": str(self.alias),
            "digest": self.digest,
            "release": self.release.as_json() if self.release else None,
            "drifted": self.drifted,
            "unfinished": [release.as_json() for release in self.unfinished],
        }


def promote(
    registry: Registry,
    *,
    project: str,
    stage: str,
    row: str,
    version: str,
    candidate: Reference,
    is_cuda: bool,
    who: str,
    clock: Clock,
    channel: Channel = "prod",
    commit: str = "",
    overrides: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> Outcome:
    """Point a channel at what a candidate names, if the evidence about exactly that digest allows it.

    Args:
        registry: where the candidate is.
        project: whose ledger records it.
        stage: with `row`, the target.
        row: see `stage`.
        version: semver; its tag is written once and never moves (prod).
        candidate: tag or digest in the target's own repository. An index is promoted as an index.
        is_cuda: whether the GPU checks must have passed.
        who: recorded.
        clock: gives the time (UTC) to record.
        channel: `prod` or `staging`.
        commit: recorded.
        overrides: gate -> reason for passing it over.
        dry_run: say what would be done, and write nothing.

    Raises:
        GateError: a gate refused; nothing was moved.
        InputError: an argument cannot be right.
    """
    check_version(version)
    wanted_overrides = release_gates.check_overrides(overrides or {})
    place = ChannelOf(registry, project=project, stage=stage, row=row, channel=channel)
    digest = _resolve(place, candidate)
    recovered = tuple(place.broken_off() if dry_run else place.recover(who=who, clock=clock))
    moves = tuple(place.moves(version, digest))
    current = place.current()
    intended = place.intent(
        "promote", version=version, digest=digest, candidate=str(candidate), who=who, when=clock(), commit=commit
    )
    if not moves and current and (current.entry.version, current.entry.digest) == (version, digest):
        return _outcome(place, intended, recovered=recovered, dry_run=dry_run)
    found = release_gates.evaluate(registry, place.repository, digest, target=place.target, is_cuda=is_cuda)
    if channel == "prod":
        earlier = place.releases()
        found.append(
            release_gates.version_gate(registry, place.repository, earlier, row=row, version=version, digest=digest)
        )
    gates, used = release_gates.check(found, wanted_overrides)
    intended = intended.model_copy(update={"gates": gates, "overrides": used})
    release = None if dry_run else place.carry_out(intended, clock)
    return _outcome(place, intended, moves=moves, release=release, recovered=recovered, dry_run=dry_run)


def rollback(
    registry: Registry,
    *,
    project: str,
    stage: str,
    row: str,
    who: str,
    clock: Clock,
    channel: Channel = "prod",
    version: str = "",
    commit: str = "",
    reason: str = "",
    dry_run: bool = False,
) -> Outcome:
    """Return an alias to the release before the current one, or to a named version that was released.

    A rollback that had been broken off is finished first; without a `version` that is then all that is
    done, so that repeating a command does not go back twice.

    Args:
        registry: where the images are.
        project: whose ledger records it.
        stage: with `row`, the target.
        row: see `stage`.
        who: recorded.
        clock: gives the time (UTC) to record.
        channel: `prod` or `staging`.
        version: go to this version, whatever is current.
        commit: recorded.
        reason: recorded.
        dry_run: say what would be done, and write nothing.

    Raises:
        GateError: there is nothing to go back to; nothing was moved.
    """
    place = ChannelOf(registry, project=project, stage=stage, row=row, channel=channel)
    recovered = tuple(place.broken_off() if dry_run else place.recover(who=who, clock=clock))
    finished = [each for each in recovered if each.entry.action == "rollback" and each.state == "done"]
    if finished and not version and not dry_run:
        return _outcome(place, finished[-1].entry, release=finished[-1], recovered=recovered)
    goal = _goal(place, version)
    version, digest, candidate = goal.entry.version, goal.entry.digest, goal.entry.candidate
    if not place.named(place.repository.at(digest)):
        raise GateError(f"{place.target} {version}: {digest} is no longer in the registry")
    intended = place.intent(
        "rollback", version=version, digest=digest, candidate=candidate, who=who, when=clock(), commit=commit
    ).model_copy(update={"note": reason})
    moves = tuple(place.moves(version, digest))
    current = place.current()
    nothing_to_do = not moves and current is not None and is_same(current, goal)
    release = None if dry_run or nothing_to_do else place.carry_out(intended, clock)
    return _outcome(place, intended, moves=moves, release=release, recovered=recovered, dry_run=dry_run)


def history(
    registry: Registry, *, project: str, stage: str = "", row: str = "", channel: Channel | None = None
) -> list[Release]:
    """Promotions and rollbacks, newest first, of everything or of what matches."""
    releases = Ledger(registry, project).releases()
    return [
        release
        for release in reversed(releases)
        if stage in ("", release.entry.stage)
        and row in ("", release.entry.row)
        and channel in (None, release.entry.channel)
    ]


def look(registry: Registry, *, project: str, stage: str, row: str, channel: Channel = "prod") -> Standing:
    """What a channel of a target names now."""
    place = ChannelOf(registry, project=project, stage=stage, row=row, channel=channel)
    return Standing(place.alias, place.named(place.alias), place.current(), tuple(place.broken_off()))


def _resolve(place: ChannelOf, candidate: Reference) -> str:
    if candidate.repository != place.repository:
        hint = f"candidates of {place.target} are in {place.repository}"
        raise InputError(Problem(f"{candidate} is not a candidate of {place.target}", hint=hint, rule="candidate"))
    digest = place.named(candidate)
    if not digest:
        hint = f"buildkit build --smoke --push {place.target}"
        raise GateError(f"candidate {candidate} is not in the registry", hint=hint)
    return digest


def _goal(place: ChannelOf, version: str) -> Release:
    """The release to go back to."""
    releases = place.releases()
    if version:
        same = [each for each in releases if each.entry.version == version and each.state == "done"]
        if not same:
            hint = f"released so far: {known_versions(releases)}"
            raise GateError(f"{version} of {place.target} was never released to {place.channel}", hint=hint)
        return same[-1]
    stack = standing(releases)
    if len(stack) < 2:
        been = f"only {stack[-1].entry.version} was" if stack else "nothing was"
        raise GateError(f"nothing to go back to: {been} released to {place.alias}")
    return stack[-2]


def _outcome(
    place: ChannelOf,
    entry: Entry,
    *,
    moves: tuple[Move, ...] = (),
    release: Release | None = None,
    recovered: tuple[Release, ...] = (),
    dry_run: bool = False,
) -> Outcome:
    newest = [each for each in place.releases() if each.state == "done"][-1:]
    overtaken = newest[0] if release and newest and not is_record(newest[0], release) else None
    return Outcome(
        target=place.target,
        alias=place.alias,
        action=entry.action,
        version=entry.version,
        digest=entry.digest,
        previous=entry.previous,
        moves=moves,
        gates=entry.gates,
        release=release,
        recovered=recovered,
        overtaken=overtaken,
        lost=tuple(place.ledger.lost()),
        dry_run=dry_run,
    )
