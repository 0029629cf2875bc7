"""sshd runs as the image's user with keys made on the spot; the image itself has none."""

import getpass
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import smokelib
import toollib

SSHD = "/usr/sbin/sshd"
PORT = 5297

keys = [str(path) for path in Path("/etc/ssh").glob("ssh_host_*")]
smokelib.require(not keys, f"the image has host keys: {keys}", "everybody has them then; `unwanted` in the template")
smokelib.require(shutil.which(SSHD), "there is no sshd", "add openssh-server to diag-tools.Containerfile.j2")
folder = Path(tempfile.mkdtemp())
for name in ("host", "user"):
    toollib.output_of("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
settings = {
    "ListenAddress": f"127.0.0.1:{PORT}", "HostKey": folder / "host", "AuthorizedKeysFile": folder / "user.pub",
    "PidFile": "none", "StrictModes": "no", "UsePAM": "no",
}  # fmt: skip
(folder / "config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()), encoding="utf-8")
server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "config")], stderr=subprocess.PIPE, text=True)
try:
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", PORT)) == 0:
                break
        time.sleep(0.05)
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-i", str(folder / "user")]
    address = ["-p", str(PORT), f"{getpass.getuser()}@127.0.0.1"]
    answer = toollib.output_of("ssh", *options, *address, "echo through ssh")
    toollib.shows("ssh", answer, "through ssh")
finally:
    server.terminate()
    print((server.communicate()[1] or "")[-2000:])
