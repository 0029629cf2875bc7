"""Podman: images, builds and containers over the libpod API, with podman-py as the transport.

podman-py's own `images.build` and `images.push` drop parameters and hide failures (docs/design.md,
section 4), so requests are made on its client directly and every stream is read to its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import requests
import urllib3.exceptions
from podman import PodmanClient
from podman.errors import APIError

from imagebuild.errors import EngineError

OnLine = Callable[[str], None]

# What Podman would write into images of itself and of the moment: its version as a label, and as annotations of the
# manifest the parent's digest, which is another one for a parent that was pulled than for one that was built here.
_NO_TRACES = {
    "identitylabel": "false",
    "annotations": json.dumps(["org.opencontainers.image.base.digest=", "org.opencontainers.image.base.name="]),
}
# The manifest digest is over compressed layers: the host's containers.conf must not choose how. Older services know one
# format only, and ignore the rest.
_COMPRESSION = {"compressionFormat": "gzip", "forceCompressionFormat": "true"}


def _unheard(_line: str) -> None:
    """Where nobody listens to the engine's lines."""


@dataclass(frozen=True)
class Image:
    """An image in Podman's store; `id` is the digest of its config, `size` is in bytes, uncompressed."""

    id: str
    names: tuple[str, ...]
    labels: Mapping[str, str]
    size: int
    created: str


@dataclass(frozen=True)
class EngineInfo:
    """What kind of engine answers, and what its machine can do.

    `controllers` are the control groups that it can set limits with; `memory_bytes` is the machine's memory.
    """

    version: str
    rootless: bool
    storage_driver: str
    free_bytes: int | None
    cgroup_version: str = "2"
    controllers: frozenset[str] = frozenset()
    selinux: bool = False
    memory_bytes: int = 0


class Cancelled(Exception):  # noqa: N818  (not an error: somebody asked for it)
    """The work was cut short by `Podman.cancel`."""


class Podman:
    """One Podman service. Safe to use from several threads; `cancel` ends what runs in all of them."""

    def __init__(self, address: str, *, allow_rootful: bool = False) -> None:
        """Connect, and refuse an engine that runs as root unless told otherwise.

        Raises:
            EngineError: nothing answers at `address`, or the engine is rootful.
        """
        self.address = address
        self._local = threading.local()
        self._lock = threading.Lock()
        self._streams: set[requests.Response] = set()
        self._cancelled = threading.Event()
        self.info = self._info()
        if not self.info.rootless and not allow_rootful:
            raise EngineError(
                f"the Podman service at {address} runs as root",
                hint="use a user's service (scripts/setup makes one), or set `allow_rootful: true` in site.yaml",
            )

    # --- the engine -----------------------------------------------------------------------------

    def _info(self) -> EngineInfo:
        info = self.json("get", "/info", doing="ask Podman what it is")
        store, host = info["store"], info["host"]
        try:
            disk = os.statvfs(store["graphRoot"])
            free: int | None = disk.f_bavail * disk.f_frsize
        except OSError:  # another user's folder, or another machine's
            free = None
        security = host["security"]
        return EngineInfo(
            info["version"]["Version"], bool(security["rootless"]), store["graphDriverName"], free,
            cgroup_version=str(host.get("cgroupVersion", "v2")).removeprefix("v"),
            controllers=frozenset(host.get("cgroupControllers") or ()),
            selinux=bool(security.get("selinuxEnabled")), memory_bytes=int(host.get("memTotal", 0)),
        )  # fmt: skip

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """End every stream that is being read; the threads that read them get `Cancelled`."""
        self._cancelled.set()
        with self._lock:
            for response in self._streams:
                with contextlib.suppress(Exception):
                    response.raw.shutdown()

    # --- images ---------------------------------------------------------------------------------

    def images(self, label: str) -> list[Image]:
        """The images that carry a label, `key` or `key=value`."""
        found = self.json("get", "/images/json", params={"filters": json.dumps({"label": [label]})},
                           doing="list the images")  # fmt: skip
        return [
            Image(_full(one["Id"]), tuple(one.get("RepoTags") or one.get("Names") or ()),
                  one.get("Labels") or {}, int(one["Size"]), str(one["Created"]))
            for one in found
        ]  # fmt: skip

    def image(self, name: str) -> Image | None:
        """The image of this name or ID, or None."""
        response = self.request("get", f"/images/{_quoted(name)}/json", doing=f"inspect {name}", missing_ok=True)
        if response is None:
            return None
        one = response.json()
        if not one.get("Id"):
            raise EngineError(f"Podman describes {name} without an image ID", hint="`podman system check`, then retry")
        labels = one.get("Labels") or {}
        return Image(_full(one["Id"]), tuple(one.get("RepoTags") or ()), labels, int(one["Size"]), one["Created"])

    def layers(self, name: str) -> list[tuple[str, str, int]]:
        """The layers of an image, lowest first: diff ID, the step that made it, size in bytes, uncompressed.

        Empty for an image whose history does not tell of its layers one by one.
        """
        path, doing = f"/images/{_quoted(name)}", f"read the layers of {name}"
        image = self.json("get", f"{path}/json", doing=doing)
        newest_first = self.json("get", f"{path}/history", doing=doing)
        empty = [bool(entry.get("empty_layer")) for entry in image.get("History") or []]
        steps = [
            (str(entry["CreatedBy"]), int(entry["Size"]))
            for entry, nothing in zip(reversed(newest_first), empty, strict=False)
            if not nothing
        ]
        diff_ids = image["RootFS"].get("Layers") or []
        if len(steps) != len(diff_ids):
            return []
        return [(diff_id, *step) for diff_id, step in zip(diff_ids, steps, strict=True)]

    def tag(self, image: str, name: str) -> None:
        """Give an image one more name, `repository:tag`."""
        repository, _, tag = name.rpartition(":")
        self.request("post", f"/images/{_quoted(image)}/tag", params={"repo": repository, "tag": tag},
                      doing=f"name {image} {name}")  # fmt: skip

    def untag_or_remove(self, name: str) -> bool:
        """Remove a name, and the image when it was its last one. False where there was none."""
        path = f"/images/{_quoted(name)}"
        return self.request("delete", path, doing=f"remove {name}", missing_ok=True) is not None

    def pull(self, reference: str, *, auth: str = "", tls_verify: bool = True, on_line: OnLine = _unheard) -> Image:
        """Pull an image and return it.

        Args:
            reference: the full reference.
            auth: the value of X-Registry-Auth, as the service does not know the client's logins.
            tls_verify: False allows plain HTTP.
            on_line: gets each line that the engine says.

        Raises:
            EngineError: the pull failed, or gave no image.
        """
        params = {"reference": reference, "tlsVerify": _flag(tls_verify), "policy": "always"}
        headers = {"X-Registry-Auth": auth} if auth else {}
        doing = f"pull {reference}"
        for message in self._stream("/images/pull", params=params, headers=headers, doing=doing):
            if message.get("error"):
                raise EngineError(f"cannot {doing}: {message['error']}")
            on_line(str(message.get("stream", "")).rstrip())
        image = self.image(reference)
        if image is None:
            raise EngineError(f"cannot {doing}: Podman said that it did, but has no such image")
        return image

    def push(self, name: str, destination: str, *, auth: str = "", tls_verify: bool = True) -> None:
        """Push an image to `destination`. What the registry then holds must be read back from it.

        Raises:
            EngineError: the engine reports a failure, in its status or inside its answer.
        """
        doing = f"push {name} to {destination}"
        params = {"destination": destination, "tlsVerify": _flag(tls_verify), **_COMPRESSION}
        headers = {"X-Registry-Auth": auth} if auth else {}
        path = f"/images/{_quoted(name)}/push"
        for message in self._stream(path, params=params, headers=headers, doing=doing):
            if message.get("error"):
                raise EngineError(f"cannot {doing}: {message['error']}")

    def save(self, name: str, path: Path) -> None:
        """Write an image to an OCI archive: the manifest and the compressed layers that a push would send.

        Raises:
            EngineError: it could not be read to its end.
            Cancelled: `cancel` was called.
        """
        doing = f"save {name}"
        response = self.request("get", f"/images/{_quoted(name)}/get", params={"format": "oci-archive"}, stream=True,
                                doing=doing)  # fmt: skip
        assert response is not None  # noqa: S101
        with self.watched(response), path.open("wb") as file:
            try:
                for chunk in response.iter_content(1 << 20):
                    file.write(chunk)
            except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                if self.is_cancelled:
                    raise Cancelled from None
                raise EngineError(f"cannot {doing}: the answer broke off: {error}") from None

    def build(
        self, context: IO[bytes], name: str, *, secrets: Sequence[str], timestamp: int, cache: bool, network: str,
        on_line: OnLine,
    ) -> str:  # fmt: skip
        """Build a context whose Containerfile lies at its top; return the image ID.

        Args:
            context: a tar stream.
            name: the name that the image gets.
            secrets: `id=..,src=..` with paths in the context.
            timestamp: the `created` of everything, in seconds since 1970.
            cache: whether layers of earlier builds may be used.
            network: `host` or `private`, for RUN steps.
            on_line: gets each line of the log.

        Raises:
            EngineError: a step failed; the message is the engine's own.
            Cancelled: `cancel` was called.
        """
        params = {
            "dockerfile": "Containerfile", "t": name, "timestamp": timestamp, "secrets": json.dumps(list(secrets)),
            "layers": _flag(on=True), "nocache": _flag(not cache), "rm": _flag(on=True), "forcerm": _flag(on=True),
            "pullpolicy": "never", "networkmode": network, "outputformat": "application/vnd.oci.image.manifest.v1+json",
            **_NO_TRACES,
        }  # fmt: skip
        image_id, failure = "", ""
        doing = f"build {name}"
        for message in self._stream("/build", params=params, data=context, doing=doing):
            if text := message.get("stream"):
                for line in str(text).splitlines():
                    on_line(line)
                image_id = str(text).strip() or image_id
            if message.get("error") or message.get("errorDetail"):
                failure = str(message.get("error") or message["errorDetail"].get("message"))
        if failure:
            raise EngineError(failure.strip())
        image = self.image(image_id) if _is_id(image_id) else None
        if image is None:
            raise EngineError(f"cannot {doing}: the log ended without an image")
        return image.id

    # --- the API --------------------------------------------------------------------------------

    @property
    def api(self) -> Any:
        """podman-py's HTTP client, one a thread (its connection pool is not made for sharing)."""
        if not hasattr(self._local, "client"):
            self._local.client = PodmanClient(base_url=self.address, timeout=None)
        return self._local.client.api

    def request(
        self, method: str, path: str, *, doing: str, missing_ok: bool = False, **options: Any
    ) -> requests.Response | None:
        """One request; None where the answer is 404 and that is fine."""
        try:
            response: requests.Response = getattr(self.api, method)(path, **options)
        except (requests.RequestException, APIError, OSError) as error:
            raise self._unreachable(error, doing) from None
        if response.status_code == requests.codes.not_found and missing_ok:
            return None
        if not response.ok:
            raise EngineError(f"cannot {doing}: {_cause(response)}")
        return response

    def json(self, method: str, path: str, *, doing: str, **options: Any) -> Any:
        """One request, and its answer as JSON."""
        response = self.request(method, path, doing=doing, **options)
        assert response is not None  # noqa: S101  (only missing_ok gives None)
        return response.json()

    def _stream(self, path: str, *, doing: str, **options: Any) -> Iterator[dict[str, Any]]:
        """POST, and the JSON messages of the answer, one a line, until it ends."""
        response = self.request("post", path, doing=doing, stream=True, **options)
        assert response is not None  # noqa: S101
        with self.watched(response):
            try:
                for line in response.iter_lines(chunk_size=65536):
                    if line:
                        yield _message(line)
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                if self.is_cancelled:
                    raise Cancelled from None
                raise EngineError(f"cannot {doing}: the answer broke off: {error}") from None

    @contextlib.contextmanager
    def watched(self, response: requests.Response) -> Iterator[None]:
        """Let `cancel` reach the response while it is being read."""
        with self._lock:
            self._streams.add(response)
        try:
            if self.is_cancelled:
                raise Cancelled
            yield
        finally:
            with self._lock:
                self._streams.discard(response)
            response.close()

    def _unreachable(self, error: Exception, doing: str) -> Exception:
        if self.is_cancelled:
            return Cancelled()
        hint = "is the service running? scripts/setup starts it"
        return EngineError(f"cannot {doing}: no answer from Podman at {self.address} ({error})", hint=hint)


def _message(line: bytes) -> dict[str, Any]:
    value = json.loads(line)
    return value if isinstance(value, dict) else {}


def _cause(response: requests.Response) -> str:
    """What the engine says went wrong; its `cause` alone is often just the last word of it."""
    try:
        body = response.json()
    except ValueError:
        return f"HTTP {response.status_code}"
    return str(body.get("message") or body.get("cause") or f"HTTP {response.status_code}")


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _flag(on: bool) -> str:
    return "true" if on else "false"


def _full(image_id: str) -> str:
    return image_id if image_id.startswith("sha256:") else f"sha256:{image_id}"


def _is_id(text: str) -> bool:
    return len(text) == 64 and all(digit in "0123456789abcdef" for digit in text)
