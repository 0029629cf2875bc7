"""Decides from metadata what is to be done: which targets exist already, and why the others have to be built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from imagebuild.errors import RegistryError
from imagebuild.events import Emit, Event, Kind
from imagebuild.plan.plan import INPUTS_LABEL, Plan, PlannedTarget
from imagebuild.run.state import State
from imagebuild.spec.reference import ADDRESS_DIGITS, Reference, stage_repository

if TYPE_CHECKING:
    from imagebuild.engine.podman import Image, Podman
    from imagebuild.engine.registry import Registry


class Action(StrEnum):
    """What a target needs before anything can be done with it."""

    NOTHING = "nothing"
    BUILD = "build"


@dataclass(frozen=True)
class Presence:
    """Where the image of a target's very inputs is already: a manifest digest, an image ID, or neither."""

    in_registry: str = ""
    in_store: str = ""

    def __bool__(self) -> bool:
        return bool(self.in_registry or self.in_store)


@dataclass(frozen=True)
class Decision:
    """What to do for one target, and why."""

    planned: PlannedTarget
    action: Action
    reason: str
    presence: Presence


def address(planned: PlannedTarget, registry: str) -> Reference:
    """Where a registry holds, or would hold, the image of a target's inputs."""
    return stage_repository(registry, planned.project, planned.target.stage).tagged(planned.tag)


def presences(
    planned: Sequence[PlannedTarget], registry: Registry, podman: Callable[[], Podman], emit: Emit
) -> dict[str, Presence]:
    """Where each target is already: one HEAD a target, all at once; Podman is asked only for what is left.

    A registry that cannot be reached is a warning: what it holds is then not known, and may be built again.
    """
    remote = _in_registry(planned, registry, emit)
    if all(one.name in remote for one in planned):
        return {one.name: Presence(in_registry=remote[one.name]) for one in planned}
    local = _by_inputs(podman().images(INPUTS_LABEL))
    return {one.name: Presence(remote.get(one.name, ""), local.get(one.digest, "")) for one in planned}


def _by_inputs(images: Iterable[Image]) -> dict[str, str]:
    """The image ID of each inputs digest in Podman's store.

    What a build with several stages, or one that broke off, leaves behind carries its parent's label too: so an image
    that is named by its inputs comes first, and then the smallest.
    """

    def rank(image: Image) -> tuple[bool, int]:
        digits = image.labels[INPUTS_LABEL].removeprefix("sha256:")[:ADDRESS_DIGITS]
        return any(name.endswith(f"-in-{digits}") for name in image.names), -image.size

    return {image.labels[INPUTS_LABEL]: image.id for image in sorted(images, key=rank)}


def _in_registry(planned: Sequence[PlannedTarget], registry: Registry, emit: Emit) -> dict[str, str]:
    references = {one.name: address(one, registry.host) for one in planned}
    try:
        registry.ping()  # one that is down says so at once, not after a retry for each target
        found = registry.heads(references.values())
    except RegistryError as error:
        message = f"{error.message}; deciding from Podman's own store alone"
        emit(Event(Kind.WARNING, message=message))
        return {}
    return {name: one.digest for name, reference in references.items() if (one := found[reference])}


def decide(
    plan: Plan, wanted: Sequence[str], present: Mapping[str, Presence], state: State, *, rebuild: bool = False
) -> list[Decision]:
    """What to do for the wanted targets and for the ancestors that they need, parents first.

    Args:
        plan: the plan.
        wanted: names of targets.
        present: where each target of the closure is.
        state: knows the last builds.
        rebuild: build the wanted ones even if they are present.
    """
    needed: dict[str, Decision] = {}

    def need(name: str) -> Decision:
        if name in needed:
            return needed[name]
        planned = plan[name]
        forced = rebuild and name in wanted
        if present[name] and not forced:
            where = "in the registry" if present[name].in_registry else "in Podman's store"
            reason = f"{where} as {planned.tag}"
            decision = Decision(planned, Action.NOTHING, reason, present[name])
        else:
            parents = [need(parent) for parent in planned.target.parents]
            built = [parent.planned.name for parent in parents if parent.action is Action.BUILD]
            reason = "asked to rebuild" if forced else why(planned, state, built)
            decision = Decision(planned, Action.BUILD, reason, present[name])
        needed[name] = decision
        return decision

    for name in wanted:
        need(name)
    order = [one.name for one in plan.closure(wanted)]
    return sorted(needed.values(), key=lambda decision: order.index(decision.planned.name))


def why(planned: PlannedTarget, state: State, rebuilt_parents: Sequence[str] = ()) -> str:
    """Why a target that is nowhere has to be built, in words: what changed since its last build here."""
    last = state.last_build(planned.name)
    if last is None:
        return "never built here"
    if last.digest == planned.digest:
        return "built before, but its image is gone"
    changes = [change for change in differences(planned, state) if not change.startswith("parent:")]
    if not changes and rebuilt_parents:
        return f"its parent {rebuilt_parents[-1]} changed"
    return "changed: " + "; ".join(changes) if changes else "its parents changed"


def differences(planned: PlannedTarget, state: State) -> list[str]:
    """What differs between a target's inputs now and at its last build on this machine."""
    last = state.last_build(planned.name)
    if last is None:
        return []
    values = [
        f"{part.name} {last.values[part.name]} -> {part.value}"
        for part in planned.values
        if part.name in last.values and last.values[part.name] != part.value
    ]
    now = {part.name: part.value for part in planned.parts}
    parts = [name for name in sorted(now.keys() | last.parts.keys()) if now.get(name) != last.parts.get(name)]
    # A changed value shows in the files rendered from it: naming both would say one thing twice.
    rendered = {"containerfile", "context:requirements.txt"} if values else set()
    return [*values, *(_change(name, now, last.parts) for name in parts if name not in rendered)]


def _change(name: str, now: Mapping[str, str], then: Mapping[str, str]) -> str:
    if name not in then:
        return f"{name} added"
    if name not in now:
        return f"{name} removed"
    if any(value.startswith("sha256:") or " sha256:" in value for value in (now[name], then[name])):
        return f"{name} changed"
    return f"{name} {then[name]} -> {now[name]}"
