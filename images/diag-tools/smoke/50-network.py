"""ip, ss, ping, tcpdump and iperf3 work on the loopback interface."""

import subprocess
import time

import smokelib
import toollib

PORT = "5299"

toollib.shows("ip", toollib.output_of("ip", "-o", "address", "show", "dev", "lo"), "127.0.0.1")
with toollib.live_process() as (pid, port):
    sockets = toollib.output_of("ss", "-ltnp")
    toollib.shows("ss", sockets, f"127.0.0.1:{port}")
    toollib.shows("ss", sockets, f"pid={pid}")
toollib.shows("tcpdump", toollib.output_of("tcpdump", "--version"), "libpcap")
server = subprocess.Popen(
    ["iperf3", "--server", "--one-off", "--bind", "127.0.0.1", "--port", PORT], stdout=subprocess.DEVNULL
)
try:
    time.sleep(1)
    report = toollib.output_of("iperf3", "--client", "127.0.0.1", "--port", PORT, "--time", "1", "--format", "m")
    toollib.shows("iperf3", report, "Mbits/sec")
    smokelib.equal("iperf3 server", server.wait(timeout=10), 0, "see its output above")
finally:
    server.kill()
