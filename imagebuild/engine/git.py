"""What git and GitLab say about the commit that is being built."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from imagebuild.errors import InputError, Problem


@dataclass(frozen=True)
class Commit:
    """The commit of the project folder. `dirty` means that files differ from it; `id` is empty outside git."""

    id: str = ""
    branch: str = ""
    dirty: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the commit says all that there is to know about the files."""
        return bool(self.id) and not self.dirty


def commit_of(folder: Path) -> Commit:
    """Ask GitLab's variables, and git where they are silent. A folder outside git has an empty commit."""
    head = _git(folder, "rev-parse", "HEAD")
    if not head:
        return Commit()
    branch = os.environ.get("CI_COMMIT_BRANCH") or _git(folder, "symbolic-ref", "--short", "-q", "HEAD")
    return Commit(head, branch, bool(_git(folder, "status", "--porcelain")))


def files_at(folder: Path, revision: str, path: str) -> dict[str, str]:
    """The text files directly in `folder/path` as a revision has them, by name; none where it has no such folder.

    Raises:
        InputError: there is no such revision.
    """
    if not _git(folder, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"):
        raise InputError(Problem(f"git knows no revision {revision!r} here", hint="name a commit, a branch or a tag"))
    names = _git(folder, "ls-tree", "--name-only", revision, f"{path}/").splitlines()
    return {Path(name).name: _git(folder, "show", f"{revision}:./{name}", strip=False) for name in names}


def author(folder: Path) -> str:
    """Who is at work: the GitLab user of a job, else git's identity, else the login name."""
    if name := os.environ.get("GITLAB_USER_LOGIN"):
        return name
    email = _git(folder, "config", "user.email")
    return email or os.environ.get("USER") or os.environ.get("LOGNAME") or f"uid {os.getuid()}"


def _git(folder: Path, *arguments: str, strip: bool = True) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    if done.returncode:
        return ""
    return done.stdout.strip() if strip else done.stdout
