"""What git and GitLab say about the commit that is being built."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


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


def author(folder: Path) -> str:
    """Who is at work: the GitLab user of a job, else git's identity, else the login name."""
    if name := os.environ.get("GITLAB_USER_LOGIN"):
        return name
    email = _git(folder, "config", "user.email")
    return email or os.environ.get("USER") or os.environ.get("LOGNAME") or f"uid {os.getuid()}"


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
