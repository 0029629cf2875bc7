"""The public keys that may log in to a container."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from imagebuild.errors import InputError, Problem

_KINDS = ("ssh-", "ecdsa-", "sk-")


def public_keys(files: Sequence[Path], folder: Path) -> tuple[str, str]:
    """The keys, one a line, and how a shell would name them.

    Args:
        files: those with the keys; none means the user's own.
        folder: where the user's own are, `~/.ssh`.

    Raises:
        InputError: there are none, or a file holds something else, such as the private one.
    """
    chosen = list(files) or sorted(folder.glob("id_*.pub"))
    if chosen:
        text = "".join(_read(path) for path in chosen)
        return text, f'"$(cat {shlex.join(str(path.resolve()) for path in chosen)})"'
    try:
        listed = subprocess.run(["ssh-add", "-L"], capture_output=True, text=True, check=False)
    except OSError:
        listed = None
    if listed is None or listed.returncode != 0:
        hint = "`ssh-keygen -t ed25519` makes one; --key FILE names another"
        raise InputError(Problem(f"there is no public key in {folder}, and no agent has one", hint=hint))
    return listed.stdout, '"$(ssh-add -L)"'


def _read(path: Path) -> str:
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if lines and all(line.startswith(_KINDS) for line in lines):
        return "".join(f"{line}\n" for line in lines)
    hint = f"give the public one: {path}.pub" if "PRIVATE KEY" in text else "a public key is like `ssh-ed25519 AAAA...`"
    raise InputError(Problem(f"{path} is no public key", hint=hint))
