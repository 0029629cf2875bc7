"""strace attaches to a live process and sees its system calls."""

import subprocess

import smokelib
import toollib

with toollib.live_process() as (pid, _):
    command = ["strace", "-f", "-p", str(pid)]
    tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        _, trace = tracer.communicate(timeout=2)
    except subprocess.TimeoutExpired:
        tracer.terminate()
        _, trace = tracer.communicate()
    smokelib.require("ermitted" not in trace, "strace may not attach", "the container needs the capability SYS_PTRACE")
    toollib.shows("strace", trace, '"/workspace"')
