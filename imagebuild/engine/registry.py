"""A registry: manifests, blobs and tags in it, and the artifacts that hang on a digest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from imagebuild.engine.credentials import Credentials
from imagebuild.engine.manifest import (
    EMPTY_JSON,
    MANIFEST_TYPES,
    OCI_INDEX,
    OCI_MANIFEST,
    TITLE,
    Descriptor,
    Manifest,
    canonical_json,
    digest_of,
)
from imagebuild.engine.transport import Transport
from imagebuild.errors import InputError, RegistryError
from imagebuild.spec.reference import Reference, Repository, check_digest, check_tag

_ACCEPT = {"Accept": ", ".join(MANIFEST_TYPES)}
_EMPTY = b"{}"
_CONCURRENT = 16
_INDEX_ROUNDS = 6


class Registry:
    """One registry. Safe to use from several threads at once.

    Args:
        host: host, with its port if it has one.
        auth_file: the only file to look for a login in (default: where Podman and Docker look).
        ca_bundle: PEM file trusted in addition to the system's own certificates.
        attempts: how often a request is sent before it counts as failed; 1 fails fast.
        timeout: seconds an answer may take.
        connect_timeout: seconds a connection may take.
        transport: stands in for all of the above.
    """

    def __init__(
        self,
        host: str,
        *,
        auth_file: Path | None = None,
        ca_bundle: Path | None = None,
        attempts: int = 4,
        timeout: float = 60.0,
        connect_timeout: float = 5.0,
        transport: Transport | None = None,
    ) -> None:
        self.host = host
        self._transport = transport or Transport(
            host,
            auth_file=auth_file,
            ca_bundle=ca_bundle,
            attempts=attempts,
            timeout=timeout,
            connect_timeout=connect_timeout,
        )
        self._index_lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def credentials(self, repository: Repository | None = None) -> Credentials | None:
        """The login for this registry (or one repository of it), for handing on to the engine."""
        return self._transport.credentials(repository.path if repository else "")

    def ping(self) -> None:
        """Ask once, and without trying again, whether the registry is there; raise `RegistryError` if not."""
        doing = f"asking registry {self.host} whether it is there"
        self._transport.retry(lambda: self._transport.send_once("GET", "/v2/", doing=doing), doing, attempts=1)

    def head(self, reference: Reference) -> Descriptor | None:
        """What a reference names now, or None where the registry has no such thing."""
        doing = f"looking for {reference}"
        url = self._url(reference.repository, "manifests", reference.target)
        response = self._transport.send("HEAD", url, doing=doing, ok=(200, 404), headers=_ACCEPT)
        if response.status_code == 404:
            return None
        digest = response.headers.get("Docker-Content-Digest", "")
        size = response.headers.get("Content-Length", "")
        media_type = response.headers.get("Content-Type", "").partition(";")[0]
        if not (digest and size.isdecimal() and media_type):
            # The specification lets a registry leave these out; the manifest itself has them all.
            return self.get_manifest(reference).descriptor
        if reference.digest and digest != reference.digest:
            raise RegistryError(f"{doing}: the registry answered with {digest}")
        return Descriptor(media_type, _sound(digest, doing), int(size))

    def heads(self, references: Iterable[Reference]) -> dict[Reference, Descriptor | None]:
        """`head` of many references, all at the same time."""
        wanted = list(dict.fromkeys(references))
        if not wanted:
            return {}
        with ThreadPoolExecutor(min(_CONCURRENT, len(wanted))) as pool:
            return dict(zip(wanted, pool.map(self.head, wanted), strict=True))

    def get_manifest(self, reference: Reference) -> Manifest:
        """The manifest or index that a reference names, checked against the digest the registry gives."""
        manifest = self._find_manifest(reference)
        if manifest is None:
            raise RegistryError(f"{reference} is not in the registry", status=404)
        return manifest

    def put_manifest(self, repository: Repository, name: str, content: bytes, media_type: str) -> Descriptor:
        """Write a manifest under a tag or its own digest, and check that the registry took these very bytes."""
        descriptor = Manifest(content, media_type).descriptor
        self._put(repository, name, descriptor, content)
        return descriptor

    def retag(self, source: Reference, *tags: str) -> Descriptor:
        """Let more tags of the same repository name what `source` names: a PUT of the same bytes each."""
        for tag in tags:
            check_tag(tag)
        manifest = self.get_manifest(source)
        for tag in tags:
            self._put(source.repository, tag, manifest.descriptor, manifest.content)
        return manifest.descriptor

    def get_blob(self, repository: Repository, digest: str) -> bytes:
        """The content with this digest, checked against it."""
        doing = f"reading blob {digest} of {repository}"
        url = self._url(repository, "blobs", check_digest(digest))
        content = self._transport.send("GET", url, doing=doing).content
        if digest_of(content) != digest:
            raise RegistryError(f"{doing}: the registry sent other content ({digest_of(content)})")
        return content

    def put_blob(self, repository: Repository, content: bytes, media_type: str) -> Descriptor:
        """Store some bytes, unless they are there already, and return what points at them."""
        descriptor = Descriptor.of(content, media_type)
        doing = f"writing blob {descriptor.digest} to {repository}"
        url = self._url(repository, "blobs", descriptor.digest)
        if self._transport.send("HEAD", url, doing=doing, ok=(200, 404)).status_code == 404:
            # An upload session does not survive a failure, so each attempt begins a new one.
            self._transport.retry(lambda: self._upload(repository, descriptor.digest, content, doing), doing)
        return descriptor

    def list_tags(self, repository: Repository) -> list[str]:
        """All tags of a repository, sorted; none where the repository does not exist (yet)."""
        tags: set[str] = set()
        for page in self._pages(f"{self._url(repository, 'tags', 'list')}?n=1000", f"listing the tags of {repository}"):
            tags.update(page.get("tags") or [])
        return sorted(tags)

    def delete_manifest(self, repository: Repository, digest: str) -> bool:
        """Delete a manifest, and with it all tags that name it. False where it was not there."""
        doing = f"deleting {repository}@{digest}"
        url = self._url(repository, "manifests", check_digest(digest))
        response = self._transport.send("DELETE", url, doing=doing, ok=(200, 202, 404, 405))
        if response.status_code == 405:
            hint = "docker-registry needs `storage.delete.enabled: true` in its configuration"
            raise RegistryError(f"{doing}: the registry does not allow deleting", hint=hint, status=405)
        return response.status_code != 404

    def delete_tag(self, repository: Repository, tag: str) -> bool:
        """Delete a tag, and nothing but the tag. False where it was not there."""
        reference = repository.tagged(tag)
        if self.head(reference) is None:
            return False
        url = self._url(repository, "manifests", tag)
        answer = self._transport.send("DELETE", url, doing=f"deleting {reference}", ok=(200, 202, 400, 404, 405))
        if answer.status_code in (400, 405):
            # docker-registry 2 deletes by digest only, with all tags of that digest: so first let the
            # tag name a manifest that nothing else names.
            scratch = self._artifact(repository, "application/vnd.buildkit.deleted", {}, {"io.buildkit.tag": tag})
            self._put(repository, tag, scratch.descriptor, scratch.content)
            self.delete_manifest(repository, scratch.digest)
        return True

    def push_artifact(
        self,
        repository: Repository,
        artifact_type: str,
        files: Mapping[str, tuple[bytes, str]],
        *,
        subject: Descriptor | None = None,
        annotations: Mapping[str, str] | None = None,
        tag: str = "",
    ) -> Descriptor:
        """Store files as one artifact, which hangs on `subject` if that is given.

        Args:
            repository: where; it must be the subject's own repository.
            artifact_type: media type that says what kind of artifact this is.
            files: name -> (content, media type).
            subject: the manifest that the artifact is about.
            annotations: on the artifact.
            tag: names the artifact, besides its digest.
        """
        manifest = self._artifact(repository, artifact_type, files, annotations or {}, subject)
        answer = self._put(repository, tag or manifest.digest, manifest.descriptor, manifest.content)
        if subject and answer.headers.get("OCI-Subject") != subject.digest:
            self._list_as_referrer(repository, subject.digest, manifest.descriptor)
        return manifest.descriptor

    def referrers(self, repository: Repository, digest: str, artifact_type: str = "") -> list[Descriptor]:
        """What hangs on a digest (of one type, if given), in no particular order."""
        url = self._url(repository, "referrers", check_digest(digest))
        pages = list(self._pages(url, f"listing what hangs on {repository}@{digest}"))
        if pages:
            entries = [Descriptor.from_json(entry) for page in pages for entry in page.get("manifests") or []]
        else:
            index = self._find_manifest(repository.tagged(_fallback_tag(digest)))
            entries = index.manifests if index else []
        return [entry for entry in entries if artifact_type in ("", entry.artifact_type)]

    def _url(self, repository: Repository, kind: str, name: str) -> str:
        if repository.registry != self.host:
            raise ValueError(f"{repository} is not in registry {self.host}")
        return f"/v2/{quote(repository.path)}/{kind}/{quote(name, safe=':')}"

    def _find_manifest(self, reference: Reference) -> Manifest | None:
        doing = f"reading {reference}"
        url = self._url(reference.repository, "manifests", reference.target)
        response = self._transport.send("GET", url, doing=doing, ok=(200, 404), headers=_ACCEPT)
        if response.status_code == 404:
            return None
        manifest = Manifest(response.content, response.headers.get("Content-Type", "").partition(";")[0])
        given = reference.digest or response.headers.get("Docker-Content-Digest") or manifest.digest
        if given != manifest.digest:
            raise RegistryError(f"{doing}: the content has digest {manifest.digest}, not {given}")
        try:
            media_type = manifest.json.get("mediaType") or manifest.media_type
        except ValueError as error:
            raise RegistryError(f"{doing}: the answer is not a manifest: {error}") from error
        return Manifest(response.content, media_type)

    def _put(self, repository: Repository, name: str, descriptor: Descriptor, content: bytes) -> httpx.Response:
        doing = f"writing {repository.at(name) if ':' in name else repository.tagged(name)}"
        headers = {"Content-Type": descriptor.media_type}
        url = self._url(repository, "manifests", name)
        response = self._transport.send("PUT", url, doing=doing, ok=(200, 201), headers=headers, content=content)
        stored = response.headers.get("Docker-Content-Digest", descriptor.digest)
        if stored != descriptor.digest:
            raise RegistryError(f"{doing}: the registry stored {stored} instead of {descriptor.digest}")
        return response

    def _upload(self, repository: Repository, digest: str, content: bytes, doing: str) -> None:
        send = self._transport.send_once
        started = send("POST", self._url(repository, "blobs", "uploads/"), doing=doing, ok=(202,))
        location = started.headers.get("Location")
        if not location:
            raise RegistryError(f"{doing}: the registry began an upload without saying where to")
        target = started.request.url.join(location).copy_merge_params({"digest": digest})
        headers = {"Content-Type": "application/octet-stream"}
        send("PUT", str(target), doing=doing, ok=(201, 204), headers=headers, content=content)

    def _pages(self, url: str, doing: str) -> Iterable[dict[str, Any]]:
        """The JSON pages of a listing, along its `next` links; none where it does not exist."""
        seen: set[str] = set()
        while url and url not in seen:
            seen.add(url)
            response = self._transport.send("GET", url, doing=doing, ok=(200, 404, 405))
            if response.status_code != 200:
                return
            try:
                page = response.json()
            except ValueError as error:
                raise RegistryError(f"{doing}: the answer is not JSON: {error}") from error
            yield page if isinstance(page, dict) else {}
            following = response.links.get("next", {}).get("url", "")
            url = str(response.request.url.join(following)) if following else ""

    def _artifact(
        self,
        repository: Repository,
        artifact_type: str,
        files: Mapping[str, tuple[bytes, str]],
        annotations: Mapping[str, str],
        subject: Descriptor | None = None,
    ) -> Manifest:
        """Store the blobs of an artifact and return its manifest, which is not stored yet."""
        config = self.put_blob(repository, _EMPTY, EMPTY_JSON)
        layers = []
        for name, (content, media_type) in files.items():
            blob = self.put_blob(repository, content, media_type)
            layers.append(Descriptor(media_type, blob.digest, blob.size, annotations={TITLE: name}))
        value: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": artifact_type,
            "config": config.as_json(),
            # The specification wants at least one layer, and offers the empty one for this.
            "layers": [layer.as_json() for layer in layers or [config]],
        }
        if subject:
            value["subject"] = {"mediaType": subject.media_type, "digest": subject.digest, "size": subject.size}
        if annotations:
            value["annotations"] = dict(annotations)
        return Manifest(canonical_json(value), OCI_MANIFEST)

    def _list_as_referrer(self, repository: Repository, subject: str, artifact: Descriptor) -> None:
        """Add an artifact to the list that stands in for the referrers API, and read it back.

        Another writer may replace the list between our reading and writing it, so this goes on until
        a read shows the artifact.
        """
        reference = repository.tagged(_fallback_tag(subject))
        with self._index_lock:
            for _round in range(_INDEX_ROUNDS):
                index = self._find_manifest(reference)
                entries = index.manifests if index else []
                if artifact.digest in [entry.digest for entry in entries]:
                    return
                self._put_index(reference, [*self._existing(repository, entries), artifact])
        raise RegistryError(f"{reference} keeps losing {artifact.digest}: somebody else is writing it all the time")

    def _existing(self, repository: Repository, entries: Sequence[Descriptor]) -> list[Descriptor]:
        """The entries whose manifests are still there: a registry refuses a list that names others."""
        found = self.heads(repository.at(entry.digest) for entry in entries)
        return [entry for entry in entries if found[repository.at(entry.digest)]]

    def _put_index(self, reference: Reference, entries: Sequence[Descriptor]) -> None:
        value = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry.as_json() for entry in entries]}
        self.put_manifest(reference.repository, reference.tag, json.dumps(value, indent=1).encode(), OCI_INDEX)


def _fallback_tag(digest: str) -> str:
    return digest.replace(":", "-")


def _sound(digest: str, doing: str) -> str:
    with suppress(InputError):
        return check_digest(digest)
    raise RegistryError(f"{doing}: the registry answered with the digest {digest!r}")
