"""Run the exported policy with ONNX Runtime, on a provider that must really be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import onnxruntime
import smokelib


def largest_difference(folder: Path, provider: str) -> float:
    """Return how far the policy's actions are from torch's at most, over the stored observations.

    A provider that ONNX Runtime silently replaces by another ends the check as failed.
    """
    session = onnxruntime.InferenceSession(str(folder / "policy.onnx"), providers=[provider])
    session.disable_fallback()
    used = session.get_providers()[0]
    todo = "its CUDA or cuDNN is not the image's; compare `onnxruntime:` with compat.yaml, or see the log above"
    smokelib.equal("provider", used, provider, todo)
    feed: dict[str, Any] = {"observation": numpy.load(folder / "observations.npy")}
    actions = session.run(["action"], feed)[0]
    wanted = numpy.load(folder / "actions.npy")
    smokelib.equal(
        "actions", (actions.shape, actions.dtype), (wanted.shape, wanted.dtype), "the files are not from one run"
    )
    difference = float(abs(actions - wanted).max())
    print(f"{len(wanted)} actions, largest difference {difference:.2e}")
    return difference
