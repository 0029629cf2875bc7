"""Looks up what a lock holds: the digest that an image tag names now, and the closure of some Python requirements."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from imagebuild.engine import host
from imagebuild.engine.registry import Registry
from imagebuild.errors import RegistryError, WorkError
from imagebuild.spec import facts
from imagebuild.spec.lock import foreign_lines
from imagebuild.spec.models import Row
from imagebuild.spec.reference import parse_reference
from imagebuild.spec.site import Site, through_mirror

# The C libraries that uv knows as platforms; one in between takes the wheels of the next older.
_GLIBC = (17, 28, *range(31, 41))
_UNREACHABLE = re.compile("failed to fetch|could not connect|error sending|could not be queried|timed out", re.I)
_TIMEOUT = 15.0
_CA = "ca.pem"
_MIRRORS = "`mirrors:` in site.yaml names the registries that this site can reach"


class UnreachableError(WorkError):
    """Who knows the answer cannot be asked: it may be another time, or elsewhere. `detail` is what the attempt met."""

    def __init__(self, message: str, *, detail: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.detail = detail


@dataclass(frozen=True)
class Upgrade:
    """What may move although the lock fits: everything, or some packages."""

    everything: bool = False
    packages: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.everything or bool(self.packages)


NO_UPGRADE = Upgrade()


class Resolver:
    """Asks the site's mirrors and indexes. Safe to use from several threads at once."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._python = host.python_settings(site)
        self._uv = host.uv_binary()
        self._silent: dict[str, str] = {}  # registry -> why it was not reached: it is not asked again

    def digest(self, reference: str) -> str:
        """The digest of the manifest (or index) that a reference names now.

        Raises:
            UnreachableError: the registry does not answer, or not to us.
            WorkError: it answers that it has no such image.
        """
        wanted = parse_reference(reference)
        if wanted.digest:
            return wanted.digest
        source = through_mirror(self._site, wanted)
        through = "" if source == wanted else " through the site's mirror"
        name = source.repository.registry
        if name in self._silent:
            raise UnreachableError(self._silent[name], hint=_MIRRORS)
        auth, ca = self._site.auth_file, self._site.ca_bundle
        try:
            with Registry(name, auth_file=Path(auth) if auth else None, ca_bundle=Path(ca) if ca else None,
                          attempts=1, timeout=_TIMEOUT) as registry:  # fmt: skip
                found = registry.head(source)
        except RegistryError as error:
            what = f"answers {error.status}" if error.status else "cannot be reached"
            reason = f"{wanted.repository.registry} {what}{through}"
            if not error.status:
                self._silent[name] = reason
            detail = error.message if error.status else str(error.__cause__)
            raise UnreachableError(reason, detail=detail, hint=_MIRRORS) from error
        if found is None:
            raise WorkError(f"{wanted.repository.registry} has no {wanted.repository.path}:{wanted.target}{through}")
        return found.digest

    def closure(
        self, row: Row, requirements: str, *, constraints: str = "", before: str = "", upgrade: Upgrade = NO_UPGRADE
    ) -> str:
        """The packages that requirements need on a row, each with its version and the hashes of its wheels.

        Args:
            row: tells Python, platform and the index of its torch build.
            requirements: the requirements.
            constraints: a requirements file; what is in both has the same version.
            before: the closure so far: its versions stay as far as they fit.
            upgrade: what of it need not stay.

        Raises:
            UnreachableError: an index does not answer.
            WorkError: no versions fit together, or there is no wheel for the platform.
        """
        index = host.torch_index(self._site, self._python, row)
        texts = {
            "uv.toml": self._python.uv_toml(index, folders=self._python.folders), "constraints.txt": constraints,
            "requirements.in": requirements, "locked.txt": "" if upgrade.everything else before,
        }  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="buildkit-lock-") as name:
            folder = Path(name)
            if bundle := host.ca_bundle(self._site):
                (folder / _CA).write_bytes(bundle)
            for file, text in texts.items():
                (folder / file).write_text(text, encoding="utf-8")
            done = subprocess.run(
                [str(self._uv), *_arguments(row), *(f"--upgrade-package={one}" for one in upgrade.packages)],
                cwd=folder, env=_environment(folder), capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                raise self._failure(done.stderr, index)
            closure = (folder / "locked.txt").read_text(encoding="utf-8")
        if foreign := foreign_lines(closure):
            raise WorkError(f"not from an index, and so without a hash to lock: {foreign[0]}")
        return closure

    def _failure(self, said: str, index: str | None) -> WorkError:
        """What uv's failure means, without the addresses that it names."""
        for secret in self._python.secrets:
            said = said.replace(secret, "****")
        if _UNREACHABLE.search(said):
            name, setting = "the Python index", "python_index"
            torch_host = urllib.parse.urlparse(index).hostname if index else None
            if torch_host and torch_host in said:
                public = self._site.pytorch_index == Site.model_fields["pytorch_index"].default
                name, setting = torch_host if public else "the index of torch builds", "pytorch_index"
            detail = said.strip().splitlines()[-1].strip().removeprefix("cause: ")
            hint = f"`{setting}:` in site.yaml names one that this site can reach"
            return UnreachableError(f"{name} cannot be reached", detail=detail, hint=hint)
        for folder in self._python.folders:
            said = said.replace(str(folder), "the folder of wheels")
        words = " ".join(re.sub(r"https?://\S+", "an index", said).split())
        return WorkError(words.removeprefix("error: ").replace(" cause: ", ": "))


def platform(row: Row) -> str:
    """The platform, in uv's words, whose wheels run on a row's operating system."""
    glibc = int(facts.load().os[row.os].glibc.minor)
    return f"x86_64-manylinux_2_{max(one for one in _GLIBC if one <= glibc)}"


def _arguments(row: Row) -> list[str]:
    return [
        "pip", "compile", "requirements.in", "--output-file", "locked.txt", "--constraints", "constraints.txt",
        "--python", sys.executable, "--python-version", row.python, "--python-platform", platform(row),
        "--generate-hashes", "--only-binary", ":all:", "--no-header", "--no-annotate", "--no-emit-index-url",
        "--no-emit-find-links", "--quiet",
    ]  # fmt: skip


def _environment(folder: Path) -> dict[str, str]:
    """This process's environment with our settings of uv instead of its owner's; their cache is welcome."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("UV_") or key == "UV_CACHE_DIR"}
    own |= {"SSL_CERT_FILE": str(folder / _CA)} if (folder / _CA).exists() else {}
    return own | {
        "UV_CONFIG_FILE": str(folder / "uv.toml"), "UV_PYTHON_DOWNLOADS": "never", "UV_HTTP_RETRIES": "1",
        "NO_COLOR": "1",
    }  # fmt: skip
