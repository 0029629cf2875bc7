"""top, ps, htop and lsof show a live process and what it holds open."""

import toollib

with toollib.live_process() as (pid, port):
    toollib.shows("top", toollib.output_of("top", "-b", "-n", "1", "-p", str(pid)), str(pid))
    toollib.shows("ps", toollib.output_of("ps", "-o", "pid,args", "-p", str(pid)), "busy_with_a_name")
    toollib.shows("lsof", toollib.output_of("lsof", "-n", "-P", "-p", str(pid)), f"127.0.0.1:{port}")
    toollib.shows("htop", toollib.screen_of("htop", "--pid", str(pid)), str(pid))
