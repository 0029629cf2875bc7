"""Runs a stage's smoke checks inside a container of its image, one case a check."""

from __future__ import annotations

import json
import platform
import re
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
from imagebuild.run.evidence import Gpu, Outcome, SmokeCase, SmokeReport
from imagebuild.spec import facts
from imagebuild.spec.expected import expectations
from imagebuild.spec.models import Row

GPU_DEVICE = "nvidia.com/gpu=all"  # by CDI; `--gpus` is silently ignored before Podman 5
CHECK_TIMEOUT = 600.0  # seconds
_CHECK = re.compile(r"\d\d-[a-z0-9-]+\.py")
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
    """The checks of a stage and the modules that they share, by file name."""

    files: Mapping[str, bytes]

    @classmethod
    def load(cls, project: Path, stage: str) -> Suite:
        """Read `images/<stage>/smoke/` and `images/common/smoke/`."""
        folders = (project / "images" / "common" / "smoke", project / "images" / stage / "smoke")
        return cls({path.name: path.read_bytes() for folder in folders for path in sorted(folder.glob("*.py"))})

    def digest(self, row: Row) -> str:
        """Changes when a check does, or what row and facts promise: an earlier result then says nothing more."""
        files = {name: sha256(data) for name, data in sorted(self.files.items())}
        return sha256(json.dumps([files, row.model_dump(mode="json"), _facts(row)], sort_keys=True).encode())

    def checks(self, row: Row) -> list[str]:
        """The scripts to run on a row, in order: all but those about something that the row does not promise."""
        missing = [part for part, is_promised in _PROMISES.items() if not is_promised(row)]
        names = sorted(name for name in self.files if _CHECK.fullmatch(name))
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
    settings = ContainerSettings(
        image=request.image,
        command=["sleep", "infinity"] if target.stage != "inference" else _WAIT,
        shm_bytes=target.row.shm_bytes,
        devices=[GPU_DEVICE] if use_gpu else [],
        capabilities=["SYS_PTRACE"],
        owner=request.owner,
    )
    checks = request.suite.checks(target.row)
    if not checks:
        message = f"{target.stage} has no smoke checks, and an image that nothing tried is not tested"
        raise WorkError(message, hint=f"put scripts like 10-name.py into images/{target.stage}/smoke/")
    remove_left_over(podman, request.owner)
    cases: list[SmokeCase] = []
    with Container(podman, settings) as container:
        container.put(_files(request, use_gpu), {"/smoke/out": 0o777})
        for name in checks:
            case = _without_gpu(name, request.gpu_mode) if "-gpu-" in name and not use_gpu else _run(container, name)
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


def _files(request: Request, use_gpu: bool) -> dict[str, bytes]:
    row = request.target.row
    expected = {
        "target": request.target.name,
        "stage": request.target.stage,
        "row": row.model_dump(mode="json"),
        "shm_bytes": row.shm_bytes,
        "gpu": request.gpu_mode,
        "gpu_present": use_gpu,
        "facts": _facts(row),
    }
    files = {f"/smoke/checks/{name}": data for name, data in request.suite.files.items()}
    files |= {f"/smoke/in/{name}": data for name, data in request.artifacts.items()}
    return {**files, "/smoke/expect.json": json.dumps(expected, indent=1).encode()}


def _facts(row: Row) -> dict[str, dict[str, Any]]:
    return expectations(row, facts.load())


def _without_gpu(name: str, mode: str) -> SmokeCase:
    """A GPU check where there is no GPU: skipped and counted as that, or failed where one is required."""
    if mode == "require":
        message = "a GPU is required and none is here: no CDI specification names nvidia.com/gpu"
        hint = "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` makes one"
        return SmokeCase(name=name.removesuffix(".py"), outcome="failed", message=f"{message}; {hint}")
    message = "GPU checks are off" if mode == "off" else "no GPU here"
    return SmokeCase(name=name.removesuffix(".py"), outcome="skipped", message=message)


def _run(container: Container, name: str) -> SmokeCase:
    began = time.monotonic()
    environment = {"SMOKE_DIR": "/smoke", "PYTHONDONTWRITEBYTECODE": "1"}
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
