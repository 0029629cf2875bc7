#!/usr/bin/env python3
"""How long a decision of the inference image takes, beside what it cannot be faster than, and beside JSON over HTTP.

Run it from the project folder, with the images of the cpu row in Podman's store and a policy that was exported:

    .venv/bin/python benchmarks/serving.py POLICY.onnx [--seconds 60] [--spin 0] [--realtime 50]

First, decisions one after the other, in rounds that take turns: percentiles in microseconds, and the ratio of medians
to ONNX Runtime in the asking process itself. Then a control loop of 1 kHz for so many seconds, in Python and in C:
deadlines of 5 ms that were missed, and how long it took from when the period began to when the action was there. Before
them a loop of 1 kHz that decides nothing: what the machine itself is late, which no policy server can mend.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
CLIENT = PROJECT / "images/inference/client"
sys.path[:0] = [str(PROJECT), str(CLIENT)]
sys.dont_write_bytecode = True

import policy_client  # noqa: E402  (a file of the project, not of its package)
from decisions import timed  # noqa: E402  (beside this file, also in the container)

from imagebuild.engine.service import find_socket  # noqa: E402
from imagebuild.plan.plan import Plan  # noqa: E402
from imagebuild.spec import matrix  # noqa: E402

ROUNDS, DECISIONS = 5, 1000
FLOOR = "in process"
DEADLINE = 5000.0  # microseconds


def podman(*arguments: str) -> str:
    """Call Podman's client on the service that buildkit uses."""
    command = ["podman", "--remote", "--url", find_socket(os.environ.get("BUILDKIT_PODMAN")), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def serving(policy: Path, spin: str) -> Iterator[tuple[Path, str]]:
    """Run the inference image with a policy; its run folder on this side, and the container."""
    image = Plan(PROJECT, matrix.load(PROJECT / "matrix.yaml"))["inference-cpu"].local_name
    with tempfile.TemporaryDirectory(prefix="policy-", dir="/dev/shm") as name:
        folder = Path(name)
        folder.chmod(0o777)  # the container's user is another one here
        shutil.copy(policy, folder / "policy.onnx")
        (folder / "policy.onnx").chmod(0o644)
        container = podman(
            "run", "--detach", "--read-only", "--network=none", f"--env=POLICY_SPIN_US={spin}",
            f"--volume={folder}:/run/policy", f"--volume={folder}/policy.onnx:/policy/policy.onnx:ro",
            f"--volume={Path(__file__).parent}:/bench:ro", image,
        )  # fmt: skip
        try:
            await_server(folder)
            yield folder, container
        finally:
            print(podman("logs", container), file=sys.stderr)
            podman("rm", "--force", "--time=5", container)


def await_server(folder: Path) -> None:
    """Wait until it serves; its socket comes last."""
    for _ in range(300):
        try:
            policy_client.SocketClient(str(folder)).close()
        except policy_client.NotServingError:
            time.sleep(0.1)
        else:
            return
    sys.exit("the server did not start")


def one_after_the_other(folder: Path, container: str, spin: float) -> dict[str, list[list[int]]]:
    """Rounds of each case, taking turns."""
    rounds = defaultdict(list)
    with policy_client.ControlClient(str(folder), spin) as control, policy_client.SocketClient(str(folder)) as talker:
        count = control.layout.observation_count
        floats = [array("f", [random.gauss(0, 1) for _ in range(count)]) for _ in range(DECISIONS)]
        lists = [each.tolist() for each in floats]
        for _ in range(ROUNDS):
            rounds["shared memory, Python client"].append(timed(lambda each: control.decide(each, 1.0), floats))
            rounds["Unix socket, Python client"].append(timed(talker.decide, lists))
            peers = json.loads(podman("exec", container, "python3", "/bench/serving_peers.py", str(DECISIONS)))
            for name, took in peers.items():
                rounds[name].append(took)
    return rounds


def show(rounds: dict[str, list[list[int]]]) -> None:
    """Print percentiles over all rounds, and the median over rounds of the ratio of medians."""
    print(f"{'decisions one after the other':<32} {'p50':>8} {'p99':>8} {'p99.9':>8} {'max':>9} us  {'ratio':>6}")
    for name, took in rounds.items():
        every = sorted(value / 1e3 for each in took for value in each)
        at = [every[int(share * (len(every) - 1))] for share in (0.5, 0.99, 0.999, 1)]
        pairs = zip(took, rounds[FLOOR], strict=True)
        ratio = statistics.median(statistics.median(a) / statistics.median(b) for a, b in pairs)
        print(f"{name:<32} {at[0]:8.1f} {at[1]:8.1f} {at[2]:8.1f} {at[3]:9.1f} us  {ratio:6.2f}")


def control_loops(folder: Path, seconds: int, spin: str, priority: int) -> None:
    """Run both control loops, one after the other."""
    program = folder / "control_loop"
    loops = {"Python": [sys.executable, "-B", str(CLIENT / "control_loop.py"), str(folder), f"--seconds={seconds}",
                        f"--spin={spin}"]}  # fmt: skip
    if shutil.which("cc"):
        sources = [CLIENT / "control_loop.c", CLIENT / "policy_client.c"]
        subprocess.run(["cc", "-O2", "-std=gnu11", "-o", program, *sources], check=True)
        loops["C"] = [str(program), str(folder), "1000", str(seconds), spin]
    if priority:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    print(f"1 kHz for {seconds} s, no decision:   {json.dumps(nothing_to_decide(seconds))}")
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    for name, command in loops.items():
        favoured = ["chrt", "--fifo", str(priority), *command] if priority else command
        found = subprocess.run(favoured, check=False, capture_output=True, text=True)
        print(f"1 kHz for {seconds} s, {name} client: {found.stdout.strip()}{found.stderr.strip()}")


def nothing_to_decide(seconds: int, rate: int = 1000) -> dict[str, Any]:
    """How late a process wakes up that only sleeps to the next period, in microseconds."""
    begin, late = time.monotonic_ns(), []
    for period in range(1, seconds * rate + 1):
        due = begin + period * 1_000_000_000 // rate
        time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
        late.append((time.monotonic_ns() - due) / 1e3)
    late.sort()
    at = {name: round(late[int(share * (len(late) - 1))], 1) for name, share in
          (("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999), ("max_us", 1))}  # fmt: skip
    return {"missed": sum(one > DEADLINE for one in late), "steps": len(late), **at}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", type=Path)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--spin", default="0", help="microseconds that server and client look before they sleep")
    parser.add_argument(
        "--realtime", type=int, default=0, help="SCHED_FIFO priority of server and control loops; needs root"
    )
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}")
    with serving(options.policy, options.spin) as (folder, container):
        show(one_after_the_other(folder, container, float(options.spin) / 1e6))
        if options.realtime:
            favour(container, options.realtime)
        control_loops(folder, options.seconds, options.spin, options.realtime)
    print(f"load average {os.getloadavg()[0]:.1f}")


def favour(container: str, priority: int) -> None:
    """Give the server a real-time priority, as a robot's computer would."""
    first = int(podman("inspect", container, "--format={{.State.Pid}}"))
    families, found = [first], []
    while families:
        found.append(families.pop())
        families += map(int, Path(f"/proc/{found[-1]}/task/{found[-1]}/children").read_text().split())
    for process in found:
        os.sched_setscheduler(process, os.SCHED_FIFO, os.sched_param(priority))


if __name__ == "__main__":
    main()
