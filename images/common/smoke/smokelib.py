"""What the smoke checks share: the expectations of the run, and three ways to end.

A check is a script. It returns (exit 0, passed), calls ``skip`` (77), or ``fail`` (1), which prints one line that says
what is wrong and what to do. It runs inside the image that it checks, with whatever Python that image has. Those about
GPUs also run by hand, on any machine with a GPU and torch: there is no row then, and what torch says stands for it.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

SMOKE_DIR = Path(os.environ.get("SMOKE_DIR", "/smoke"))
#: Artifacts that the runner keeps, and hands to the checks of the images that come after.
OUT = SMOKE_DIR / "out"
#: Artifacts of the image that this one comes from.
IN = SMOKE_DIR / "in"


def expect() -> dict[str, Any]:
    """Return what the runner promised this image: target, stage, row, shm_bytes, gpu, gpu_present, facts."""
    try:
        expected: dict[str, Any] = json.loads((SMOKE_DIR / "expect.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return _by_hand()
    return expected


@functools.lru_cache(maxsize=1)  # functools.cache is newer than Python 3.8
def _by_hand() -> dict[str, Any]:
    """Return the expectations of a run without a runner: a GPU is here, and torch's own build is the row."""
    import torch

    print("no expectations: run by hand")
    variant = "cpu" if torch.version.cuda is None else f"cu{torch.version.cuda.replace('.', '')}"
    row = {"name": "by hand", "variant": variant, "torch": torch.__version__.partition("+")[0]}
    return {"target": "by hand", "stage": "train", "row": row, "gpu": "require", "gpu_present": True, "facts": {}}


def row() -> dict[str, Any]:
    """Return the row of the matrix, each value as the text in the file."""
    values: dict[str, Any] = expect()["row"]
    return values


def is_cuda() -> bool:
    """Say whether the row is for a GPU."""
    return str(row()["variant"]) != "cpu"


def cuda() -> str | None:
    """Return the CUDA release of the row's wheels ("11.8"), or None."""
    variant = str(row()["variant"])
    return f"{variant[2:-1]}.{variant[-1]}" if variant != "cpu" else None


def fail(what: str, todo: str) -> NoReturn:
    """End as failed."""
    print(f"{what}: {todo}", file=sys.stderr)
    raise SystemExit(1)


def skip(reason: str) -> NoReturn:
    """End as skipped."""
    print(f"skip: {reason}")
    raise SystemExit(77)


def require(condition: object, what: str, todo: str) -> None:
    """End as failed unless ``condition`` holds."""
    if not condition:
        fail(what, todo)


def equal(name: str, actual: object, wanted: object, todo: str) -> None:
    """End as failed unless the two are equal; print both either way."""
    print(f"{name}: {actual}")
    require(actual == wanted, f"{name} is {actual}, not {wanted}", todo)


def release(name: str, actual: object, wanted: str, todo: str) -> None:
    """End as failed unless ``actual`` is the wanted release, or one of its line where two numbers name a line."""
    print(f"{name}: {actual}")
    line = f"{wanted}." if wanted.count(".") == 1 else None
    belongs = actual == wanted or (line is not None and str(actual).startswith(line))
    require(belongs, f"{name} is {actual}, not {wanted}", todo)


def fact(name: str) -> Any:
    """Return what the facts say of this image, or None where they do not know."""
    known = expect()["facts"].get(name)
    return known["value"] if known else None


def confirm(name: str, found: str, holds: Callable[[Any], bool]) -> None:
    """End as failed, naming the fact, unless what was found is in keeping with what the facts say; print both."""
    known = expect()["facts"].get(name)
    print(f"{name}: found {found}, the facts say {known['value'] if known else 'nothing'}")
    if known and not holds(known["value"]):
        fail(
            f"{name} is {found} in this image, and the fact `{known['fact']}` says {known['value']}",
            f"that fact is wrong: correct imagebuild/spec/compat.yaml (its source was: {known['source']})",
        )


def installed(distribution: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def artifact(name: str) -> Path:
    """Return the path of an artifact that an earlier image left, or end as failed."""
    path = IN / name
    require(
        path.is_file(), f"there is no {path}", "smoke-test the train image of this row first; it exports the policy"
    )
    return path
