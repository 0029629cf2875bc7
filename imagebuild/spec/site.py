"""`site.yaml`: what differs from site to site, and never from image to image."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from imagebuild.errors import Location, Problem, ProblemList
from imagebuild.spec import yamlfile
from imagebuild.spec.models import Strict, Text
from imagebuild.spec.models import text as as_text
from imagebuild.spec.reference import Reference, Repository
from imagebuild.spec.strict import expect_map, locator, validate
from imagebuild.spec.yamlfile import Map, Plain

FILE_NAME = "site.yaml"
ENVIRONMENT_PREFIX = "BUILDKIT_"


def _words(value: Any) -> Any:
    """A list of words; numbers such as driver branches are taken as written."""
    if isinstance(value, str):
        value = value.split(",")
    return tuple(str(item) if isinstance(item, Plain) else as_text(item).strip() for item in value)


def _host(value: Any) -> str:
    taken = as_text(value).removeprefix("https://").removeprefix("http://").rstrip("/")
    if not taken or "/" in taken or "@" in taken:
        raise ValueError(f"{taken!r} is not a registry host, like registry.example.com or 127.0.0.1:5000")
    return taken


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]


class Site(Strict):
    """The site's settings; every one has a default that works on a plain workstation."""

    registry: Annotated[str, BeforeValidator(_host)] = Field("127.0.0.1:5000", description="The registry's host")
    auth_file: Text | None = Field(None, description="Registry credentials; default: Podman's and Docker's own files")
    podman: Text | None = Field(None, description="Podman's service, like unix:///run/user/1000/podman/podman.sock")
    allow_rootful: bool = Field(False, description="Use a Podman service that runs as root")
    ca_bundle: Text | None = Field(None, description="CA certificates for builds; default: the host's bundle")
    apt_mirror: Text | None = Field(None, description="Mirror of the Debian or Ubuntu archive; default: the host's own")
    apt_security_mirror: Text | None = Field(
        None, description="Mirror of the security archive; default: the host's own"
    )
    apt_snapshot: bool = Field(
        False, description="The mirrors are dated snapshots: take their Release files, however old they are"
    )
    python_index: Text | None = Field(None, description="Python package index; default: pip's configuration")
    python_find_links: Words | None = Field(None, description="Folders with wheels; default: pip's configuration")
    pytorch_index: Text = Field(
        "https://download.pytorch.org/whl/{variant}", description="Index of torch builds, with a {variant} place"
    )
    mirrors: dict[str, Text] = Field({}, description="Registry host -> the mirror to pull base images from")
    build_network: Literal["host", "private"] = Field("host", description="The network of RUN steps in builds")
    gpu: Literal["auto", "require", "off"] = Field("auto", description="GPU smoke checks on CUDA rows")
    checks: Text | None = Field(None, description="The folder of the site's own smoke checks: <stage>/NN-name.py")
    drivers: Words = Field((), description="NVIDIA driver versions of the fleet, like 535.104.05")
    gpus: Words = Field((), description="GPU models of the fleet, like A100")
    default_branch: Text = Field("main", description="The branch whose images may carry the moving <row> tag")

    def checks_folder(self, project: Path) -> Path | None:
        """The folder of the site's own checks, if it has one; a relative one is in the project."""
        return project / self.checks if self.checks else None


def through_mirror(site: Site, reference: Reference) -> Reference:
    """Where to ask for an image: at the site's mirror of its registry, if there is one."""
    mirror = site.mirrors.get(reference.repository.registry)
    if not mirror:
        return reference
    host, _, folder = mirror.strip("/").partition("/")
    path = f"{folder}/{reference.repository.path}" if folder else reference.repository.path
    return replace(reference, repository=Repository(host, path))


def load(folder: Path, environment: Mapping[str, str] = os.environ) -> Site:
    """The settings of `site.yaml` in `folder`, if there is one, under those of `BUILDKIT_*` variables.

    Raises:
        InputError: a setting is unknown or wrong.
    """
    path = folder / FILE_NAME
    problems = ProblemList()
    tree: Any = yamlfile.load(path, FILE_NAME) if path.exists() else None
    top = Map() if tree is None else expect_map(tree, FILE_NAME, Location(FILE_NAME, 1, 1), problems)
    values = {key: _unquoted_bool(value) for key, value in top.items()} | _from_environment(environment)
    at = locator(top, FILE_NAME)

    def locate(where: tuple[str | int, ...], as_key: bool) -> Location:
        name = f"{ENVIRONMENT_PREFIX}{where[0]}".upper() if where else ""
        return Location(f"${name}") if name in environment else at(where, as_key)

    site = validate(Site, values, locate, problems)
    problems.raise_any()
    assert site is not None  # noqa: S101  (a site that is None has problems, raised above)
    if "{variant}" not in site.pytorch_index:
        problems.problems.append(Problem("pytorch_index needs a {variant} place", locate(("pytorch_index",), False)))
        problems.raise_any()
    return site


def _unquoted_bool(value: Any) -> Any:
    return value.value if isinstance(value, Plain) and isinstance(value.value, bool) else value


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings given as variables; variables that are no setting belong to somebody else."""
    names = {f"{ENVIRONMENT_PREFIX}{name}".upper(): name for name in Site.model_fields}
    return {names[key]: value for key, value in environment.items() if key in names and value}
