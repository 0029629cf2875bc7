"""Moves images between Podman's store and registries, and believes only what the registry gives back."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from imagebuild.engine.auth import is_loopback
from imagebuild.engine.git import Commit
from imagebuild.engine.podman import Podman
from imagebuild.engine.registry import Registry
from imagebuild.errors import EngineError, RegistryError
from imagebuild.spec.reference import Reference, Repository, commit_tag, newest_tag, parse_reference, version_tag
from imagebuild.spec.site import Site, through_mirror

T = TypeVar("T")
_ATTEMPTS = 3
_FINAL = re.compile(r"unauthorized|authentication required|denied|forbidden|not found|manifest unknown", re.IGNORECASE)
_NO_LOGIN = re.compile(r"unauthorized|authentication required|denied|forbidden", re.IGNORECASE)


def push(podman: Podman, registry: Registry, name: str, image_id: str, address: Reference) -> str:
    """Push an image to its address and return the manifest digest that the registry then has there.

    Raises:
        EngineError, RegistryError: the push failed, or the registry holds something else afterwards.
    """
    auth, verify = _access(registry, address.repository)
    _retried(lambda: podman.push(name, str(address), auth=auth, tls_verify=verify), registry)
    manifest = registry.get_manifest(address)
    if manifest.config_digest != image_id:
        message = f"{address} holds image {manifest.config_digest} after the push, not {image_id}"
        raise RegistryError(message, hint="something else writes to this address; nothing was tagged")
    return manifest.digest


def pull(podman: Podman, registry: Registry, address: Reference, name: str) -> str:
    """Pull what an address holds, give it its local name, and return the image ID.

    The local name is then its only one: Podman writes an image's first name into the history of its children, and
    they are to be the same wherever the parent came from.
    """
    auth, verify = _access(registry, address.repository)
    image = _retried(lambda: podman.pull(str(address), auth=auth, tls_verify=verify), registry)
    podman.tag(image.id, name)
    if str(address) != name:
        podman.untag_or_remove(str(address))
    return image.id


def pull_base(podman: Podman, reference: str, site: Site) -> None:
    """Pull a base image, through the site's mirror if there is one, and give it its own name.

    Raises:
        EngineError: it cannot be had.
    """
    wanted = parse_reference(reference)
    source = through_mirror(site, wanted)
    name = reference
    if wanted.digest:
        # A digest is no name to give. With one of the same repository, the image is found by repository and digest.
        name = str(wanted.repository.tagged(f"locked-{wanted.digest.removeprefix('sha256:')[:12]}"))
    registry = Registry(source.repository.registry)
    hint = "`mirrors:` in site.yaml names the registries that this site can reach"
    try:
        pull(podman, registry, source, name)
    except EngineError as error:
        raise EngineError(f"base image {reference} cannot be pulled: {error.message}", hint=hint) from None


def tags_of(row: str, version: str, commit: Commit, site: Site) -> list[str]:
    """The tags, beside its address, that a row's image has by right now: a function of the plan, not of history."""
    tags = [version_tag(row, version)]
    if commit.is_exact:
        tags.append(commit_tag(row, commit.id))
        if commit.branch == site.default_branch:
            tags.append(newest_tag(row))
    return tags


def reconcile(registry: Registry, address: Reference, digest: str, tags: Sequence[str]) -> list[str]:
    """Let every tag name the digest; returns those that did not yet."""
    references = [address.repository.tagged(tag) for tag in tags]
    found = registry.heads(references)
    wrong = [one.tag for one in references if (has := found[one]) is None or has.digest != digest]
    if wrong:
        registry.retag(address.repository.at(digest), *wrong)
    return wrong


def _access(registry: Registry, repository: Repository) -> tuple[str, bool]:
    """What Podman needs to talk to a registry: the login, as its service has none of its own, and whether by TLS."""
    credentials = registry.credentials(repository)
    return (credentials.registry_auth() if credentials else ""), not is_loopback(registry.host)


def _retried(attempt: Callable[[], T], registry: Registry) -> T:
    """Try a transfer again where that may help: transfers resume with the layers that arrived."""

    def passing(error: BaseException) -> bool:
        return isinstance(error, EngineError) and not _FINAL.search(str(error))

    wait = wait_exponential(multiplier=1, max=10)
    retrying = Retrying(
        stop=stop_after_attempt(_ATTEMPTS), wait=wait, retry=retry_if_exception(passing), reraise=True
    )  # fmt: skip
    try:
        return retrying(attempt)
    except EngineError as error:
        if _NO_LOGIN.search(error.message):
            hint = f"`podman login {registry.host}`, or name a file in site.yaml (`auth_file:`)"
            raise EngineError(f"registry {registry.host} refused the login: {error.message}", hint=hint) from None
        raise
