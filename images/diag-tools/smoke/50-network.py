"""ip, ss and iperf3 work on the loopback interface; tcpdump reads a capture."""

import struct
import subprocess
import time
from pathlib import Path

import smokelib
import toollib

PORT = "5299"


def pcap() -> bytes:
    """Return a capture file with one UDP packet, as capturing itself needs a capability that the container lacks."""
    udp = struct.pack("!HHHH", 5000, 6000, 12, 0) + b"ping"
    addresses = bytes([192, 0, 2, 1, 192, 0, 2, 2])
    packet = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0) + addresses + udp
    raw_ip = 101
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, raw_ip)
    return header + struct.pack("<IIII", 0, 0, len(packet), len(packet)) + packet


toollib.shows("ip", toollib.output_of("ip", "-o", "address", "show", "dev", "lo"), "127.0.0.1")
with toollib.live_process() as (pid, port):
    sockets = toollib.output_of("ss", "-ltnp")
    toollib.shows("ss", sockets, f"127.0.0.1:{port}")
    toollib.shows("ss", sockets, f"pid={pid}")
capture = Path("/tmp/smoke.pcap")
capture.write_bytes(pcap())
toollib.shows(
    "tcpdump", toollib.output_of("tcpdump", "-n", "-r", str(capture)), "192.0.2.1.5000 > 192.0.2.2.6000: UDP, length 4"
)
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
