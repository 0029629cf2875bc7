"""The container and the machine under it: system, memory, CPUs, limits, disk, network, clock."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import PurePosixPath

from diagnose.inputs import Inputs, Line

_UNLIMITED = 1 << 60  # bytes; cgroup v1 writes "no limit" as a number about that large
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")
_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def lines(inputs: Inputs, torch_threads: int | None = None) -> Iterator[Line]:
    """Yield everything but the GPU; ``torch_threads`` is how many torch would compute with."""
    yield from _system(inputs)
    yield from _memory(inputs)
    yield from _cpus(inputs, torch_threads)
    yield from _limits(inputs)
    yield from _disks(inputs)
    yield from _network(inputs)
    yield _clock(inputs)


def size(count: float) -> str:
    """Write a number of bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


# --- system ---------------------------------------------------------------------------------------


def _system(inputs: Inputs) -> Iterator[Line]:
    named = re.search(r'^PRETTY_NAME="?([^"\n]*)', inputs.text("/etc/os-release"), re.MULTILINE)
    kernel, glibc = inputs.text("/proc/sys/kernel/osrelease"), os.confstr("CS_GNU_LIBC_VERSION")
    yield Line("system", "row", f"{inputs.promised.get('row', '?')} ({inputs.promised.get('variant', '?')})")
    yield Line("system", "OS", f"{named[1] if named else '?'}, kernel {kernel}, {glibc}")
    status = inputs.text("/proc/self/status")
    user = re.search(r"^Uid:\s+\d+\s+(\d+)", status, re.MULTILINE)
    uid = int(user[1]) if user else -1
    name = re.search(rf"^([^:]+):[^:]*:{uid}:", inputs.text("/etc/passwd"), re.MULTILINE)
    remedy = "" if uid else "the image's own user is worker (1000): leave --user 0 away"
    yield Line("system", "user", f"{name[1] if name else '?'} ({uid})", "ok" if uid else "note", remedy)
    first = inputs.text("/proc/1/comm")
    is_init = first in ("tini", "catatonit", "docker-init", "podman-init")
    remedy = "" if is_init else "start it with the image's own entrypoint, or --init: nobody reaps orphans now"
    yield Line("system", "PID 1", first or "?", "ok" if is_init else "note", remedy)


# --- memory ---------------------------------------------------------------------------------------


def _memory(inputs: Inputs) -> Iterator[Line]:
    total, free = inputs.space(inputs.at("/dev/shm"))
    promised = int(inputs.promised.get("shm_bytes", 0))
    said = f"{size(total)}, {size(total - free)} used"
    if total < promised:
        remedy = (
            f"--shm-size={inputs.promised['shm_size']} (buildkit run sets it): DataLoader and SubprocVecEnv need it"
        )
        yield Line("memory", "/dev/shm", f"{said}; the row promises {size(promised)}", "wrong", remedy)
    elif total and free / total < 0.1:
        yield Line("memory", "/dev/shm", said, "note", "nearly full: `ls -l /dev/shm`; a dead run leaves its segments")
    else:
        yield Line("memory", "/dev/shm", said)
    found = re.search(r"^MemAvailable:\s+(\d+)", inputs.text("/proc/meminfo"), re.MULTILINE)
    machine = f"{size(int(found[1]) * 1024)} available on the machine" if found else "?"
    limit, used = _cgroup_number(inputs, "memory"), _cgroup_number(inputs, "memory-used")
    if limit is None:
        yield Line("memory", "limit", f"none; {machine}")
        return
    full = used is not None and used > 0.9 * limit
    remedy = "nearly at the limit: the kernel kills what comes next; raise --memory" if full else ""
    said = f"{size(limit)}, {size(used or 0)} used; {machine}"
    yield Line("memory", "limit", said, "note" if full else "ok", remedy)


# For cgroup v2 a file; for v1 a controller and a file of it.
_CGROUP_FILES = {
    "memory": ("memory.max", "memory", "memory.limit_in_bytes"),
    "memory-used": ("memory.current", "memory", "memory.usage_in_bytes"),
    "pids": ("pids.max", "pids", "pids.max"),
}


def _cgroup_number(inputs: Inputs, name: str) -> int | None:
    """Return a limit of this container's cgroup, or None where there is none."""
    unified, controller, file = _CGROUP_FILES[name]
    text = _cgroup_text(inputs, controller, unified, file)
    return int(text) if text.isdigit() and int(text) < _UNLIMITED else None


def _cgroup_text(inputs: Inputs, controller: str, unified: str, file: str) -> str:
    """Read a file of this container's cgroup: v2, or v1 in this process's own place or at the controller's top."""
    if inputs.text("/sys/fs/cgroup/cgroup.controllers"):
        return inputs.text(f"/sys/fs/cgroup/{unified}")
    own = re.search(rf"^\d+:(?:[^:]*,)?{controller}(?:,[^:]*)?:(.*)$", inputs.text("/proc/self/cgroup"), re.MULTILINE)
    place = PurePosixPath(f"/sys/fs/cgroup/{controller}") / (own[1].lstrip("/") if own else "")
    return inputs.text(str(place / file)) or inputs.text(f"/sys/fs/cgroup/{controller}/{file}")


# --- CPUs -----------------------------------------------------------------------------------------


def _cpus(inputs: Inputs, torch_threads: int | None) -> Iterator[Line]:
    allowed = re.search(r"^Cpus_allowed_list:\s+(\S+)", inputs.text("/proc/self/status"), re.MULTILINE)
    affinity, quota = listed(allowed[1] if allowed else ""), _quota(inputs)
    usable = max(1, math.floor(min(affinity or 1, quota or math.inf)))
    limits = f"affinity {allowed[1] if allowed else '?'}, quota {f'{quota:g} CPUs' if quota else 'none'}"
    yield Line("CPUs", "usable", f"{usable} (nproc says {affinity}; {limits})")
    yield from _threads(inputs, torch_threads, usable)
    workers = "1 worker" if usable <= 2 else f"up to {usable - 1} workers, each"
    yield Line("CPUs", "SubprocVecEnv", f"{workers} with OMP_NUM_THREADS=1, and one CPU for the learner")
    nodes = sorted(inputs.at("/sys/devices/system/node").glob("node[0-9]*"))
    if len(nodes) > 1:
        where = {path.name[4:]: inputs.text(f"/sys/devices/system/node/{path.name}/cpulist") for path in nodes}
        said = "; ".join(f"node {node}: CPUs {cpus}" for node, cpus in where.items())
        near = _gpu_nodes(inputs)
        remedy = f"the GPUs are at node {', '.join(near)}: numactl or --cpuset-cpus keeps the run there" if near else ""
        yield Line("CPUs", "NUMA", said, "note" if near else "ok", remedy)
    else:
        yield Line("CPUs", "NUMA", "one node")


def _threads(inputs: Inputs, torch_threads: int | None, usable: int) -> Iterator[Line]:
    asked = inputs.environment.get("OMP_NUM_THREADS")
    said = f"OMP_NUM_THREADS {asked or 'is not set'}, torch computes with {torch_threads or '?'}"
    if torch_threads and torch_threads > usable:
        remedy = f"more threads than CPUs wait for each other: export OMP_NUM_THREADS={usable}"
        yield Line("CPUs", "threads", said, "note", remedy)
    else:
        yield Line("CPUs", "threads", said)


def _quota(inputs: Inputs) -> float | None:
    """Return how many CPUs' worth of time the cgroup grants, or None where it does not limit it."""
    if inputs.text("/sys/fs/cgroup/cgroup.controllers"):
        quota, _, period = inputs.text("/sys/fs/cgroup/cpu.max").partition(" ")
    else:
        quota, period = (_cgroup_text(inputs, "cpu", "", f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def listed(cpus: str) -> int:
    """Count the CPUs of a list like ``0-3,8``."""
    spans = [part.partition("-") for part in cpus.split(",") if part]
    return sum(int(last or first) - int(first) + 1 for first, _, last in spans)


def _gpu_nodes(inputs: Inputs) -> list[str]:
    """Return the NUMA nodes that NVIDIA's cards are at."""
    places = [f"/sys/bus/pci/devices/{path.name}" for path in inputs.at("/sys/bus/pci/devices").glob("*")]
    cards = [
        one for one in places if inputs.text(f"{one}/vendor") == "0x10de" and inputs.text(f"{one}/class")[:4] == "0x03"
    ]
    return sorted({node for one in cards if (node := inputs.text(f"{one}/numa_node")).isdigit()})


# --- limits, disk, network, clock -----------------------------------------------------------------


def _limits(inputs: Inputs) -> Iterator[Line]:
    text = inputs.text("/proc/self/limits")
    for name, row, enough, remedy in (
        ("open files", "Max open files", 4096, "--ulimit nofile=65536: each worker and each shared tensor takes some"),
        ("locked memory", "Max locked memory", 0, ""),
    ):
        found = re.search(rf"^{row}\s+(\S+)", text, re.MULTILINE)
        limit = found[1] if found else "?"
        scarce = limit.isdigit() and int(limit) < enough
        said = size(int(limit)) if row == "Max locked memory" and limit.isdigit() else limit
        yield Line("limits", name, said, "note" if scarce else "ok", remedy if scarce else "")
    pids = _cgroup_number(inputs, "pids")
    scarce = pids is not None and pids < 1024
    remedy = "--pids-limit=-1 where cgroups allow it: SubprocVecEnv and Ray start many threads" if scarce else ""
    yield Line("limits", "processes", str(pids or "no limit"), "note" if scarce else "ok", remedy)


def _disks(inputs: Inputs) -> Iterator[Line]:
    for path in ("/workspace", "/tmp"):
        try:
            total, free = inputs.space(inputs.at(path))
        except OSError as error:
            yield Line("disk", path, f"{error.strerror}", "wrong", f"mount a folder there: --volume=DIR:{path}")
            continue
        scarce = free < 1e9
        remedy = "checkpoints need room: mount a larger folder there" if scarce else ""
        yield Line("disk", path, f"{size(free)} free of {size(total)}", "note" if scarce else "ok", remedy)


def _network(inputs: Inputs) -> Iterator[Line]:
    servers = re.findall(r"^nameserver\s+(\S+)", inputs.text("/etc/resolv.conf"), re.MULTILINE)
    yield Line("network", "DNS", ", ".join(servers) or "none")
    variables = {name.lower(): value for name, value in inputs.environment.items() if value}
    proxies = [f"{name}={_without_login(variables[name])}" for name in _PROXIES if name in variables]
    yield Line("network", "proxy", ", ".join(proxies) or "none")
    bundles = {name: path for name in _BUNDLES if (path := inputs.environment.get(name))}
    absent = [f"{name}={path}" for name, path in bundles.items() if not inputs.at(path).is_file()]
    if absent:
        remedy = "mount the bundle there, or unset the variable: every HTTPS connection fails like this"
        yield Line("network", "CA bundle", f"{', '.join(absent)} is not there", "wrong", remedy)
    else:
        yield Line("network", "CA bundle", ", ".join(dict.fromkeys(bundles.values())) or "the system's")


def _without_login(address: str) -> str:
    """Return an address without the user and password in it."""
    return re.sub(r"//[^/@]*@", "//****@", address)


def _clock(inputs: Inputs) -> Line:
    now, epoch = inputs.now(), inputs.promised.get("epoch")
    said = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    made = datetime.strptime(epoch, "%Y-%m-%d").replace(tzinfo=timezone.utc) if epoch else None  # noqa: UP017
    if made and now < made:
        return Line(
            "network", "clock", said, "wrong", f"before the image was made ({epoch}): set the host's clock, TLS fails"
        )
    return Line("network", "clock", said)
