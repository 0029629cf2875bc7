"""The host's own package settings: its CA certificates, its Debian mirror, its Python index.

They enter builds as secrets and mounts, and never a layer: an image says nothing of where it was built.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from imagebuild.errors import InputError, Location, Problem, WorkError
from imagebuild.spec.models import Row
from imagebuild.spec.site import Site

WHEELS_IN_BUILD = "/run/buildkit/wheels"  # where the templates mount the tools image
_CA_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
)
_APT = Path("/etc/apt")
_ARCHIVES = {"debian": "debian-archive-keyring", "ubuntu": "ubuntu-archive-keyring"}
_ONE_LINE = re.compile(r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)$")


def ca_bundle(site: Site) -> bytes:
    """The CA certificates to trust during builds, as PEM.

    Raises:
        InputError: the configured bundle cannot be read.
    """
    named = site.ca_bundle or os.environ.get("SSL_CERT_FILE")
    for path in [named] if named else _CA_BUNDLES:
        try:
            return Path(path).read_bytes()
        except OSError as error:
            if site.ca_bundle:
                raise InputError(Problem(f"ca_bundle: {path}: {error.strerror}", Location("site.yaml"))) from None
    return b""


# --- Debian and Ubuntu ----------------------------------------------------------------------------


@dataclass(frozen=True)
class AptSource:
    """One archive that the host's apt uses."""

    uri: str
    suite: str
    keyring: str


def apt_sources(site: Site, os_name: str, suite: str) -> str:
    """A sources.list for a release, from the site's mirrors or else the archives that the host itself uses.

    Args:
        site: the site's settings.
        os_name: the release's name in the matrix, such as `debian12`.
        suite: the release's code name, such as `bookworm`.

    Raises:
        InputError: the host has no archive of that distribution, and the site names none.
    """
    distribution = os_name.rstrip("0123456789.")
    main, security = site.apt_mirror, site.apt_security_mirror
    if not main:
        main, own_security = _host_archives(distribution)
        security = security or own_security
    if not main:
        hint = "set `apt_mirror:` (and `apt_security_mirror:`) in site.yaml"
        raise InputError(Problem(f"this host's apt has no {distribution} archive to bootstrap from", hint=hint))
    components = "main" if distribution == "debian" else "main universe"
    # In the sources themselves: mmdebstrap and every RUN step then read it, and no template needs to know.
    deb = "deb [check-valid-until=no]" if site.apt_snapshot else "deb"
    lines = [f"{deb} {main} {suite} {components}", f"{deb} {main} {suite}-updates {components}"]
    if security:
        lines.append(f"{deb} {security} {suite}-security {components}")
    return "\n".join(lines) + "\n"


def _host_archives(distribution: str) -> tuple[str | None, str | None]:
    """The host's main archive and security archive of a distribution, where it has them."""
    main = security = None
    for source in _host_sources(_APT):
        if _ARCHIVES[distribution] not in source.keyring and f"/{distribution}" not in source.uri:
            continue
        if source.suite.endswith("-security"):
            security = security or source.uri
        elif "-" not in source.suite:
            main = main or source.uri
    return main, security


def _host_sources(folder: Path) -> Iterator[AptSource]:
    """What apt's own files name, in both of their formats."""
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError:
            continue
        yield from _deb822(text) if path.suffix == ".sources" else _one_line(text)


def _one_line(text: str) -> Iterator[AptSource]:
    for line in text.splitlines():
        if found := _ONE_LINE.match(line.split("#")[0].strip()):
            yield AptSource(found["uri"].rstrip("/"), found["suite"], found["options"] or "")


def _deb822(text: str) -> Iterator[AptSource]:
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        values = {key.strip().lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        if "deb" not in values.get("types", "").split() or values.get("enabled", "yes").lower() == "no":
            continue
        for uri in values.get("uris", "").split():
            for suite in values.get("suites", "").split():
                yield AptSource(uri.rstrip("/"), suite, values.get("signed-by", ""))


# --- Python ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PythonSettings:
    """Where wheels come from: indexes (the first is the default one) and folders of this host."""

    indexes: tuple[str, ...] = field(default=(), repr=False)
    folders: tuple[Path, ...] = ()
    remote_links: tuple[str, ...] = field(default=(), repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def wheels(self) -> list[Path]:
        """The wheels that lie in the folders."""
        return sorted(wheel for folder in self.folders for wheel in folder.glob("*.whl"))

    def uv_toml(self, extra_index: str | None = None, *, folders: Sequence[Path] = (Path(WHEELS_IN_BUILD),)) -> str:
        """The same settings for uv, by default inside a build.

        Args:
            extra_index: one more index.
            folders: where the wheels lie that this host's folders hold.
        """
        lines = []
        indexes = [*self.indexes, *([extra_index] if extra_index else [])]
        if self.indexes:
            lines.append(f"index-url = {json.dumps(indexes[0])}")
        if rest := indexes[1 if self.indexes else 0 :]:
            lines.append(f"extra-index-url = {json.dumps(rest)}")
        lines.append(f"find-links = {json.dumps([*map(str, folders), *self.remote_links])}")
        lines.append('index-strategy = "unsafe-best-match"')
        return "\n".join(lines) + "\n"


def python_settings(site: Site) -> PythonSettings:
    """The site's Python index and wheel folders, or else those that the host's pip is configured with.

    Raises:
        InputError: a folder that the site names does not exist.
    """
    pip = {} if site.python_index and site.python_find_links is not None else _pip_config()
    main = site.python_index or pip.get("index-url", "")
    extra = [] if site.python_index else pip.get("extra-index-url", "").split()
    links = list(site.python_find_links) if site.python_find_links is not None else pip.get("find-links", "").split()
    folders, remote = [], []
    for link in links:
        path = Path(urllib.parse.urlparse(link).path if link.startswith("file://") else link)
        if "://" in link and not link.startswith("file://"):
            remote.append(link)
        elif path.is_dir():
            folders.append(path)
        elif site.python_find_links is not None:
            raise InputError(Problem(f"python_find_links: no folder {path}", Location("site.yaml")))
    # A file: index is this host's; a build cannot reach it, and its wheels have other ways in.
    indexes = tuple(index for index in [main, *extra] if index and not index.startswith("file:"))
    secrets = tuple(part for index in indexes if (part := urllib.parse.urlparse(index).password))
    return PythonSettings(indexes, tuple(folders), tuple(remote), secrets)


def torch_index(site: Site, python: PythonSettings, row: Row) -> str | None:
    """The index that a row's torch build comes from, unless it is an ordinary one or the very wheel is at hand."""
    wheel = f"torch-{row.torch}+{row.variant}-"
    at_hand = row.wheels == "pypi" or any(path.name.startswith(wheel) for path in python.wheels())
    return None if at_hand else site.pytorch_index.format(variant=row.variant)


def _pip_config() -> dict[str, str]:
    """pip's effective settings that matter here; its files in rising order of weight, then its variables."""
    pip = Path(sys.prefix) / "bin" / "pip"
    listed = subprocess.run([str(pip), "config", "debug"], capture_output=True, text=True, check=False).stdout
    values: dict[str, str] = {}
    for path in re.findall(r"^\s+(\S.*), exists: True$", listed, re.MULTILINE):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, OSError):
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                values |= dict(parser.items(section))
    for key in ("index-url", "extra-index-url", "find-links"):
        if value := os.environ.get(f"PIP_{key.upper().replace('-', '_')}"):
            values[key] = value
    return values


def uv_binary() -> Path:
    """The pinned uv that builds install with.

    Raises:
        WorkError: uv is not installed beside buildkit.
    """
    beside = Path(sys.prefix) / "bin" / "uv"
    found = beside if beside.exists() else Path(shutil.which("uv") or "")
    if not found.is_file():
        raise WorkError("uv is not installed beside buildkit", hint="run scripts/setup")
    return found


def has_tun(device: Path = Path("/dev/net/tun")) -> bool:
    """Whether a rootless container can have a network of its own: slirp4netns and pasta open this device."""
    try:
        mode = device.stat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) and mode & 0o006 == 0o006
