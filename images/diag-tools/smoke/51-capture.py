"""tcpdump sees a packet go by, where the container may look at raw packets."""

import socket
import subprocess

import smokelib

command = ["tcpdump", "-n", "-l", "-i", "lo", "-c", "1", "udp", "port", "5298"]
with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as capture:
    assert capture.stderr is not None
    said = ""
    for line in capture.stderr:
        said += line
        if "listening on" in line:
            break
    if "listening on" not in said:
        smokelib.require("ermi" in said, f"tcpdump does not start: {said}", "see tcpdump(8)")
        smokelib.skip("this container may not see raw packets: --cap-add NET_RAW lets it")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"ping", ("127.0.0.1", 5298))
    shown, _ = capture.communicate(timeout=30)
smokelib.require("UDP, length 4" in shown, f"tcpdump shows {shown!r}", "it must show the packet that was sent")
print(shown)
