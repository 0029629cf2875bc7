"""Nothing is in the image that a policy does not need: no torch, no pip, no compiler, no package manager, no shell."""

import importlib.util
import os
import shutil
import stat
from importlib import metadata
from pathlib import Path

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
    "onnxruntime.transformers",
    "onnxruntime.quantization",
    "google.protobuf",
    "sympy",
    "numpy.distutils",
    "numpy.f2py",
    "jupyterlab",
)
PROGRAMS = ["pip", "pip3", "uv", "gcc", "cc", "g++", "clang", "make", "nvcc", "ld", "gdb", "strace"]
#: Files that only who builds or tests software reads.
OF_DEVELOPERS = {".a", ".c", ".cpp", ".h", ".hpp", ".o", ".pxd", ".pyx", ".pyi"}
FOLDERS_OF_DEVELOPERS = {"test", "tests", "testing", "include"}
#: All that one can start.
EXPECTED = {"policy-server", "python", "python3", "tini"}
NOT_OF_THE_IMAGE = ("/dev", "/proc", "/run", "/smoke", "/sys", "/tmp", "/var/tmp")
REMEDY = "inference is derived by images/inference/files/slim.py; let it leave them out"


def is_there(module: str) -> bool:
    """Say whether a module could be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def files() -> "dict[str, os.stat_result]":
    """Return every file and folder of the image that is no link."""
    found = {}
    for parent, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if os.path.join(parent, name) not in NOT_OF_THE_IMAGE]
        for name in (*folders, *names):
            path = os.path.join(parent, name)
            state = os.lstat(path)
            if not stat.S_ISLNK(state.st_mode):
                found[path] = state
    return found


def none_of(paths: "list[str]", what: str) -> None:
    """End as failed if there are any."""
    smokelib.require(not paths, f"the image has {len(paths)} {what}, such as {', '.join(sorted(paths)[:3])}", REMEDY)


def check_files() -> None:
    """Look at every file of an image that is ours from the ground up."""
    found = files()
    print(f"{len(found)} files and folders, {sum(state.st_size for state in found.values()) / 1e6:.0f} MB")
    none_of([path for path, state in found.items() if state.st_mode & (stat.S_ISUID | stat.S_ISGID)], "setuid files")
    none_of([path for path, state in found.items() if state.st_mode & stat.S_IWOTH], "files that anybody may write")
    none_of([path for path in found if Path(path).suffix in OF_DEVELOPERS], "files for compilers")
    folders = [
        path for path in found if Path(path).name in FOLDERS_OF_DEVELOPERS and ".dist-info/licenses/" not in path
    ]
    none_of(folders, "folders of tests or headers")
    compiled = [Path(path) for path in found if path.endswith(".pyc")]
    sources = (path.parent.parent / f"{path.name.split('.')[0]}.py" for path in compiled)
    none_of([str(path) for path in sources if not path.exists()], "compiled modules without their source")
    search = [Path(folder) for folder in os.environ["PATH"].split(":") if os.path.isdir(folder)]
    programs = {path.name for folder in search for path in folder.iterdir() if os.access(path, os.X_OK)}
    extra = [name for name in programs - EXPECTED if not name.startswith("python3.")]
    none_of(extra, "programs that nothing needs")


modules = [name for name in MODULES if is_there(name)]
smokelib.require(not modules, f"the image has the modules {modules}", REMEDY)
if smokelib.row().get("inference_base"):  # an image of NVIDIA's has its own package manager and shell
    programs = [path for name in PROGRAMS if (path := shutil.which(name))]
    smokelib.require(not programs, f"the image has the programs {programs}", REMEDY)
else:
    check_files()
print(", ".join(sorted(f"{found.name} {found.version}" for found in metadata.distributions())))
