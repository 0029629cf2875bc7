"""What the host's NVIDIA driver says of itself and of its GPUs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

from imagebuild.errors import WorkError

_HINT = "name them: --driver 535.104.05 --gpu A100"


@dataclass(frozen=True)
class HostGpus:
    """The host's driver version (one) and its GPU models."""

    drivers: tuple[str, ...]
    gpus: tuple[str, ...]


def this_hosts_gpus() -> HostGpus:
    """Ask nvidia-smi.

    Raises:
        WorkError: there is no nvidia-smi, or it does not reach a driver.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        raise WorkError("this host has no nvidia-smi, so its driver and GPUs are not known", hint=_HINT)
    command = [program, "--query-gpu=driver_version,name", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise WorkError(f"nvidia-smi failed: {said[-1] if said else done.returncode}", hint=_HINT)
    pairs = [line.split(", ", 1) for line in done.stdout.splitlines() if ", " in line]
    return HostGpus(tuple(dict.fromkeys(pair[0] for pair in pairs)), tuple(dict.fromkeys(pair[1] for pair in pairs)))
