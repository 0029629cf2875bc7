"""gdb attaches to a live process and prints its native stack."""

import toollib

with toollib.live_process() as (pid, _):
    trace = toollib.output_of("gdb", "--batch", "-p", str(pid), "-ex", "info proc", "-ex", "backtrace")
    toollib.shows("gdb", trace, f"process {pid}")
    toollib.shows("gdb", trace, "#0")
