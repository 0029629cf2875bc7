"""What is installed is what the row of the matrix says, torch's build included."""

import re
import shutil
import subprocess

import smokelib

REMEDY = "the row and the image disagree: rebuild, and look at requirements.txt in the build log"
DISTRIBUTIONS = {
    "sb3": "stable-baselines3", "sb3_contrib": "sb3-contrib", "gymnasium": "gymnasium", "mujoco": "mujoco",
    "numpy": "numpy", "onnx": "onnx", "torchvision": "torchvision", "ray": "ray",
    "onnxruntime": "onnxruntime-gpu" if smokelib.is_cuda() else "onnxruntime",
}  # fmt: skip

row = smokelib.row()
for field, distribution in DISTRIBUTIONS.items():
    if row.get(field):
        found = smokelib.installed(distribution)
        smokelib.release(distribution, found.split("+")[0] if found else None, row[field], REMEDY)

if "-devel" in str(row["base"]):  # for custom operators
    smokelib.require(
        shutil.which("nvcc"), "there is no nvcc", "a devel base has it; is its /usr/local/cuda/bin in PATH?"
    )
    said = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    release = re.search(r"release ([0-9.]+)", said)
    smokelib.equal("nvcc", release[1] if release else said, smokelib.cuda(), "another toolkit is first in PATH")

import torch  # noqa: E402  the cheap answers come first

smokelib.release("torch", torch.__version__.split("+")[0], row["torch"], REMEDY)
smokelib.equal(
    "torch's build",
    torch.__version__,
    f"{row['torch']}+{row['variant']}",
    "the wheel is of another build; look at `wheels:` in matrix.yaml",
)
smokelib.equal(
    "torch.version.cuda",
    torch.version.cuda,
    smokelib.cuda(),
    "the wheel is of another build; look at `variant:` in matrix.yaml",
)
smokelib.require(torch.backends.mkldnn.is_available(), "torch has no oneDNN", "this is no release wheel")
if smokelib.is_cuda():
    smokelib.require(torch.backends.cudnn.version() or not torch.cuda.is_available(), "torch finds no cuDNN", REMEDY)
