"""The root filesystem is read-only, and the server's user has no rights: an intruder could leave nothing behind."""

import errno
import os
from pathlib import Path

import smokelib

REMEDY = "inference must run with `--read-only`, as its own user: look at how the container was started"
PLACES = ("/", "/etc", "/opt/policy", "/opt/venv", "/home/worker", "/workspace")

smokelib.equal("user", (os.getuid(), os.getgid()), (1000, 1000), REMEDY)
for folder in PLACES:
    try:
        Path(folder, "trace").write_text("")
    except OSError as error:
        # Where the user has no rights either, that is what the kernel says first; its own folders tell the difference.
        smokelib.require(error.errno in (errno.EROFS, errno.EACCES), f"writing into {folder} failed: {error}", REMEDY)
        own = os.stat(folder).st_uid == os.getuid()
        smokelib.require(error.errno == errno.EROFS or not own, f"{folder} could be written", REMEDY)
    else:
        smokelib.fail(f"{folder} can be written", REMEDY)
flags = os.statvfs("/").f_flag
smokelib.require(flags & os.ST_RDONLY, "the root filesystem is not mounted read-only", REMEDY)
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
smokelib.equal("effective capabilities", int(status["CapEff"], 16), 0, REMEDY)
