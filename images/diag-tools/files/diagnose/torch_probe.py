"""Print what torch says of itself and of the GPUs, as one line of JSON.

A script of its own: importing torch and waking the driver may take long, crash or hang, and the page must not.
"""

from __future__ import annotations

import json
import re
import warnings
from typing import Any


def architectures(torch: Any) -> list[str]:
    """Return what the kernels are compiled for; without a GPU only the compiler's flags tell."""
    if listed := torch.cuda.get_arch_list():
        return list(listed)
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: "")() or ""
    return re.findall(r"(?:sm|compute)_[0-9]+[af]?", flags)


def devices(torch: Any) -> list[dict[str, Any]]:
    """Return name, compute capability, and memory in bytes of each GPU that torch sees."""
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        capability = f"{properties.major}.{properties.minor}"
        found.append({"name": properties.name, "capability": capability, "total": total, "free": free})
    return found


def main() -> None:
    """Print the answer; torch's own warnings say why a GPU is not available."""
    answer: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            import torch

            answer = {
                "version": torch.__version__, "cuda": torch.version.cuda, "threads": torch.get_num_threads(),
                "cudnn": torch.backends.cudnn.version() if torch.version.cuda else None,
                "architectures": architectures(torch), "available": torch.cuda.is_available(),
            }  # fmt: skip
            if answer["available"]:
                answer["devices"] = devices(torch)
            elif torch.version.cuda:
                torch.cuda.init()  # raises, and says why
        except Exception as error:  # noqa: BLE001  (whatever it is, it is the answer)
            answer["error"] = f"{type(error).__name__}: {error}"
    answer["warnings"] = [str(one.message) for one in caught]
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
