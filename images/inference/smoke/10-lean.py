"""Nothing is in the image that a policy does not need: no torch, no pip, no compiler, no package manager, no shell."""

import importlib.util
import shutil
from importlib import metadata

import smokelib

MODULES = (
    "torch",
    "stable_baselines3",
    "gymnasium",
    "mujoco",
    "pandas",
    "matplotlib",
    "pip",
    "setuptools",
    "ensurepip",
    "onnx",
    "jupyterlab",
)
PROGRAMS = ["pip", "pip3", "uv", "gcc", "cc", "g++", "clang", "make", "nvcc", "ld", "gdb", "strace"]
if not smokelib.row().get("inference_base"):  # an image of NVIDIA's has its own package manager and shell
    PROGRAMS += ["apt", "apt-get", "dpkg", "dnf", "rpm", "perl", "sh", "bash"]

modules = [name for name in MODULES if importlib.util.find_spec(name)]
programs = [path for name in PROGRAMS if (path := shutil.which(name))]
todo = "inference is derived by images/inference/files/slim.py; let it leave them out"
smokelib.require(not modules, f"the image has the modules {modules}", todo)
smokelib.require(not programs, f"the image has the programs {programs}", todo)
print(", ".join(sorted(f"{found.name} {found.version}" for found in metadata.distributions())))
