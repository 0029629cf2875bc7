"""ONNX Runtime runs the exported policy on the GPU, not on the CPU in silence."""

import onnxlib
import smokelib

difference = onnxlib.largest_difference(smokelib.OUT, "CUDAExecutionProvider")
smokelib.require(
    difference <= 1e-3, f"the GPU's actions differ by {difference} from torch's", "TF32 explains 1e-3, not more"
)
