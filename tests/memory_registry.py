"""A registry in memory, which behaves like docker-registry 2: for tests with very many requests."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from threading import Lock

import httpx

from imagebuild.engine.manifest import digest_of
from imagebuild.engine.transport import Transport

_URL = re.compile(r"/v2/(.+)/(manifests|blobs|tags)/(.+)")


class MemoryRegistry:
    """Call it with a request, as `httpx.MockTransport` does."""

    host = "127.0.0.1:1"

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: defaultdict[str, dict[str, httpx.Request]] = defaultdict(dict)
        self.tags: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._lock = Lock()

    def transport(self) -> Transport:
        """A connection to it."""
        return Transport(self.host, backend=httpx.MockTransport(self))

    def __call__(self, request: httpx.Request) -> httpx.Response:
        match = _URL.fullmatch(request.url.path)
        if not match:
            return httpx.Response(404)
        repository, kind, name = match.groups()
        with self._lock:
            return getattr(self, f"_{kind}")(request, repository, name)  # type: ignore[no-any-return]

    def _tags(self, _request: httpx.Request, repository: str, _name: str) -> httpx.Response:
        found = self.tags[repository]
        return (
            httpx.Response(200, json={"tags": list(found) or None})
            if repository in self.manifests
            else httpx.Response(404)
        )

    def _blobs(self, request: httpx.Request, repository: str, name: str) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(202, headers={"Location": f"/v2/{repository}/blobs/uploads/1"})
        if request.method == "PUT":
            digest = request.url.params["digest"]
            if digest != digest_of(request.content):
                return httpx.Response(400)
            self.blobs[digest] = request.content
            return httpx.Response(201)
        return httpx.Response(200, content=self.blobs[name]) if name in self.blobs else httpx.Response(404)

    def _manifests(self, request: httpx.Request, repository: str, name: str) -> httpx.Response:
        stored, tags = self.manifests[repository], self.tags[repository]
        digest = digest_of(request.content) if request.method == "PUT" else tags.get(name, name)
        headers = {"Docker-Content-Digest": digest}
        if request.method == "PUT":
            value = json.loads(request.content)
            listed = {entry["digest"] for entry in value.get("manifests", [])}
            needed = {entry["digest"] for entry in [*value.get("layers", []), *filter(None, [value.get("config")])]}
            if not (needed <= self.blobs.keys() and listed <= stored.keys()):
                return httpx.Response(400)
            stored[digest] = request
            if ":" not in name:
                tags[name] = digest
            return httpx.Response(201, headers=headers)
        if digest not in stored:
            return httpx.Response(404)
        if request.method == "DELETE":
            if ":" not in name:
                return httpx.Response(400)
            del stored[digest]
            self.tags[repository] = {tag: named for tag, named in tags.items() if named != digest}
            return httpx.Response(202)
        manifest = stored[digest]
        headers |= {"Content-Type": manifest.headers["Content-Type"], "Content-Length": str(len(manifest.content))}
        return httpx.Response(200, content=b"" if request.method == "HEAD" else manifest.content, headers=headers)
