"""The folders of this machine that a container works in: which, and whether it can."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

from imagebuild.engine.service import owner_of
from imagebuild.errors import InputError, Problem


def default_workspace(current: Path, home: Path) -> Path:
    """The current folder, unless that would hand over a home or the whole machine without a word.

    Raises:
        InputError: it is the home folder, or one above it.
    """
    folder = current.resolve()
    if folder == home.resolve() or folder in home.resolve().parents:
        hint = "go to the folder of your project, or name one: --workspace DIR"
        raise InputError(Problem(f"{folder} would be the workspace, and what runs there could change it", hint=hint))
    return folder


def check_access(path: Path, service: str, *, write: bool = True) -> None:
    """See that the user whose Podman runs the container may use a folder or file; inside, `worker` is that user.

    Args:
        path: the folder or file.
        service: the address of the Podman service. Of one on another machine nothing can be said.
        write: whether it has to be writable.

    Raises:
        InputError: the user may not.
    """
    user, path = owner_of(service), path.resolve()
    if user is None or _may(path, user, write=write):
        return
    what = "write to" if write else "read"
    grant = f"setfacl -m u:{user.pw_name}:{_rights(path, write=write)} {path}"
    own = f"`install -d -o {user.pw_name} DIR` makes a folder of its own, outside of closed homes; or "
    hint = f"{own if path.is_dir() else ''}`{grant}` lets it (every folder above needs x for it, too)"
    raise InputError(Problem(f"{user.pw_name}, whose Podman runs the container, cannot {what} {path}", hint=hint))


def _rights(path: Path, *, write: bool) -> str:
    return f"r{'w' if write else ''}{'x' if path.is_dir() else ''}"


def _may(path: Path, user: pwd.struct_passwd, *, write: bool) -> bool:
    """Asked as that user, so that ACLs and the folders above count. Only root can ask as somebody else."""
    if os.geteuid() not in (0, user.pw_uid):
        return True
    rights = _rights(path, write=write)
    command = " && ".join(f'test -{right} "$1"' for right in rights)
    as_user: dict[str, Any] = {}
    if user.pw_uid != os.geteuid():
        groups = os.getgrouplist(user.pw_name, user.pw_gid)
        as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": groups}
    done = subprocess.run(["sh", "-c", command, "sh", str(path)], check=False, cwd="/", **as_user)
    return done.returncode == 0
