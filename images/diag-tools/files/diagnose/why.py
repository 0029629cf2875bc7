"""Why the GPU is not used: the first thing in the chain from the machine to torch that does not hold."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from dataclasses import dataclass

from diagnose.gpu import GpuFacts

_GENERATE = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
_ASK = (
    "start it with --device nvidia.com/gpu=all --security-opt label=disable, as buildkit run does; "
    "if that fails, `buildkit doctor` on the host says why"
)
# Words of the CUDA driver that mean something particular, and what to do then.
_SAYINGS = (
    ("driver version is insufficient", "update the host's driver, or choose a row with an older CUDA"),
    ("driver on your system is too old", "update the host's driver, or choose a row with an older CUDA"),
    ("forward compatibility", "take /usr/local/cuda/compat out of LD_LIBRARY_PATH: this GPU may not use it"),
    ("not yet initialized", "start the fabric manager on the host: systemctl start nvidia-fabricmanager"),
    ("out of memory", "another process holds the memory: `nvidia-smi` on the host lists them"),
    ("unknown error", "reload a module on the host: sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm"),
    ("no CUDA-capable device", "look at CUDA_VISIBLE_DEVICES and MIG: a GPU in MIG mode needs an instance"),
)  # fmt: skip


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong (or that nothing is), and one remedy; ``code`` is a short name that does not change."""

    code: str
    what: str
    remedy: str = ""

    @property
    def is_fine(self) -> bool:
        """Whether nothing is to be mended."""
        return self.code in {"ok", "no-gpu-wanted"}


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers that compare."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def diagnose(facts: GpuFacts) -> Diagnosis:
    """Return the first diagnosis that holds; the steps go from the machine to torch, which alone counts if it works."""
    if not facts.is_wanted:
        return Diagnosis("no-gpu-wanted", "cpu row: no GPU wanted")
    works = facts.torch.get("available") and not facts.torch.get("error")
    for step in (_architecture,) if works else _STEPS:
        if found := step(facts):
            return found
    return _fine(facts)


def _driver(facts: GpuFacts) -> Diagnosis | None:
    if facts.driver is None and not facts.cards and not facts.nodes:
        return Diagnosis("no-gpu", "this machine has no NVIDIA GPU", "run it on one that has, or use the cpu row")
    if facts.driver is None:
        what = f"the machine has {facts.cards or 'some'} NVIDIA GPUs, and no driver is loaded"
        return Diagnosis("no-driver", what, "install NVIDIA's driver on the host, then: sudo modprobe nvidia")
    if facts.minimum and numbers(facts.driver) < numbers(facts.minimum):
        what = f"driver {facts.driver} is too old: CUDA {facts.cuda} needs {facts.minimum} or newer"
        remedy = f"update the host's driver, or choose a row: buildkit suggest --driver {facts.driver}"
        return Diagnosis("driver-too-old", what, remedy)
    return None


def _nodes(facts: GpuFacts) -> Diagnosis | None:
    if not facts.cards_in_container:
        asked = facts.environment.get("NVIDIA_VISIBLE_DEVICES", "all")
        if asked in ("", "none"):
            what = f"NVIDIA_VISIBLE_DEVICES={asked!r} asks for no GPU"
            return Diagnosis("none-asked", what, f"leave the variable as the image has it, and {_ASK}")
        return Diagnosis("no-device", f"driver {facts.driver} is loaded, but this container got no GPU", _ASK)
    missing = [name for name in ("/dev/nvidiactl", "/dev/nvidia-uvm") if name not in facts.nodes]
    if missing:
        what = f"the GPU is here without {' and '.join(missing)}"
        return Diagnosis("node-missing", what, f"on the host: sudo nvidia-modprobe -u -c=0 && {_GENERATE}")
    return None


def _permissions(facts: GpuFacts) -> Diagnosis | None:
    refused = {name: node for name, node in facts.nodes.items() if node.refusal}
    if not refused:
        return None
    name, node = next(iter(refused.items()))
    owner, user = f"mode {node.mode:04o}, owner {node.uid}:{node.gid}", f"user {facts.user[0]}"
    if node.refusal == errno.EPERM:
        what = f"{name} is kept from this container by its device cgroup"
        remedy = "use CDI instead of NVIDIA's runtime hook (or its no-cgroups = true): "
        return Diagnosis("cgroup", what, remedy + _ASK)
    if node.refusal != errno.EACCES:
        what = f"{name} answers: {errno.errorcode.get(node.refusal, node.refusal)}"
        return Diagnosis("node-broken", what, "look at `dmesg | grep -i nvrm` on the host; reload the driver or reboot")
    if _may_open(facts) and facts.selinux_enforcing and "spc_t" not in facts.selinux_label:  # label=disable gives spc_t
        what = f"SELinux keeps {name} from this container ({facts.selinux_label or 'its label'})"
        remedy = "--security-opt label=disable, or on the host: sudo setsebool -P container_use_devices=true"
        return Diagnosis("selinux", what, remedy)
    remedy = "--group-add keep-groups (with crun), or NVreg_DeviceFileMode=0666 for the host's nvidia module"
    return Diagnosis("permissions", f"{user} may not open {name} ({owner})", remedy)


def _may_open(facts: GpuFacts) -> bool:
    """Say whether the permission bits let this user open every node."""
    user, groups = facts.user[0], facts.user[1:]

    def allowed(mode: int, uid: int, gid: int) -> bool:
        shift = 6 if uid == user else 3 if gid in groups else 0
        return (mode >> shift) & 0o6 == 0o6

    return all(allowed(node.mode, node.uid, node.gid) for node in facts.nodes.values())


def _libraries(facts: GpuFacts) -> Diagnosis | None:
    wanted = facts.environment.get("NVIDIA_DRIVER_CAPABILITIES", "all")
    if facts.library is None and not {"all", "compute"} & set(wanted.split(",")):
        what = f"NVIDIA_DRIVER_CAPABILITIES={wanted} leaves CUDA's library out"
        return Diagnosis(
            "capabilities", what, "let it name compute: -e NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics"
        )
    if facts.library is None:
        what = "the GPU is here, but the driver's libcuda.so is not: the CDI specification mounts none"
        return Diagnosis("no-libcuda", what, f"make the specification anew on the host: {_GENERATE}")
    if facts.library and facts.driver and numbers(facts.library) != numbers(facts.driver):
        what = f"libcuda is {facts.library}, and the kernel's driver is {facts.driver}"
        remedy = f"reboot the host if its driver was updated since it started; then {_GENERATE}"
        return Diagnosis("stale-libcuda", what, remedy)
    return None


def _variables(facts: GpuFacts) -> Diagnosis | None:
    visible = facts.environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        return Diagnosis("hidden", f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU", "unset CUDA_VISIBLE_DEVICES")
    first = (visible or "").split(",")[0].strip()
    if first.isdigit() and int(first) >= len(facts.cards_in_container):
        what = f"CUDA_VISIBLE_DEVICES={visible} names a GPU that is not here ({len(facts.cards_in_container)} are)"
        return Diagnosis("hidden", what, "unset CUDA_VISIBLE_DEVICES; in the container they count from 0")
    return None


def _wheel(facts: GpuFacts) -> Diagnosis | None:
    torch = facts.torch
    if "hangs" in torch:
        what = f"torch said nothing for {torch['hangs']:.0f} s: the driver hangs"
        return Diagnosis("torch-hangs", what, "look at `dmesg | grep -i xid` on the host; reset the GPU or reboot")
    if "version" not in torch:
        what = f"torch cannot be imported: {torch.get('error', 'no word')}"
        return Diagnosis("no-torch", what, "what was installed over the image's torch? start from the image again")
    if not torch.get("cuda"):
        what = f"torch {torch['version']} is a CPU build"
        return Diagnosis("cpu-wheel", what, "something replaced the row's wheel: pip list; start from the image again")
    return None


def _architecture(facts: GpuFacts) -> Diagnosis | None:
    built = list(facts.torch.get("architectures", []))
    for device in facts.torch.get("devices", []):
        if built and not any(runs(one, device["capability"]) for one in built):
            what = f"torch has no code for {device['name']} (capability {device['capability']}): {' '.join(built)}"
            remedy = f"choose a row for it: buildkit suggest --gpu {device['capability']}"
            return Diagnosis("architecture", what, remedy)
    return None


def runs(architecture: str, capability: str) -> bool:
    """Say whether code for ``sm_86`` or ``compute_90`` runs on a capability: same major and not newer, or older PTX."""
    kind, _, number = architecture.rstrip("af").partition("_")
    built, have = (int(number[:-1]), int(number[-1])), numbers(capability)
    return built <= have and (kind == "compute" or built[0] == have[0])


def _torch_says(facts: GpuFacts) -> Diagnosis:
    said = str(facts.torch.get("error") or " ".join(facts.torch.get("warnings", [])) or "not a word")
    known = (remedy for words, remedy in _SAYINGS if words.lower() in said.lower())
    remedy = next(known, "nothing that this page knows: read torch's words, and `dmesg | grep -i nvrm` on the host")
    return Diagnosis("torch-refuses", f"torch does not use the GPU: {said.strip().splitlines()[0]}", remedy)


def _fine(facts: GpuFacts) -> Diagnosis:
    names = [device["name"] for device in facts.torch["devices"]]
    return Diagnosis("ok", f"torch {facts.torch['version']} uses {', '.join(names)} under driver {facts.driver}")


_STEPS: tuple[Callable[[GpuFacts], Diagnosis | None], ...]
_STEPS = (_driver, _nodes, _permissions, _libraries, _variables, _wheel, _architecture, _torch_says)
