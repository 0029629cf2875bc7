"""torch sees the GPU, and its wheel has code for it."""

import gpulib
import smokelib

name = gpulib.gpu()

import torch  # noqa: E402  its absence has a message of its own

major, minor = torch.cuda.get_device_capability(0)
architectures = torch.cuda.get_arch_list()
print(f"{torch.cuda.device_count()} GPUs, the first is {name}, capability {major}.{minor}")
print(f"torch {torch.__version__}, wheel for {' '.join(architectures)}")
free, total = torch.cuda.mem_get_info(0)
print(f"memory: {free / 1e9:.1f} GB of {total / 1e9:.1f} GB free")
if free < total / 2:
    print("other processes hold more than half of it: `nvidia-smi` on the host lists them")


def runs(architecture: str) -> bool:
    """Say whether code of one architecture runs here: same major and not newer (sm), or older PTX (compute)."""
    kind, _, number = architecture.partition("_")
    digits = number.rstrip("af")
    built = (int(digits[:-1]), int(digits[-1]))
    return built <= (major, minor) and (kind == "compute" or built[0] == major)


smokelib.require(
    any(map(runs, architectures)),
    f"no code for {name} (sm_{major}{minor}) in this wheel",
    "choose a row whose `variant:` covers this GPU",
)
