"""The policy that the train image exported gives the actions that torch gave there."""

import onnxlib
import smokelib

TOLERANCE = 1e-5

for name in ("policy.onnx", "observations.npy", "actions.npy"):
    smokelib.artifact(name)
difference = onnxlib.largest_difference(smokelib.IN, "CPUExecutionProvider")
smokelib.require(
    difference <= TOLERANCE,
    f"actions differ from torch's by {difference}",
    "was the normalisation folded into the graph? train and inference must come from the same row",
)
