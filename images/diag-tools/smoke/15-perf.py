"""perf counts and samples a process of one's own, where the kernel lets a container do so."""

import subprocess
import sys
from pathlib import Path

import smokelib
import toollib

BUSY = [sys.executable, "-c", "sum(range(3_000_000))"]

toollib.shows("perf", toollib.output_of("perf", "--version"), "perf version")
tried = subprocess.run(["perf", "stat", "-e", "task-clock", "true"], capture_output=True, text=True, check=False)
if tried.returncode:
    paranoid = Path("/proc/sys/kernel/perf_event_paranoid").read_text(encoding="ascii").strip()
    smokelib.skip(
        f"perf may not count here (perf_event_paranoid {paranoid}): --security-opt seccomp=unconfined, up to 2"
    )
toollib.shows("perf stat", toollib.output_of("perf", "stat", "-e", "task-clock", *BUSY), "task-clock")
data = "/tmp/smoke-perf.data"
toollib.output_of("perf", "record", "-q", "-e", "cpu-clock:u", "-o", data, "--", *BUSY)
toollib.shows("perf report", toollib.output_of("perf", "report", "--stdio", "-i", data), "python")
