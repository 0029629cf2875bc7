"""ONNX Runtime runs the exported policy on the GPU, not on the CPU in silence."""

import smokelib

if not (smokelib.OUT / "policy.onnx").is_file():
    by_hand = smokelib.expect()["target"] == "by hand"
    if by_hand:
        smokelib.skip("no policy was exported: in the image the checks before this one do that")
    smokelib.fail("there is no exported policy", "look at why the check onnx failed")

import onnxlib

difference = onnxlib.largest_difference(smokelib.OUT, "CUDAExecutionProvider")
smokelib.require(
    difference <= 1e-3, f"the GPU's actions differ by {difference} from torch's", "TF32 explains 1e-3, not more"
)
