"""The policies that the train image exported give the actions that torch gave there, all 10,000 of them."""

import numpy
import onnxlib
import smokelib

for name, files in onnxlib.FILES.items():
    for file in files:
        smokelib.artifact(file)
    count = len(numpy.load(smokelib.IN / files.observations))
    smokelib.equal("observations", count, onnxlib.OBSERVATIONS, "smoke-test the train image of this row again")
    onnxlib.require_same(smokelib.IN, "CPUExecutionProvider", name)
