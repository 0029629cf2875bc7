"""PID 1 is tini: it takes in orphans and buries them, so that a long training run leaves no zombies."""

import subprocess
import time
from pathlib import Path

import smokelib

smokelib.equal(
    "PID 1", Path("/proc/1/comm").read_text(encoding="ascii").strip(), "tini", "start the image with its own entrypoint"
)
# The shell ends before its child, whose parent is PID 1 from then on.
orphan = Path("/proc") / subprocess.check_output(["sh", "-c", "sleep 0.2 >/dev/null & echo $!"], text=True).strip()
smokelib.require(orphan.exists(), "the orphan ended too early to tell", "run the check again")
end = time.monotonic() + 10
while orphan.exists() and time.monotonic() < end:
    time.sleep(0.05)
smokelib.require(not orphan.exists(), "PID 1 leaves zombies", "the entrypoint must be /usr/bin/tini -g --")
