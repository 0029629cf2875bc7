"""The gates of a promotion: what must be known about exactly this digest before a channel may name it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from imagebuild.errors import GateError, InputError, Problem
from imagebuild.release.ledger import Gate, Override, Release
from imagebuild.run import evidence
from imagebuild.spec.reference import Repository, release_tag

if TYPE_CHECKING:
    from imagebuild.engine.registry import Registry
    from imagebuild.run.evidence import SmokeReport

OVERRIDABLE = ("smoke", "gpu")


def check_overrides(overrides: Mapping[str, str]) -> tuple[Override, ...]:
    """The overrides (gate -> reason), if each names a gate that can be passed over and gives a reason."""
    for name, reason in overrides.items():
        if name not in OVERRIDABLE:
            hint = f"gates that can be overridden: {', '.join(OVERRIDABLE)}"
            raise InputError(Problem(f"gate {name!r} cannot be overridden", hint=hint, rule="override"))
        if not reason.strip():
            hint = f'--override {name} --reason "why this is right, for those who read the history"'
            raise InputError(Problem(f"overriding gate {name!r} needs a reason", hint=hint, rule="override"))
    return tuple(Override(name=name, reason=reason.strip()) for name, reason in sorted(overrides.items()))


def check(gates: Iterable[Gate], overrides: Sequence[Override]) -> tuple[tuple[Gate, ...], tuple[Override, ...]]:
    """Apply the overrides; return the gates as decided and the overrides that were needed.

    Raises:
        GateError: a gate refused, and nobody overrode it.
    """
    by_name = {override.name: override for override in overrides}
    decided = tuple(
        gate.model_copy(update={"verdict": "overridden"})
        if gate.verdict == "refused" and gate.name in by_name
        else gate
        for gate in gates
    )
    if refused := [gate for gate in decided if gate.verdict == "refused"]:
        names = [gate.name for gate in refused if gate.name in OVERRIDABLE]
        hint = " ".join(f"--override {name}" for name in names)
        message = "\n".join(f"gate {gate.name} refused: {gate.detail}" for gate in refused)
        raise GateError(message, hint=f'if you know better: {hint} --reason "..."' if hint else "")
    return decided, tuple(by_name[gate.name] for gate in decided if gate.verdict == "overridden")


def evaluate(
    registry: Registry,
    repository: Repository,
    digest: str,
    *,
    target: str,
    is_cuda: bool,
) -> list[Gate]:
    """What the evidence on a digest says: `smoke`, and for CUDA rows `gpu`."""
    reports = [report for report in evidence.find(registry, repository, digest) if report.target == target]
    return [_smoke(reports, target, digest), _gpu(reports, target) if is_cuda else _no_gpu()]


def version_gate(
    registry: Registry, repository: Repository, earlier: Sequence[Release], *, row: str, version: str, digest: str
) -> Gate:
    """Whether this version may still be released: its tag never moves, and the ledger remembers it."""
    tag = release_tag(row, version)
    found = registry.head(repository.tagged(tag))
    taken = {found.digest} if found else set()
    taken |= {each.entry.digest for each in earlier if each.entry.version == version and each.state == "done"}
    if others := taken - {digest}:
        detail = f"{version} of {row} was released as {min(others)}, and a release never changes: raise `version:`"
        return Gate(name="version", verdict="refused", detail=detail)
    return Gate(name="version", verdict="passed", detail=f"{tag} is {'this digest' if taken else 'free'}")


def _smoke(reports: Sequence[SmokeReport], target: str, digest: str) -> Gate:
    if not reports:
        detail = f"no smoke results for {digest}; run: buildkit smoke {target}"
        return Gate(name="smoke", verdict="refused", detail=detail)
    newest = reports[0]
    when = newest.started.isoformat(timespec="seconds")
    if failed := newest.failed:
        names = ", ".join(case.name for case in failed)
        return Gate(name="smoke", verdict="refused", detail=f"failed on {when}: {names}")
    if not newest.green:
        return Gate(name="smoke", verdict="refused", detail=f"no check passed on {when}")
    return Gate(name="smoke", verdict="passed", detail=f"{len(newest.cases)} checks, {when}")


def _gpu(reports: Sequence[SmokeReport], target: str) -> Gate:
    """A run without a GPU says nothing about GPUs, so the newest run that had one decides."""
    run = f"run on a machine with a GPU: buildkit smoke --gpu require {target}"
    with_gpu = [report for report in reports if report.gpu.present]
    if not with_gpu:
        return Gate(name="gpu", verdict="refused", detail=f"the GPU checks never ran for this digest; {run}")
    newest = with_gpu[0]
    when = newest.started.isoformat(timespec="seconds")
    if not (newest.gpu_green and newest.green):
        bad = [case for case in newest.cases if case.outcome == "failed" or (case.is_gpu and case.outcome != "passed")]
        names = ", ".join(f"{case.name} {case.outcome}" for case in bad) or "there were no GPU checks"
        return Gate(name="gpu", verdict="refused", detail=f"on {newest.gpu.name or 'a GPU'}, {when}: {names}; {run}")
    return Gate(name="gpu", verdict="passed", detail=f"{len(newest.gpu_cases)} checks on {newest.gpu.name}, {when}")


def _no_gpu() -> Gate:
    return Gate(name="gpu", verdict="not needed", detail="not a CUDA row")
