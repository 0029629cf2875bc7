"""What is known of the GPU from inside a container: driver, device nodes, libraries, variables, torch."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose.inputs import TIMED_OUT, Inputs

TORCH_TIMEOUT = 90.0  # seconds; a first `import torch` from a slow disk takes half of it
SMI_TIMEOUT = 20.0  # seconds
_NVIDIA = "0x10de"  # the vendor's number on the PCI bus
_KERNEL_MODULE = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")
_LIBRARY_FOLDERS = (
    "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib", "/usr/lib/wsl/lib",
)  # fmt: skip
_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")


@dataclass(frozen=True)
class Node:
    """A device node: its permission bits and owners, and the errno with which it refuses to be opened (0: it opens)."""

    mode: int
    uid: int
    gid: int
    refusal: int


@dataclass(frozen=True)
class GpuFacts:
    """Everything that the diagnosis goes by.

    ``driver`` is the kernel's NVIDIA driver, ``library`` the version of libcuda ("" where its name has none, None where
    there is none), ``cards`` how many NVIDIA GPUs are on the PCI bus, ``torch`` what torch_probe.py printed.
    """

    is_wanted: bool
    cuda: str | None = None
    minimum: str | None = None
    cards: int = 0
    driver: str | None = None
    nodes: Mapping[str, Node] = field(default_factory=dict)
    library: str | None = None
    selinux_enforcing: bool = False
    selinux_label: str = ""
    user: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    torch: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cards_in_container(self) -> list[str]:
        """The nodes of GPUs themselves, /dev/nvidia0 and so on."""
        return [name for name in self.nodes if re.fullmatch(r"/dev/nvidia[0-9]+", name)]


def probe(inputs: Inputs) -> GpuFacts:
    """Look at everything, with torch in a process of its own."""
    promised = inputs.promised
    found = _KERNEL_MODULE.search(inputs.text("/proc/driver/nvidia/version"))
    return GpuFacts(
        is_wanted=promised.get("variant") != "cpu", cuda=promised.get("cuda"), minimum=inputs.fact("driver"),
        cards=_cards(inputs), driver=found[1] if found else None, nodes=_nodes(inputs), library=_library(inputs),
        selinux_enforcing=inputs.text("/sys/fs/selinux/enforce") == "1",
        selinux_label=inputs.text("/proc/self/attr/current"), user=_user(inputs), environment=inputs.environment,
        torch=_torch(inputs),
    )  # fmt: skip


def smi(inputs: Inputs) -> list[str]:
    """Return what nvidia-smi lists: name, driver, memory in use and in all, a line a GPU."""
    query = "--query-gpu=name,driver_version,memory.used,memory.total"
    answer = inputs.run(["nvidia-smi", query, "--format=csv,noheader"], SMI_TIMEOUT)
    return answer.out.strip().splitlines() if answer.code == 0 else []


def _cards(inputs: Inputs) -> int:
    """Count NVIDIA's display controllers (class 03) on the PCI bus; the container sees the host's."""
    found = inputs.at("/sys/bus/pci/devices").glob("*/vendor")
    places = [f"/sys/bus/pci/devices/{path.parent.name}" for path in found]
    return sum(
        inputs.text(f"{place}/vendor") == _NVIDIA and inputs.text(f"{place}/class").startswith("0x03")
        for place in places
    )


def _nodes(inputs: Inputs) -> dict[str, Node]:
    cards = sorted(path.name for path in inputs.at("/dev").glob("nvidia[0-9]*"))
    nodes = {}
    for name in (*(f"/dev/{card}" for card in cards), *_NODES):
        try:
            state = inputs.at(name).stat()
        except OSError:
            continue
        nodes[name] = Node(state.st_mode & 0o777, state.st_uid, state.st_gid, inputs.opens(inputs.at(name)))
    return nodes


def _library(inputs: Inputs) -> str | None:
    """Return the version in the name of the driver's libcuda, which is the driver's own."""
    named = filter(None, inputs.environment.get("LD_LIBRARY_PATH", "").split(":"))
    found = [path for folder in (*named, *_LIBRARY_FOLDERS) for path in inputs.at(folder).glob("libcuda.so.*")]
    versions = [path.name[len("libcuda.so.") :] for path in found]
    return next((version for version in versions if "." in version), "" if versions else None)


def _user(inputs: Inputs) -> tuple[int, ...]:
    """Return the effective user's number, then the numbers of all groups."""
    status = dict(re.findall(r"^(Uid|Gid|Groups):[ \t]*(.*)$", inputs.text("/proc/self/status"), re.MULTILINE))
    uid, gid = (status.get(name, "0 0").split()[1] for name in ("Uid", "Gid"))
    return (int(uid), int(gid), *(int(group) for group in status.get("Groups", "").split()))


def _torch(inputs: Inputs) -> Mapping[str, Any]:
    """Return what torch says, ``error`` where it did not say all, ``hangs`` where it said nothing in time."""
    answer = inputs.run([sys.executable, str(Path(__file__).with_name("torch_probe.py"))], TORCH_TIMEOUT)
    if answer.code == TIMED_OUT:
        return {"hangs": TORCH_TIMEOUT}
    try:
        said: Mapping[str, Any] = json.loads(answer.out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = answer.err.strip().splitlines()[-1:] or [f"exit code {answer.code}"]
        return {"error": f"torch died: {last[0]}"}
    return said
