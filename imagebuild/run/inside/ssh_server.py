"""An SSH server for the user it runs as: public keys only, a host key of its own, all of it in memory."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

SSHD = "/usr/sbin/sshd"
FOLDER, LISTEN, PORT = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
# What a login sets itself.
_OF_THE_LOGIN = {"HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "TERM", "HOSTNAME", "_"}


def inherited() -> dict[str, str]:
    """What the image and the caller set: sshd starts sessions without it."""
    return {
        key: value for key, value in os.environ.items()
        if key not in _OF_THE_LOGIN and not set(value) & set('"\\\n')
    }  # fmt: skip


def prepare() -> None:
    """Write the keys and the settings, and what a login shell reads: /etc/profile would set another PATH."""
    os.umask(0o077)
    FOLDER.mkdir()
    (FOLDER / "authorized_keys").write_text(os.environ.pop("BUILDKIT_AUTHORIZED_KEYS") + "\n", encoding="utf-8")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", FOLDER / "host_key"], check=True)
    variables = inherited()
    settings = f"""
Port {PORT}
ListenAddress {LISTEN}
HostKey {FOLDER}/host_key
AuthorizedKeysFile {FOLDER}/authorized_keys
AuthenticationMethods publickey
PasswordAuthentication no
PermitRootLogin no
AllowUsers worker
UsePAM no
PidFile none
# Above the keys lies /dev/shm, which anyone may write to; the folder of the keys is the user's alone.
StrictModes no
X11Forwarding no
PrintMotd no
PrintLastLog no
Subsystem sftp internal-sftp
SetEnv {" ".join(f'"{key}={value}"' for key, value in variables.items())}
"""
    (FOLDER / "sshd_config").write_text(settings, encoding="utf-8")
    lines = [f"export {key}={shlex.quote(value)}" for key, value in variables.items()]
    lines.append("case $- in *i*) cd /workspace; if [ -f ~/.bashrc ]; then . ~/.bashrc; fi;; esac")
    (Path.home() / ".bash_profile").write_text("\n".join(lines) + "\n", encoding="utf-8")


if not os.access(SSHD, os.X_OK):
    sys.exit("this image has no SSH server: build its diag-tools again, which has")
prepare()
os.execv(SSHD, [SSHD, "-D", "-e", "-f", str(FOLDER / "sshd_config")])
