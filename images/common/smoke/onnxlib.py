"""Run an exported policy with ONNX Runtime, on a provider that must really be used, and compare it with torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy
import onnxruntime
import smokelib

OBSERVATIONS = 10_000
TOLERANCE = 1e-5  # of continuous actions; discrete ones are equal


class Files(NamedTuple):
    """The names of a policy, of raw observations, and of the actions that torch gave for them."""

    model: str
    observations: str
    actions: str


#: What the train checks leave, and the inference checks find.
FILES = {
    "policy": Files("policy.onnx", "observations.npy", "actions.npy"),
    "discrete": Files("discrete.onnx", "discrete-observations.npy", "discrete-actions.npy"),
}


def largest_difference(folder: Path, provider: str, name: str = "policy") -> float:
    """Return how far the policy's actions are from torch's at most, over the stored observations.

    A provider that ONNX Runtime silently replaces by another ends the check as failed.
    """
    files = FILES[name]
    session = onnxruntime.InferenceSession(str(folder / files.model), providers=[provider])
    session.disable_fallback()
    used = session.get_providers()[0]
    todo = "its CUDA or cuDNN is not the image's; compare `onnxruntime:` with compat.yaml, or see the log above"
    smokelib.equal("provider", used, provider, todo)
    feed: dict[str, Any] = {"observation": numpy.load(folder / files.observations)}
    actions = session.run(["action"], feed)[0]
    wanted = numpy.load(folder / files.actions)
    smokelib.equal(
        "actions", (actions.shape, actions.dtype), (wanted.shape, wanted.dtype), "the files are not from one run"
    )
    return difference(actions, wanted)


def difference(actions: numpy.ndarray, wanted: numpy.ndarray) -> float:
    """Return how far actions are from torch's at most; for discrete ones, how many are others. Print it."""
    if wanted.dtype.kind == "i":
        others = int((actions != wanted).sum())
        print(f"{len(wanted)} actions, {others} other than torch's")
        return float(others)
    largest = float(abs(actions - wanted).max())
    print(f"{len(wanted)} actions, largest difference {largest:.2e}")
    return largest


def require_same(folder: Path, provider: str, name: str) -> None:
    """End as failed unless a policy acts as torch does: discrete actions equal, continuous ones within TOLERANCE."""
    found = largest_difference(folder, provider, name)
    require_small(found, folder, name, discrete=numpy.load(folder / FILES[name].actions).dtype.kind == "i")


def require_small(found: float, folder: Path, name: str, *, discrete: bool) -> None:
    """End as failed, saying what to do, if a difference that was found is more than rounding."""
    model = folder / FILES[name].model
    metadata = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).get_modelmeta()
    remedy = (
        "it was exported without VecNormalize's statistics; export the run's checkpoint with deploy/export_onnx.py, "
        "which folds them into the graph"
        if metadata.custom_metadata_map.get("buildkit.normalisation") != "folded"
        else "are VecNormalize's statistics in it those of this very policy? export the run's checkpoint as a whole "
        "with deploy/export_onnx.py; train and inference must come from one row"
    )
    what = f"{found:.0f} actions are others than torch's" if discrete else f"actions differ from torch's by {found:g}"
    smokelib.require(found <= (0 if discrete else TOLERANCE), f"{model.name}: {what}", remedy)
