"""Budgets: what the image of a stage may weigh, by `budgets:` in the matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from imagebuild.engine import layers
from imagebuild.errors import Location, WorkError
from imagebuild.run.decide import Action, Decision, Presence, address
from imagebuild.run.sizes import megabytes, recorded_size, step_names
from imagebuild.spec.models import size_bytes

if TYPE_CHECKING:
    from imagebuild.engine.layers import Layer
    from imagebuild.engine.podman import Podman
    from imagebuild.engine.registry import Registry
    from imagebuild.plan.plan import Plan, PlannedTarget
    from imagebuild.plan.targets import Target
    from imagebuild.run.results import SmokeResults
    from imagebuild.run.state import State

Kind = Literal["size", "pull"]
_CONCURRENT = 16
_SHOWN = 4


@dataclass(frozen=True)
class Limit:
    """One number of a budget, as written (`2g`) and in bytes, and where it is written, if that was asked for."""

    kind: Kind
    text: str
    bytes: int
    place: Location | None = None


Weights = Mapping[Kind, int]  # bytes; what is not known is 0 or not in it


def limits(plan: Plan, planned: PlannedTarget) -> list[Limit]:
    """The budget of a target: none, one or two numbers, each with its place."""
    row, stage, place = planned.target.row, planned.target.stage, plan.matrix.locate
    return [replace(one, place=place(row.name, "budgets", stage, one.kind)) for one in limits_of(planned.target)]


def limits_of(target: Target) -> list[Limit]:
    """The budget of a target, without places."""
    budget = next((value for stage, value in target.row.budgets.items() if stage == target.stage), None)
    texts: dict[Kind, str | None] = {"size": budget.size, "pull": budget.pull} if budget else {}
    return [Limit(kind, text, size_bytes(text)) for kind, text in texts.items() if text]


def check(
    plan: Plan, planned: PlannedTarget, weights: Weights, layers_of: Callable[[Kind], Sequence[Layer]]
) -> None:  # fmt: skip
    """Refuse an image that weighs more than its budget.

    Args:
        plan: knows the budget, and what the layers are called.
        planned: the target.
        weights: what is known of its image.
        layers_of: gives the image's layers with their weight of this kind; asked for when it is too heavy.

    Raises:
        WorkError: with the budget's place and the heaviest layers.
    """
    for limit in limits(plan, planned):
        weight = weights.get(limit.kind, 0)
        if weight > limit.bytes:
            message = f"{_sentence(limit, weight)}\n{_heaviest(plan, planned, limit.kind, layers_of(limit.kind))}"
            hint = f"`buildkit size {planned.name}` names the packages; make it smaller, or raise `budgets:`"
            raise WorkError(message, hint=hint)


def _sentence(limit: Limit, weight: int) -> str:
    budget = f"{limit.text} ({megabytes(limit.bytes)}, {limit.place})"
    over = f"{megabytes(weight - limit.bytes)} over its budget of {budget}"
    if limit.kind == "pull":
        return f"{megabytes(weight)} to pull, {over}; it gets no tag but its address"
    return f"{megabytes(weight)}, {over}; the image is kept, and not published"


def _heaviest(plan: Plan, planned: PlannedTarget, kind: Kind, found: Iterable[Layer]) -> str:
    names = step_names(plan.closure([planned.name]))
    known = [(size, layer.step) for layer in found if (size := getattr(layer, kind)) is not None]
    heaviest = sorted(known, key=lambda one: -one[0])[:_SHOWN]
    return "\n".join(
        f"  {megabytes(size):>8}  {names.get(step, ('', step))[1][:90]}" for size, step in heaviest
    )  # fmt: skip


@dataclass(frozen=True)
class Known:
    """What metadata says of the weight of images that need not be built."""

    plan: Plan
    registry: Registry
    state: State
    results: SmokeResults
    podman: Callable[[], Podman]

    def weights(self, decisions: Iterable[Decision]) -> dict[str, Weights]:
        """At most a few small requests a target, all targets at once; only what a budget is about is asked for."""
        present = [one for one in decisions if one.action is Action.NOTHING and limits_of(one.planned.target)]
        if not present:
            return {}
        with ThreadPoolExecutor(min(_CONCURRENT, len(present))) as pool:
            return {one.planned.name: found for one, found in zip(present, pool.map(self._weigh, present), strict=True)}

    def _weigh(self, decision: Decision) -> Weights:
        planned, presence = decision.planned, decision.presence
        kinds = {limit.kind for limit in limits_of(planned.target)}
        weights: dict[Kind, int] = {}
        if "size" in kinds:
            weights["size"] = self._size(planned, presence)
        if "pull" in kinds and presence.in_registry:
            reference = address(planned, self.registry.host).repository.at(presence.in_registry)
            weights["pull"] = self.registry.get_manifest(reference).size
        return weights

    def _size(self, planned: PlannedTarget, presence: Presence) -> int:
        """By this machine's record of the build, by Podman's store, or by the smoke evidence in the registry."""
        last = self.state.last_build(planned.name)
        if last and last.digest == planned.digest:
            return last.size
        if presence.in_store:
            return layers.size_in_store(self.podman(), presence.in_store)
        return recorded_size(self.results, presence, address(planned, self.registry.host).repository)
