"""torch sees the GPU, and its wheel has code for it."""

import smokelib
import torch

HINTS = "see `buildkit doctor`: driver, CDI specification, and NVIDIA_VISIBLE_DEVICES of the container"

smokelib.require(torch.cuda.is_available(), "a GPU is there, but torch falls back to the CPU", HINTS)
name = torch.cuda.get_device_name(0)
major, minor = torch.cuda.get_device_capability(0)
architectures = torch.cuda.get_arch_list()
print(f"{name}, capability {major}.{minor}, wheel for {' '.join(architectures)}")


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
