"""ONNX Runtime and NumPy are the row's, as in train."""

import onnxruntime
import smokelib

REMEDY = "the row and the image disagree: rebuild inference"
row = smokelib.row()
distribution = "onnxruntime-gpu" if smokelib.is_cuda() else "onnxruntime"
if row["onnxruntime"]:
    smokelib.release(distribution, smokelib.installed(distribution), row["onnxruntime"], REMEDY)
    smokelib.release("import onnxruntime", onnxruntime.__version__, row["onnxruntime"], REMEDY)
if row["numpy"]:
    smokelib.release("numpy", smokelib.installed("numpy"), row["numpy"], REMEDY)
providers = onnxruntime.get_available_providers()
print("providers", providers)
smokelib.require(
    not smokelib.is_cuda() or "CUDAExecutionProvider" in providers, "this ONNX Runtime has no CUDA provider", REMEDY
)
