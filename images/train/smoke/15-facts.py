"""What is inside is what the facts say that is inside: cuDNN, GPU architectures, wheel tags, glibc and libstdc++."""

import os
import re

import smokelib
import torch
import wheellib

GLIBC = (os.confstr("CS_GNU_LIBC_VERSION") or "").replace("glibc ", "")
CXX = wheellib.newest([wheellib.system_library("libstdc++.so.6")], "GLIBCXX")
REMEDY = "the row's OS is too old for this wheel; `buildkit check` should have said so"
PYTHON = f"cp{smokelib.row()['python'].replace('.', '')}"
ONNXRUNTIME = "onnxruntime-gpu" if smokelib.is_cuda() else "onnxruntime"


def text(version: "tuple[int, ...]") -> str:
    """Return a version as text."""
    return ".".join(map(str, version))


def cudnn() -> str:
    """Return the cuDNN that torch uses, major.minor.patch; it answers without a GPU too."""
    packed = torch.backends.cudnn.version() or 0
    thousand = 10000 if packed >= 90000 else 1000  # since cuDNN 9 the minor version has two digits
    return f"{packed // thousand}.{packed % thousand // 100}.{packed % 100}"


def architectures() -> "list[str]":
    """Return what torch's kernels are compiled for, as the facts write it; without a GPU only the flags tell."""
    found = re.findall(r"(sm|compute)_([0-9]+)([0-9])", torch._C._cuda_getArchFlags() or "")
    for_later = {f"{major}.{minor}" for kind, major, minor in found if kind == "compute"}
    listed = dict.fromkeys(f"{major}.{minor}" for _, major, minor in found)
    return [f"{one}+PTX" if one in for_later else one for one in listed]


def asked_glibc(distribution: str) -> "tuple[int, ...]":
    """Return the glibc that a wheel needs, by its libraries' symbols and by the most modest of its tags."""
    promised = [wheellib.numbers(glibc) for glibc in map(wheellib.glibc_of, wheellib.tags(distribution)) if glibc]
    symbols = wheellib.newest(wheellib.libraries(distribution), "GLIBC") or (0,)
    return max(symbols, min(promised, default=(0,)))


def check_wheel(distribution: str) -> None:
    """End as failed unless a wheel is for this Python, and content with this glibc and libstdc++."""
    tags = wheellib.tags(distribution)
    print(f"{distribution}: {' '.join(tags)}")
    fits = any(re.match(rf"({PYTHON}|py3|cp3[0-9]*-abi3)-", tag) for tag in tags)
    smokelib.require(fits, f"the wheel of {distribution} is {tags}, not for {PYTHON}", "look at `python:` in the row")
    asked = asked_glibc(distribution)
    fact = f"{distribution.partition('-')[0]}_glibc"
    smokelib.confirm(fact, text(asked), lambda known: asked <= wheellib.numbers(known))
    smokelib.require(asked <= wheellib.numbers(GLIBC), f"{distribution} needs glibc {text(asked)}, not {GLIBC}", REMEDY)
    cxx = wheellib.newest(wheellib.libraries(distribution), "GLIBCXX") or (0,)
    print(f"{distribution}: GLIBCXX {text(cxx)}")
    smokelib.require(cxx <= CXX, f"{distribution} needs GLIBCXX {text(cxx)}, and the system has {text(CXX)}", REMEDY)


for wheel in ("torch", "numpy", "mujoco", "mujoco-core", ONNXRUNTIME):
    if smokelib.installed(wheel):
        check_wheel(wheel)
smokelib.confirm(
    "torch_default", torch.__version__.partition("+")[2], lambda known: torch.__version__.endswith(f"+{known}")
)
if smokelib.is_cuda():
    smokelib.confirm("cudnn", cudnn(), lambda known: wheellib.numbers(known)[:3] == wheellib.numbers(cudnn()))
    smokelib.confirm("architectures", " ".join(architectures()), lambda known: sorted(known) == sorted(architectures()))
    provider = [path for path in wheellib.libraries(ONNXRUNTIME) if path.name == "libonnxruntime_providers_cuda.so"]
    for library, fact in (("libcublas", "onnxruntime_cuda"), ("libcudnn", "onnxruntime_cudnn")):
        needed = wheellib.needed_major(provider[0], library)
        if needed:  # the newer releases can do without cuDNN
            smokelib.confirm(fact, needed, lambda known, needed=needed: known == needed)
