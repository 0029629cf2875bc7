"""`buildkit diagnose` inside an image, on faked machines: each reason why a GPU is not used, each line's judgement."""

from __future__ import annotations

import errno
import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.projects import ROOT

FILES = ROOT / "images/diag-tools/files"
sys.path.insert(0, str(FILES))
gpu: Any = importlib.import_module("diagnose.gpu")
gpu_lines: Any = importlib.import_module("diagnose.gpu_lines")
inputs: Any = importlib.import_module("diagnose.inputs")
machine: Any = importlib.import_module("diagnose.machine")
page: Any = importlib.import_module("diagnose.main")
why: Any = importlib.import_module("diagnose.why")
sys.path.remove(str(FILES))

OPEN = gpu.Node(0o666, 0, 0, 0)
CLOSED = gpu.Node(0o660, 0, 44, errno.EACCES)
DEVICE = {"name": "H100", "capability": "9.0", "total": 80e9, "free": 79e9}
TORCH = {
    "version": "2.9.1+cu128", "cuda": "12.8", "cudnn": 91002, "threads": 4, "available": True, "devices": [DEVICE],
    "architectures": ["sm_80", "sm_90"], "warnings": [],
}  # fmt: skip
BLIND = TORCH | {"available": False, "devices": [], "error": "RuntimeError: No CUDA GPUs are available"}
NODES = {"/dev/nvidia0": OPEN, "/dev/nvidiactl": OPEN, "/dev/nvidia-uvm": OPEN}
GOOD = gpu.GpuFacts(
    is_wanted=True, cuda="12.8", minimum="525.60.13", cards=1, driver="570.124.06", nodes=NODES, library="570.124.06",
    user=(1000, 1000), environment={"NVIDIA_VISIBLE_DEVICES": "void"}, torch=TORCH,
)  # fmt: skip
# What torch says does not matter until every layer below it holds.
BAD = replace(GOOD, torch=BLIND)
ROW: dict[str, Any] = {
    "row": "cu128", "variant": "cu128", "cuda": "12.8", "torch": "2.9.1", "shm_size": "8g", "shm_bytes": 8 << 30,
    "epoch": "2026-11-30", "facts": {"driver": "525.60.13", "cudnn": "9.10.2.21"},
}  # fmt: skip


def with_torch(**said: Any) -> Any:
    return replace(GOOD, torch=BLIND | said)


@pytest.mark.parametrize(
    ("facts", "code", "words"),
    [
        (GOOD, "ok", "H100"),
        (replace(BAD, is_wanted=False), "no-gpu-wanted", "cpu row"),
        (replace(BAD, driver=None, cards=0, nodes={}), "no-gpu", "no NVIDIA GPU"),
        (replace(BAD, driver=None, nodes={}), "no-driver", "modprobe nvidia"),
        (replace(BAD, driver="470.256.02"), "driver-too-old", "470.256.02 is too old: CUDA 12.8 needs 525.60.13"),
        (replace(BAD, nodes={}), "no-device", "--device nvidia.com/gpu=all"),
        (replace(BAD, nodes={}, environment={"NVIDIA_VISIBLE_DEVICES": "none"}), "none-asked", "asks for no GPU"),
        (replace(BAD, nodes={"/dev/nvidia0": OPEN, "/dev/nvidiactl": OPEN}), "node-missing", "/dev/nvidia-uvm"),
        (replace(BAD, nodes=NODES | {"/dev/nvidia0": CLOSED}), "permissions", "keep-groups"),
        (replace(BAD, nodes=NODES | {"/dev/nvidia0": CLOSED}, selinux_enforcing=True), "permissions", "mode 0660"),
        (replace(BAD, nodes=NODES | {"/dev/nvidia0": replace(OPEN, refusal=errno.EACCES)}, selinux_enforcing=True,
                 selinux_label="system_u:system_r:container_t:s0:c1,c2"), "selinux", "label=disable"),
        (replace(BAD, nodes=NODES | {"/dev/nvidia0": replace(OPEN, refusal=errno.EACCES)}, selinux_enforcing=True,
                 selinux_label="system_u:system_r:spc_t:s0"), "permissions", "keep-groups"),
        (replace(BAD, nodes=NODES | {"/dev/nvidia0": replace(OPEN, refusal=errno.EPERM)}), "cgroup", "no-cgroups"),
        (replace(BAD, nodes=NODES | {"/dev/nvidia0": replace(OPEN, refusal=errno.EIO)}), "node-broken", "EIO"),
        (replace(BAD, library=None), "no-libcuda", "nvidia-ctk cdi generate"),
        (replace(BAD, library=None, environment={"NVIDIA_DRIVER_CAPABILITIES": "utility"}), "capabilities", "compute"),
        (replace(BAD, library="535.104.05"), "stale-libcuda", "535.104.05, and the kernel's driver is 570.124.06"),
        (replace(BAD, environment={"CUDA_VISIBLE_DEVICES": ""}), "hidden", "unset CUDA_VISIBLE_DEVICES"),
        (replace(BAD, environment={"CUDA_VISIBLE_DEVICES": "-1"}), "hidden", "hides every GPU"),
        (replace(BAD, environment={"CUDA_VISIBLE_DEVICES": "3"}), "hidden", "count from 0"),
        (replace(BAD, torch={"hangs": 90.0}), "torch-hangs", "the driver hangs"),
        (replace(BAD, torch={"error": "ImportError: libcudart.so"}), "no-torch", "libcudart.so"),
        (with_torch(version="2.9.1+cpu", cuda=None), "cpu-wheel", "2.9.1+cpu is a CPU build"),
        (replace(GOOD, torch=TORCH | {"devices": [DEVICE | {"name": "V100", "capability": "7.0"}]}), "architecture",
         "no code for V100"),
        (with_torch(error="RuntimeError: CUDA error: unknown error"), "torch-refuses", "modprobe -r nvidia_uvm"),
        (with_torch(error="RuntimeError: CUDA driver version is insufficient for CUDA runtime version"),
         "torch-refuses", "update the host's driver"),
        (with_torch(error="RuntimeError: gremlins"), "torch-refuses", "gremlins"),
        (with_torch(error="", warnings=["system not yet initialized"]), "torch-refuses", "fabric"),
    ],
)  # fmt: skip
def test_each_reason_has_its_own_diagnosis_and_remedy(facts: Any, code: str, words: str) -> None:
    found = why.diagnose(facts)
    assert found.code == code
    assert words in f"{found.what} {found.remedy}"
    assert found.is_fine == (code in {"ok", "no-gpu-wanted"})
    assert bool(found.remedy) != found.is_fine


def test_a_gpu_that_works_is_never_explained_away() -> None:
    """Forward-compatible libraries run under drivers that are older than the minimum."""
    assert why.diagnose(replace(GOOD, driver="470.256.02", library="570.124.06")).code == "ok"


@pytest.mark.parametrize(
    ("architecture", "capability", "fits"),
    [("sm_80", "8.6", True), ("sm_86", "8.0", False), ("sm_80", "9.0", False), ("compute_80", "9.0", True),
     ("compute_90", "8.0", False), ("sm_90a", "9.0", True), ("sm_120", "12.0", True)],
)  # fmt: skip
def test_code_runs_on_its_own_major_and_ptx_on_what_is_newer(architecture: str, capability: str, fits: bool) -> None:
    assert why.runs(architecture, capability) is fits


# --- the probes, on a faked machine ---------------------------------------------------------------


class Machine:
    """A folder that stands for a machine and the container on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.refusals: dict[str, int] = {}
        self.answers = {"nvidia-smi": inputs.Answer(0, "H100, 570.124.06, 1 MiB, 81559 MiB\n")}
        self.torch = inputs.Answer(0, json.dumps(TORCH))
        self.sizes = {"/dev/shm": (8 << 30, 8 << 30)}
        self.environment: dict[str, str] = {}
        self.writes({
            "/etc/os-release": 'NAME="x"\nPRETTY_NAME="Rocky Linux 8"\n',
            "/etc/passwd": "worker:*:1000:1000::/:/bin/sh\n",
            "/proc/1/comm": "tini\n", "/proc/sys/kernel/osrelease": "4.18.0\n",
            "/proc/meminfo": "MemAvailable: 1000000 kB\n",
            "/proc/self/status": "Uid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t44 \n"
                                 "Cpus_allowed_list:\t0-7\n",
            "/proc/self/limits": "Max open files   65536 65536 files\nMax locked memory   8388608 8388608 bytes\n",
            "/etc/resolv.conf": "nameserver 10.0.2.3\n",
            "/sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n", "/sys/fs/cgroup/memory.max": "max\n",
            "/sys/fs/cgroup/cpu.max": "max 100000\n", "/sys/fs/cgroup/pids.max": "2048\n",
        })  # fmt: skip

    def writes(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def has_gpu(self) -> None:
        card = "/sys/bus/pci/devices/0000:3b:00"
        self.writes({
            "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  R\n",
            f"{card}.0/vendor": "0x10de\n", f"{card}.0/class": "0x030200\n", f"{card}.0/numa_node": "1\n",
            f"{card}.1/vendor": "0x10de\n", f"{card}.1/class": "0x040300\n",  # its sound
            "/dev/nvidia0": "", "/dev/nvidiactl": "", "/dev/nvidia-uvm": "",
            "/usr/lib64/libcuda.so.1": "", "/usr/lib64/libcuda.so.570.124.06": "",
        })  # fmt: skip

    def inputs(self, **changes: Any) -> Any:
        def run(command: Sequence[str], _timeout: float) -> Any:
            return self.torch if command[0] == sys.executable else self.answers.get(command[0], inputs.Answer(127, ""))

        def space(path: Path) -> tuple[int, int]:
            return self.sizes.get("/" + str(path.relative_to(self.root)), (10**12, 10**12))

        def opens(path: Path) -> int:
            return self.refusals.get(path.name, 0)

        given = {"root": self.root, "environment": self.environment, "opens": opens, "space": space, "run": run,
                 "now": lambda: datetime(2026, 12, 1, tzinfo=UTC), "promised": ROW} | changes  # fmt: skip
        return inputs.Inputs(**given)

    def page(self, **changes: Any) -> Any:
        return page.examine(self.inputs(**changes))

    def line(self, name: str, **changes: Any) -> Any:
        return next(line for line in self.page(**changes).lines if line.name == name)


@pytest.fixture
def faked(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_with_a_gpu_is_read_whole(faked: Machine) -> None:
    faked.has_gpu()
    facts = gpu.probe(faked.inputs())
    assert (facts.cards, facts.driver, facts.library) == (1, "570.124.06", "570.124.06")
    assert set(facts.nodes) == set(NODES)
    assert facts.user == (1000, 1000, 44)
    assert why.diagnose(facts).code == "ok"
    text = faked.page().as_text()
    assert "GPU: torch 2.9.1+cu128 uses H100 under driver 570.124.06" in text
    assert "CUDA 12.8 needs 525.60.13: enough" in text
    assert "cuDNN 9.10.2: as the row says" in text
    assert faked.page().is_fine, text


def test_a_refused_node_is_seen_by_opening_it(faked: Machine) -> None:
    faked.has_gpu()
    faked.torch = inputs.Answer(0, json.dumps(BLIND))
    faked.refusals["nvidia-uvm"] = errno.EPERM
    assert faked.page().verdict.code == "cgroup"
    assert not faked.page().is_fine


@pytest.mark.parametrize(
    ("answer", "code"),
    [(inputs.Answer(inputs.TIMED_OUT, ""), "torch-hangs"), (inputs.Answer(-11, "", "Segmentation fault"), "no-torch")],
)
def test_a_torch_that_hangs_or_dies_does_not_take_the_page_with_it(faked: Machine, answer: Any, code: str) -> None:
    faked.has_gpu()
    faked.torch = answer
    assert faked.page().verdict.code == code
    assert faked.line("torch").state == "wrong"


def test_other_versions_than_the_rows_are_wrong(faked: Machine) -> None:
    faked.has_gpu()
    faked.torch = inputs.Answer(0, json.dumps(TORCH | {"version": "2.8.0+cu128", "cudnn": 8902}))
    line = faked.line("torch")
    assert line.state == "wrong"
    assert "the row has torch 2.9.1, cuDNN 9.10.2.21" in line.value


def test_memory_in_other_hands_is_told(faked: Machine) -> None:
    faked.has_gpu()
    faked.torch = inputs.Answer(0, json.dumps(TORCH | {"devices": [DEVICE | {"free": 10e9}]}))
    assert faked.line("device 0").state == "note"


@pytest.mark.parametrize(("size", "state"), [((64 << 20, 64 << 20), "wrong"), ((8 << 30, 1 << 20), "note")])
def test_shared_memory_is_measured_against_the_row(faked: Machine, size: tuple[int, int], state: str) -> None:
    faked.sizes["/dev/shm"] = size
    line = faked.line("/dev/shm")
    assert line.state == state
    assert state != "wrong" or "--shm-size=8g" in line.remedy


def test_limits_of_cgroup_v2(faked: Machine) -> None:
    faked.writes({"/sys/fs/cgroup/cpu.max": "150000 100000\n", "/sys/fs/cgroup/memory.max": "1000000000\n",
                  "/sys/fs/cgroup/memory.current": "950000000\n", "/sys/fs/cgroup/pids.max": "100\n"})  # fmt: skip
    assert faked.line("usable").value.startswith("1 (nproc says 8; affinity 0-7, quota 1.5 CPUs")
    assert faked.line("limit").state == "note"
    assert faked.line("limit").value.startswith("1.0 GB, 950 MB used")
    assert faked.line("processes").state == "note"
    threads = faked.line("threads")
    assert (threads.state, "OMP_NUM_THREADS=1" in threads.remedy) == ("note", True)


def test_limits_of_cgroup_v1_in_this_processs_own_place(faked: Machine) -> None:
    (faked.root / "sys/fs/cgroup/cgroup.controllers").unlink()
    faked.writes({
        "/proc/self/cgroup": "5:cpu,cpuacct:/run-7\n4:memory:/run-7\n3:pids:/\n",
        "/sys/fs/cgroup/cpu/run-7/cpu.cfs_quota_us": "200000\n",
        "/sys/fs/cgroup/cpu/run-7/cpu.cfs_period_us": "100000\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "2000000000\n", "/sys/fs/cgroup/pids/pids.max": "max\n",
    })  # fmt: skip
    assert "quota 2 CPUs" in faked.line("usable").value
    assert faked.line("limit").value.startswith("2.0 GB")
    assert faked.line("processes").value == "no limit"
    faked.writes({"/sys/fs/cgroup/memory/run-7/memory.limit_in_bytes": "9223372036854771712\n"})
    assert faked.line("limit").value.startswith("none")


def test_numa_nodes_and_where_the_gpu_is(faked: Machine) -> None:
    assert faked.line("NUMA").value == "one node"
    faked.has_gpu()
    faked.writes({f"/sys/devices/system/node/node{n}/cpulist": f"{4 * n}-{4 * n + 3}\n" for n in (0, 1)})
    line = faked.line("NUMA")
    assert line.value == "node 0: CPUs 0-3; node 1: CPUs 4-7"
    assert "node 1" in line.remedy


def test_what_is_unusual_is_told(faked: Machine) -> None:
    faked.writes({"/proc/1/comm": "python\n", "/proc/self/status": "Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t\n",
                  "/proc/self/limits": "Max open files   1024 1024 files\n"})  # fmt: skip
    faked.sizes["/workspace"] = (10**9, 10**6)
    faked.environment = {"HTTPS_PROXY": "http://me:hunter2@proxy:3128", "SSL_CERT_FILE": "/no/such.pem"}
    assert faked.line("PID 1").state == "note"
    assert faked.line("user").state == "note"
    assert faked.line("open files").state == "note"
    assert faked.line("/workspace").state == "note"
    assert faked.line("CA bundle").state == "wrong"
    assert faked.line("proxy").value == "https_proxy=http://****@proxy:3128"
    early = datetime(2001, 1, 1, tzinfo=UTC)
    assert faked.line("clock", now=lambda: early).state == "wrong"


def test_a_cpu_row_wants_no_gpu(faked: Machine) -> None:
    row: dict[str, Any] = {**ROW, "row": "cpu", "variant": "cpu", "cuda": None, "torch": "2.13.0", "facts": {}}
    faked.torch = inputs.Answer(
        0, json.dumps({"version": "2.13.0+cpu", "cuda": None, "architectures": [], "warnings": []})
    )
    found = json.loads(faked.page(promised=row).as_json())
    assert found["fine"], found
    assert found["verdict"] == {"code": "no-gpu-wanted", "what": "cpu row: no GPU wanted", "remedy": ""}


def test_the_real_calls_answer_here(tmp_path: Path) -> None:
    """The few calls that tests fake otherwise."""
    assert inputs._opens(tmp_path / "none") == errno.ENOENT
    assert inputs._opens(Path("/dev/null")) == 0
    assert inputs._space(tmp_path)[0] > 0
    assert inputs._run(["sh", "-c", "echo a; exit 3"], 10.0) == inputs.Answer(3, "a\n")
    assert inputs._run(["/no/such/program"], 10.0).code == 127
    assert inputs._run(["sleep", "60"], 0.1).code == inputs.TIMED_OUT


def test_the_torch_probe_answers_without_torch() -> None:
    probe = [sys.executable, "-I", "-S", str(FILES / "diagnose/torch_probe.py")]
    said = json.loads(subprocess.run(probe, capture_output=True, text=True, check=True).stdout)
    assert said["error"].startswith("ModuleNotFoundError")
