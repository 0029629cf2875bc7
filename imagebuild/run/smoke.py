"""Runs a stage's smoke checks inside a container of its image, one case a check."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from imagebuild.engine.container import Answer, Container, ContainerSettings, remove_left_over
from imagebuild.engine.podman import Podman
from imagebuild.errors import WorkError
from imagebuild.events import Emit, Event, Kind
from imagebuild.plan.inputs import sha256
from imagebuild.plan.targets import Target
from imagebuild.run import site_checks
from imagebuild.run.evidence import Gpu, Outcome, SmokeCase, SmokeReport
from imagebuild.run.gpu import first_obstacle
from imagebuild.spec import facts
from imagebuild.spec.expected import expectations
from imagebuild.spec.models import Row

GPU_DEVICE = "nvidia.com/gpu=all"  # by CDI; `--gpus` is silently ignored before Podman 5
# What diag-tools looks with: at other processes (strace, gdb, py-spy), at packets (tcpdump), and at the processor's
# counters (perf), whose system call Podman's seccomp profile withholds.
TOOLS_CAPABILITIES = ("SYS_PTRACE", "NET_RAW")
TOOLS_SECCOMP = "unconfined"
CHECK_TIMEOUT = 600.0  # seconds
#: What a check's name says that it is about, and whether a row promises it. A row that does not has no such check; one
#: that does cannot pass without: there such a check is never skipped because what it is about is missing.
_PROMISES: Mapping[str, Callable[[Row], bool]] = {
    "-gpu-": lambda row: row.is_cuda,
    "-rllib": lambda row: row.ray is not None,
}
_SKIPPED = 77  # the exit code of a check that does not apply, as in Automake
_OUTPUT_KEPT = 20_000  # characters of a check's output in the report


@dataclass(frozen=True)
class Suite:
    """The checks of a stage and the modules that they share, by file name; the site's are below `site/`."""

    files: Mapping[str, bytes]
    origins: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def load(cls, project: Path, stage: str, site: Path | None = None) -> Suite:
        """Read `images/<stage>/smoke/`, the `client/` that talks to the image, what all stages share, and the site's.

        Raises:
            InputError: something in the site's folder would never run, or has the name of buildkit's own.
        """
        images = project / "images"
        folders = (images / "common" / "smoke", images / stage / "client", images / stage / "smoke")
        origins = {path.name: path for folder in folders for path in sorted(folder.glob("*.py"))}
        if site is not None:
            origins |= site_checks.load(site, stage, origins)
        return cls({name: path.read_bytes() for name, path in origins.items()}, origins)

    def digest(self, row: Row) -> str:
        """Changes when a check does, or what row and facts promise: an earlier result then says nothing more."""
        files = {name: sha256(data) for name, data in sorted(self.files.items())}
        return sha256(json.dumps([files, _promised(row), _facts(row)], sort_keys=True).encode())

    def checks(self, row: Row) -> list[str]:
        """The scripts to run on a row, in order, the site's last: all but those about what the row does not promise."""
        missing = [part for part, is_promised in _PROMISES.items() if not is_promised(row)]
        names = [name for name in self.files if site_checks.CHECK.fullmatch(name.removeprefix(site_checks.PREFIX))]
        names.sort(key=lambda name: (name.startswith(site_checks.PREFIX), name))
        return [name for name in names if not any(part in name for part in missing)]


@dataclass(frozen=True)
class Request:
    """What to smoke-test: the image of a target, how GPUs are to be treated, and its parents' artifacts."""

    target: Target
    image: str
    image_id: str
    suite: Suite
    gpu_mode: str = "auto"
    gpu_present: bool = False
    artifacts: Mapping[str, bytes] = field(default_factory=dict)
    owner: str = "buildkit-smoke"


@dataclass(frozen=True)
class Findings:
    """What a smoke run found, and the files that its checks left for later images."""

    report: SmokeReport
    artifacts: Mapping[str, bytes]


def run_smoke(podman: Podman, request: Request, emit: Emit, log: TextIO) -> Findings:
    """Run every check of a suite in one container.

    Args:
        podman: the engine that holds the image.
        request: what to test.
        emit: gets one event a case.
        log: gets the output of every check.

    Raises:
        WorkError: there are no checks, or the container could not be made or kept running.
    """
    target = request.target
    started = datetime.now(UTC)
    wants_gpu = target.row.is_cuda and request.gpu_mode != "off"
    use_gpu = wants_gpu and request.gpu_present
    checks = request.suite.checks(target.row)
    if not checks:
        message = f"{target.stage} has no smoke checks, and an image that nothing tried is not tested"
        raise WorkError(message, hint=f"put scripts like 10-name.py into images/{target.stage}/smoke/")
    remove_left_over(podman, request.owner)
    cases: list[SmokeCase] = []
    with Container(podman, _settings(request, use_gpu)) as container:
        container.put(_files(request, use_gpu), {"/smoke/out": 0o777})
        for name in checks:
            misses = "-gpu-" in name and not use_gpu
            case = _without_gpu(name, request, podman) if misses else _run(container, name)
            cases.append(case)
            _tell(case, target.name, emit, log)
        artifacts = {name.removeprefix("out/"): data for name, data in container.get("/smoke/out").items()}
    gpu = Gpu(mode=request.gpu_mode, present=use_gpu)
    report = SmokeReport(
        target=target.name, image_id=request.image_id, suite_digest=request.suite.digest(target.row), gpu=gpu,
        host=_host(podman), started=started, cases=tuple(cases),
    )  # fmt: skip
    return Findings(report, artifacts)


# The inference image has no `sleep`: it holds Python and what a policy needs.
_WAIT = ["python3", "-c", "import signal; signal.pause()"]


def _settings(request: Request, use_gpu: bool) -> ContainerSettings:
    """What the container of a stage's checks is given."""
    stage, row = request.target.stage, request.target.row
    serves = stage == "inference"  # with as few rights as it will have on a robot
    looks = stage == "diag-tools"
    return ContainerSettings(
        image=request.image,
        command=["sleep", "infinity"] if not serves else _WAIT,
        shm_bytes=row.shm_bytes,
        devices=[GPU_DEVICE] if use_gpu else [],
        capabilities=TOOLS_CAPABILITIES if looks else [] if serves else ["SYS_PTRACE"],
        seccomp=TOOLS_SECCOMP if looks else "",
        read_only=serves,
        scratch=["/smoke"],
        owner=request.owner,
    )


def _files(request: Request, use_gpu: bool) -> dict[str, bytes]:
    row = request.target.row
    expected = {
        "target": request.target.name,
        "stage": request.target.stage,
        "row": _promised(row),
        "shm_bytes": row.shm_bytes,
        "gpu": request.gpu_mode,
        "gpu_present": use_gpu,
        "facts": _facts(row),
    }
    files = {f"/smoke/checks/{name}": data for name, data in request.suite.files.items()}
    files |= {f"/smoke/in/{name}": data for name, data in request.artifacts.items()}
    return {**files, "/smoke/expect.json": json.dumps(expected, indent=1).encode()}


def _promised(row: Row) -> dict[str, Any]:
    """The row's values. What an image may weigh is no promise about what is in it: another budget needs no new test."""
    return row.model_dump(mode="json", exclude={"budgets"})


def _facts(row: Row) -> dict[str, dict[str, Any]]:
    return expectations(row, facts.load())


def _without_gpu(name: str, request: Request, podman: Podman) -> SmokeCase:
    """A GPU check where there is no GPU: skipped and counted as that, or failed where one is required."""
    name = name.removesuffix(".py")
    if request.gpu_mode == "require":
        why = first_obstacle(request.target.row, podman.address, podman.info.version)
        message = f"a GPU is required and none is here: {why.what}: {why.remedy}"
        return SmokeCase(name=name, outcome="failed", message=message)
    message = "GPU checks are off" if request.gpu_mode == "off" else "no GPU here"
    return SmokeCase(name=name, outcome="skipped", message=message)


def _run(container: Container, name: str) -> SmokeCase:
    began = time.monotonic()
    environment = {"SMOKE_DIR": "/smoke", "PYTHONDONTWRITEBYTECODE": "1"}
    if name.startswith(site_checks.PREFIX):
        environment["PYTHONPATH"] = "/smoke/checks"  # smokelib is not beside it
    answer = container.run(["python3", f"/smoke/checks/{name}"], timeout=CHECK_TIMEOUT, environment=environment)
    seconds = time.monotonic() - began
    outcome, message = _judge(answer)
    output = answer.output[-_OUTPUT_KEPT:]
    return SmokeCase(name=name.removesuffix(".py"), outcome=outcome, seconds=seconds, message=message, output=output)


def _judge(answer: Answer) -> tuple[Outcome, str]:
    """What an exit code and the last line of the output mean."""
    lines = [line for line in answer.output.strip().splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if answer.timed_out:
        return "failed", f"took longer than {CHECK_TIMEOUT:.0f} s"
    if answer.exit_code == 0:
        return "passed", ""
    if answer.exit_code == _SKIPPED:
        return "skipped", last.removeprefix("skip:").strip() or "no reason given"
    return "failed", last or f"exit code {answer.exit_code} and not a word"


def _tell(case: SmokeCase, target: str, emit: Emit, log: TextIO) -> None:
    log.write(f"=== {case.name}: {case.outcome} ({case.seconds:.1f} s) {case.message}\n{case.output}\n")
    log.flush()
    data = {"name": case.name, "outcome": case.outcome, "seconds": case.seconds}
    emit(Event(Kind.SMOKE_CASE, target, "smoke", case.message, data))


def _host(podman: Podman) -> dict[str, str]:
    """Facts about the machine, for whoever reads the evidence later."""
    return {"kernel": platform.release(), "machine": platform.machine(), "podman": podman.info.version}


def is_sufficient(report: SmokeReport, suite_digest: str, *, wants_gpu: bool) -> bool:
    """Whether an earlier report of the same image says all that a run now would say.

    Args:
        report: the earlier report.
        suite_digest: of the suite and the row as they are now.
        wants_gpu: whether a run now would have to pass the GPU checks too.
    """
    return report.green and report.suite_digest == suite_digest and (report.gpu_green or not wants_gpu)
