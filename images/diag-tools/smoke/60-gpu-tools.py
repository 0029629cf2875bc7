"""nvidia-smi lists the GPU; nvtop and dcgmi start and nsys profiles, where the row's repositories have them."""

import sys

import smokelib
import toollib

PROGRAM = "import torch; print(float((torch.ones(64, device='cuda') * 2).sum()))"

print(toollib.output_of("nvidia-smi", "-L"))
row = smokelib.row()
if not str(row["os"]).startswith("debian"):
    toollib.shows("nvtop", toollib.output_of("nvtop", "--version"), "nvtop")
if row["base"] == "bootstrap":
    print("a bootstrapped base has no repository of NVIDIA's: no nsys, no dcgmi")
else:
    toollib.shows("dcgmi", toollib.output_of("dcgmi", "--version"), "ersion")
    profile = ("nsys", "profile", "--trace=cuda", "--sample=none", "--force-overwrite=true", "--output=/tmp/smoke")
    toollib.shows("nsys", toollib.output_of(*profile, sys.executable, "-c", PROGRAM, timeout=300), "128.0")
