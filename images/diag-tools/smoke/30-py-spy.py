"""py-spy attaches to a live Python and names the function that it is in."""

import toollib

with toollib.live_process() as (pid, _):
    toollib.shows("py-spy", toollib.output_of("py-spy", "dump", "--pid", str(pid)), "busy_with_a_name")
