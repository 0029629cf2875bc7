"""The image runs as a user without rights, who owns a home and a workspace, and can gain none."""

import os
import pwd
import shutil
import stat
import subprocess
from pathlib import Path

import smokelib

SYS_PTRACE = 1 << 19  # granted by the runner to every container under test, for the debuggers of diag-tools

smokelib.require(os.getuid() != 0, "the image runs as root", "the template must end with USER 1000:1000")
user = pwd.getpwuid(os.getuid())
smokelib.equal(
    "user", (user.pw_name, user.pw_uid, user.pw_gid), ("worker", 1000, 1000), "the template must use the worker macro"
)
for folder in (Path.home(), Path("/workspace")):
    probe = folder / ".smoke-probe"
    try:
        probe.write_text("x", encoding="ascii")
        probe.unlink()
    except OSError as error:
        smokelib.fail(f"{user.pw_name} cannot write to {folder} ({error.strerror})", "it must belong to uid 1000")
writable = [
    str(path) for top in ("/etc", "/usr", "/opt") for path in (Path(top), *Path(top).rglob("*"))
    if not path.is_symlink() and os.access(path, os.W_OK)
]  # fmt: skip
smokelib.require(not writable, f"{user.pw_name} can write to {', '.join(writable)}", "they must belong to root")
capabilities = next(
    line for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines() if line.startswith("CapEff")
)
granted = int(capabilities.split()[1], 16) & ~SYS_PTRACE
smokelib.equal("effective capabilities", granted, 0, "run the image as its own user, unprivileged")


def of_a_package(path: str) -> bool:
    """Say whether the distribution brings a file; its packages may name it from before /bin became /usr/bin."""
    names = (path, path[len("/usr") :]) if path.startswith("/usr/") else (path,)
    ask = ["dpkg", "--search"] if shutil.which("dpkg") else ["rpm", "--query", "--file"]
    return any(subprocess.run([*ask, name], capture_output=True, check=False).returncode == 0 for name in names)


privileged = [
    str(path) for top in ("/usr", "/opt", "/etc", "/home", "/workspace") for path in Path(top).rglob("*")
    if not path.is_symlink() and path.is_file() and path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)
]  # fmt: skip
strange = [path for path in privileged if not of_a_package(path)]
print(f"{len(privileged)} programs run with another's rights (setuid, setgid)")
smokelib.require(not strange, f"no package brings {', '.join(strange)}, which gives rights away", "chmod u-s,g-s them")
