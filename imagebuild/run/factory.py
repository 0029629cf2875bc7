"""Makes targets so: builds what is missing, smoke-tests it, pushes it, and does nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from imagebuild.engine import layers
from imagebuild.engine.cdi import has_cdi_gpu
from imagebuild.engine.git import Commit
from imagebuild.errors import WorkError
from imagebuild.events import Emit
from imagebuild.plan.plan import Plan, PlannedTarget
from imagebuild.run import budget, decide
from imagebuild.run.decide import Action, Decision, Presence
from imagebuild.run.schedule import Result, Scheduler, Status, Task
from imagebuild.run.sizes import LAYERS_FILE, Scales, layers_file
from imagebuild.run.state import State
from imagebuild.spec.site import Site

if TYPE_CHECKING:
    from imagebuild.engine.layers import Layer
    from imagebuild.engine.podman import Podman
    from imagebuild.engine.registry import Registry
    from imagebuild.run.budget import Kind, Weights
    from imagebuild.run.evidence import SmokeReport
    from imagebuild.run.results import SmokeResults
    from imagebuild.run.smoke import Findings, Suite
    from imagebuild.spec.reference import Reference


@dataclass(frozen=True)
class Options:
    """What to do beside building. `gpu` is `auto`, `require` or `off`."""

    build: bool = True
    smoke: bool = False
    push: bool = False
    gpu: str = "auto"
    cache: bool = True
    rebuild: bool = False
    jobs: int = 2


class Factory:
    """One run over some targets. Podman is only asked for when metadata does not answer."""

    def __init__(
        self, plan: Plan, *, site: Site, state: State, registry: Registry, podman: Callable[[], Podman], emit: Emit,
        commit: Callable[[], Commit],
    ) -> None:  # fmt: skip
        self._plan = plan
        self._site = site
        self._state = state
        self._registry = registry
        self._connect = podman
        self._emit = emit
        self._commit = commit
        self._present: dict[str, Presence] = {}
        self._suites: dict[str, Suite] = {}
        self._weights: Mapping[str, Weights] = {}

    @cached_property
    def _podman(self) -> Podman:
        return self._connect()

    def decide(self, wanted: Sequence[str], options: Options) -> list[Decision]:
        """What there is to do for the wanted targets, ancestors included, parents first."""
        closure = self._plan.closure(wanted)
        self._present = decide.presences(closure, self._registry, lambda: self._podman, self._emit)
        return decide.decide(self._plan, wanted, self._present, self._state, rebuild=options.rebuild)

    def run(self, decisions: Sequence[Decision], wanted: Sequence[str], options: Options) -> dict[str, Result]:
        """Carry the decisions out; one result a task, by key.

        Raises:
            InputError: the site's own checks are not right.
            Interrupted: after Ctrl-C, with everything stopped and cleaned up.
        """
        self._suites = self._load_suites(decisions) if options.smoke else {}
        if any(decision.action is Action.BUILD for decision in decisions):
            _ = self._podman  # connect before the threads do
        if options.build:
            known = budget.Known(self._plan, self._registry, self._state, self._results, lambda: self._podman)
            self._weights = known.weights(decisions)
        tasks = [task for decision in decisions for task in self._tasks(decision, wanted, options)]
        return Scheduler(options.jobs, self._emit, self._cancel).run(tasks)

    def _load_suites(self, decisions: Sequence[Decision]) -> dict[str, Suite]:
        """The suite of each stage, read before the work: a site's wrong check is better known then."""
        from imagebuild.run.smoke import Suite

        stages = dict.fromkeys(one.planned.target.stage for one in decisions)
        folder = self._plan.folder
        return {stage: Suite.load(folder, stage, self._site.checks_folder(folder)) for stage in stages}

    def _cancel(self) -> None:
        if "_podman" in self.__dict__:
            self._podman.cancel()

    def _tasks(self, decision: Decision, wanted: Sequence[str], options: Options) -> list[Task]:
        """The tasks of one target. What is built on the way to a wanted target is tested and pushed with it."""
        planned = decision.planned
        name, parents = planned.name, planned.target.parents
        builds = decision.action is Action.BUILD
        tasks = []
        if options.build and builds:
            tasks.append(Task(name, "build", partial(self._build, planned, options), _keys("build", parents)))
        elif options.build:
            tasks.append(Task(name, "build", partial(self._up_to_date, decision)))
        if not (builds or name in wanted):
            return tasks
        if options.smoke:
            needs = (f"build:{name}", *_keys("smoke", parents))
            tasks.append(Task(name, "smoke", partial(self._smoke, planned, options), needs))
        if options.push:
            tasks.append(Task(name, "push", partial(self._push, planned), (f"build:{name}", f"smoke:{name}")))
        return tasks

    # --- build ----------------------------------------------------------------------------------

    def _build(self, planned: PlannedTarget, options: Options) -> Result:
        from imagebuild.run.build import Builder

        self._check_space(planned)
        for parent in planned.target.parents:
            self._ensure_local(self._plan[parent])
        if planned.base_image:
            self._ensure_base(planned.base_image)
        image = Builder(self._podman, self._site, self._state, self._emit).build(planned, cache=options.cache)
        self._present[planned.name] = Presence("", image.id)
        self._check_budget(planned, {"size": image.size})
        return Result(Status.DONE, f"{planned.tag}, {image.size / 1e6:.0f} MB", data={"image_id": image.id})

    def _up_to_date(self, decision: Decision) -> Result:
        self._check_budget(decision.planned, self._weights.get(decision.planned.name, {}))
        return Result(Status.UP_TO_DATE, decision.reason)

    def _check_budget(self, planned: PlannedTarget, weights: Weights) -> None:
        """Refuse an image that is too heavy; only then its layers are asked for."""

        def of(kind: Kind) -> Sequence[Layer]:
            presence = self._where(planned.name)
            if kind == "size" and presence.in_store:
                return layers.in_store(self._podman, presence.in_store)
            scales = Scales(self._plan, self._registry, self._results, lambda: self._podman)
            return scales.in_registry(self._address(planned).repository.at(presence.in_registry)).layers

        budget.check(self._plan, planned, weights, of)

    def _check_space(self, planned: PlannedTarget) -> None:
        """Refuse early what would fail late: a commit needs the image's size once more while it is written."""
        last, free = self._state.last_build(planned.name), self._podman.info.free_bytes
        if last and free is not None and free < 2 * last.size:
            message = f"{free / 1e9:.1f} GB are free, and {planned.name} needs about {2 * last.size / 1e9:.1f} GB"
            raise WorkError(message, hint="free some space: `podman image prune` removes unnamed images")

    def _ensure_local(self, planned: PlannedTarget) -> str:
        """The image ID of a target in Podman's store, pulled from the registry if it is only there."""
        if found := self._podman.image(planned.local_name):
            return found.id
        presence = self._where(planned.name)
        if presence.in_store:  # the same inputs under another name: another project's, or an old one
            self._podman.tag(presence.in_store, planned.local_name)
            return presence.in_store
        if not presence.in_registry:
            raise WorkError(f"{planned.name} is not built yet", hint=f"buildkit build {planned.name}")
        from imagebuild.run import ship

        return ship.pull(self._podman, self._registry, self._address(planned), planned.local_name)

    def _ensure_base(self, reference: str) -> None:
        """Have the registry image that a base starts from in the store, under its own name."""
        if self._podman.image(reference):
            return
        from imagebuild.run import ship

        ship.pull_base(self._podman, reference, self._site)

    # --- smoke ----------------------------------------------------------------------------------

    def _smoke(self, planned: PlannedTarget, options: Options) -> Result:
        suite = self._suites[planned.target.stage]
        if not options.rebuild and (earlier := self._tested_before(planned, suite, options)):
            if self._results.local(earlier.image_id) is None:  # the registry's; reports are written from what is here
                self._results.keep(earlier, {})
            return Result(Status.UP_TO_DATE, f"tested before: {counted(earlier)}", data=_smoke_data(earlier))
        findings = self._test(planned, suite, options)
        self._results.keep(findings.report, findings.artifacts)
        if self._where(planned.name).in_registry:
            self._results.publish(self._address(planned), findings.report, findings.artifacts)
        message = counted(findings.report)
        if not findings.report.failed:
            return Result(Status.DONE, message, data=_smoke_data(findings.report))
        said = "\n".join(f"  {case.name}: {case.message}" for case in findings.report.failed)
        message = f"{message}\n{said}\nlog: {self._state.log(planned.name, 'smoke')}"
        return Result(Status.FAILED, message, data=_smoke_data(findings.report))

    def _tested_before(self, planned: PlannedTarget, suite: Suite, options: Options) -> SmokeReport | None:
        """A report of this very image that says all that another run would say."""
        from imagebuild.run.smoke import is_sufficient

        row = planned.target.row
        reports = self._results.of(self._where(planned.name), self._address(planned).repository)
        wants_gpu = row.is_cuda and (options.gpu == "require" or (options.gpu == "auto" and has_cdi_gpu()))
        return next((one for one in reports if is_sufficient(one, suite.digest(row), wants_gpu=wants_gpu)), None)

    def _test(self, planned: PlannedTarget, suite: Suite, options: Options) -> Findings:
        """Run the suite in the image, with what the checks of its parents left."""
        from imagebuild.run.smoke import Request, run_smoke

        image_id = self._ensure_local(planned)
        artifacts: dict[str, bytes] = {}
        for parent in planned.target.parents:
            repository = self._address(self._plan[parent]).repository
            artifacts |= self._results.artifacts(self._where(parent), repository)
        gpu, owner = has_cdi_gpu(), f"smoke-{self._plan.folder}-{planned.name}"
        request = Request(planned.target, planned.local_name, image_id, suite, options.gpu, gpu, artifacts, owner)
        with self._state.log(planned.name, "smoke").open("w", encoding="utf-8") as log:
            findings = run_smoke(self._podman, request, self._emit, log)
        self._present[planned.name] = replace(self._where(planned.name), in_store=image_id)
        if not findings.report.green:
            return findings
        weighed = {LAYERS_FILE: layers_file(layers.in_store(self._podman, image_id))}
        return replace(findings, artifacts={**findings.artifacts, **weighed})

    # --- push -----------------------------------------------------------------------------------

    def _push(self, planned: PlannedTarget) -> Result:
        from imagebuild.run import ship

        address, pushed = self._address(planned), False
        if not self._where(planned.name).in_registry:
            image_id = self._ensure_local(planned)
            self._check_budget(planned, {"size": layers.size_in_store(self._podman, image_id)})
            digest = ship.push(self._podman, self._registry, planned.local_name, image_id, address)
            self._present[planned.name] = Presence(digest, image_id)
            pushed = True
            if report := self._results.local(image_id):
                self._results.publish(address, report, self._results.local_artifacts(image_id))
        digest = self._where(planned.name).in_registry
        self._check_pull(planned, digest)
        tags = ship.tags_of(planned.target.row.name, self._plan.matrix.header.version, self._commit(), self._site)
        moved = ship.reconcile(self._registry, address, digest, tags)
        data = {"digest": digest, "tags": [planned.tag, *tags]}
        if pushed or moved:
            return Result(Status.DONE, f"{digest[:19]} as {', '.join([planned.tag, *tags])}", data=data)
        return Result(Status.UP_TO_DATE, "in the registry, with all its tags", data=data)

    def _check_pull(self, planned: PlannedTarget, digest: str) -> None:
        """Refuse what is too large to pull: only now its compressed size is known. No tag names it yet."""
        if any(limit.kind == "pull" for limit in budget.limits_of(planned.target)):
            manifest = self._registry.get_manifest(self._address(planned).repository.at(digest))
            self._check_budget(planned, {"pull": manifest.size})

    # --- where things are -----------------------------------------------------------------------

    def _where(self, name: str) -> Presence:
        return self._present.get(name, Presence())

    def _address(self, planned: PlannedTarget) -> Reference:
        return decide.address(planned, self._registry.host)

    @cached_property
    def _results(self) -> SmokeResults:
        from imagebuild.run.results import SmokeResults

        return SmokeResults(self._state, self._registry)


def _keys(task: str, targets: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{task}:{target}" for target in targets)


def counted(report: SmokeReport) -> str:
    """The outcome of a smoke run in words: every case is counted, skipped ones with their reason."""
    outcomes = ("passed", "failed", "skipped")
    by_outcome = {outcome: [case for case in report.cases if case.outcome == outcome] for outcome in outcomes}
    words = [f"{len(cases)} {outcome}" for outcome, cases in by_outcome.items() if cases]
    reasons = sorted({case.message for case in by_outcome["skipped"]})
    return ", ".join(words) + (f" ({'; '.join(reasons)})" if reasons else "")


def _smoke_data(report: SmokeReport) -> Mapping[str, object]:
    outcomes = [case.outcome for case in report.cases]
    return {"image_id": report.image_id, **{outcome: outcomes.count(outcome) for outcome in set(outcomes)}}
