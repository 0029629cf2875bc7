"""The example project in the image, run as a user runs it, and what the train checks ask about its runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import smokelib

#: MuJoCo, many joints, continuous actions.
ENVIRONMENT = "HalfCheetah-v5"
EXAMPLE = Path("/opt/example")
RUNS = Path("/workspace/runs")


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a script of the example, in a process group of its own; its output can be read."""
    command = [sys.executable, str(EXAMPLE / script), *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/", start_new_session=True
    )


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for a script, and end as failed unless it exits with this code; return and print what it said."""
    output, _ = process.communicate(timeout=300)
    told = [line for line in output.splitlines() if not line.startswith(("|", "--", "=="))]  # no tables
    print(*told, sep="\n")
    name = str(process.args[1])  # type: ignore[index]
    todo = "what it said is above: does the example fit the row's versions?"
    smokelib.require(process.returncode == code, f"{name} ended with {process.returncode}, not {code}", todo)
    return output


def train(config: str, *arguments: object) -> subprocess.Popen[str]:
    """Start to train one of the example's configurations, or go on with it."""
    return start("train.py", "--config", EXAMPLE / "configs" / f"{config}.yaml", *arguments)


def wait_for_checkpoints(process: subprocess.Popen[str], count: int) -> None:
    """Read what train.py says until it has written so many checkpoints."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        count -= line.startswith("checkpoint:")
        if count == 0:
            return
    print(*said, sep="")
    smokelib.fail("train.py ended before it wrote its checkpoints", "what it said is above")


def checkpoints(config: str) -> list[Path]:
    """Return the folders of a run's checkpoints, oldest first."""
    return sorted((RUNS / config / "checkpoints").glob("step-*"))


def steps(checkpoint: Path) -> int:
    """Return how many steps a checkpoint has behind it."""
    return int(json.loads((checkpoint / "checkpoint.json").read_text(encoding="utf-8"))["steps"])


def newest(config: str) -> Path:
    """Return the last checkpoint of a run that an earlier check trained, or end as failed."""
    found = checkpoints(config)
    smokelib.require(found, f"there is no run of {config}", "look at why the check that trains it failed")
    return found[-1]


def statistics(checkpoint: Path) -> Any:
    """Return the VecNormalize of a checkpoint, read as Stable-Baselines3 wrote it."""
    import pickle

    with (checkpoint / "vecnormalize.pkl").open("rb") as file:
        return pickle.load(file)


def require_trained(before: Any, after: Any) -> None:
    """End as failed unless every parameter that is trained changed, and all are finite."""
    weights = {name: value for name, value in before.policy.named_parameters() if value.requires_grad}
    trained = dict(after.policy.named_parameters())
    same = [name for name, value in weights.items() if value.equal(trained[name])]
    broken = [name for name, value in trained.items() if not value.isfinite().all()]
    print(f"{len(weights) - len(same)} of {len(weights)} parameters changed")
    smokelib.require(not same, f"training left {same} as they were", "torch's optimiser does not work in this image")
    smokelib.require(not broken, f"parameters are not finite: {broken}", "torch's arithmetic does not work here")
