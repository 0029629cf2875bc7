"""Faults of a registry: what is tried again, what is not, and what the user is told."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx
import pytest

from imagebuild.engine.auth import is_loopback
from imagebuild.engine.manifest import OCI_INDEX, OCI_MANIFEST, digest_of
from imagebuild.engine.registry import Registry
from imagebuild.engine.transport import Transport
from imagebuild.errors import RegistryError
from imagebuild.spec.reference import Repository

HOST = "registry.lab"
REPOSITORY = Repository(HOST, "p/train")
MANIFEST = b'{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}'
ATTEMPTS = 4
Answer = httpx.Response | Exception
PASSING: list[Callable[[], Answer]] = [
    lambda: httpx.Response(429, headers={"Retry-After": "2"}),
    lambda: httpx.Response(500),
    lambda: httpx.Response(503, json={"errors": [{"code": "UNAVAILABLE", "message": "busy"}]}),
    lambda: httpx.ConnectError("connection refused"),
    lambda: httpx.ReadError("connection reset"),
    lambda: httpx.RemoteProtocolError("peer closed connection"),
    lambda: httpx.ReadTimeout("timed out"),
]


class Fake:
    """Answers with what it is given, in order, and then always with the last one; keeps the requests."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.slept: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def registry(fake: Callable[[httpx.Request], httpx.Response], host: str = HOST, **options: object) -> Registry:
    sleep = fake.slept.append if isinstance(fake, Fake) else (lambda _seconds: None)
    backend = httpx.MockTransport(fake)
    transport = Transport(host, backend=backend, sleep=sleep, attempts=ATTEMPTS, **options)  # type: ignore[arg-type]
    return Registry(host, transport=transport)


def found(content: bytes = MANIFEST, digest: str = "") -> httpx.Response:
    headers = {"Content-Type": OCI_MANIFEST} | ({"Docker-Content-Digest": digest} if digest else {})
    return httpx.Response(200, content=content, headers=headers)


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("faults", [ATTEMPTS - 1, ATTEMPTS, ATTEMPTS + 1])
def test_exhausted_means_failed(fault: Callable[[], Answer], faults: int) -> None:
    fake = Fake(*(fault() for _ in range(faults)), found())
    if faults < ATTEMPTS:
        assert registry(fake).get_manifest(REPOSITORY.tagged("cpu")).content == MANIFEST
        assert len(fake.requests) == faults + 1
    else:
        with pytest.raises(RegistryError) as caught:
            registry(fake).get_manifest(REPOSITORY.tagged("cpu"))
        assert len(fake.requests) == ATTEMPTS
        assert "reading registry.lab/p/train:cpu: GET https://registry.lab/v2/p/train/manifests/cpu" in str(
            caught.value
        )
        assert f"failed {ATTEMPTS} times" in str(caught.value)
    assert len(fake.slept) == len(fake.requests) - 1


@pytest.mark.parametrize("status", [400, 404, 405, 409, 413, 501])
def test_failures_that_stay_are_not_tried_again(status: int) -> None:
    error = httpx.Response(status, json={"errors": [{"code": "MANIFEST_INVALID", "message": "no\n such   thing"}]})
    fake = Fake(error)
    with pytest.raises(RegistryError, match=r"MANIFEST_INVALID: no such thing") as caught:
        registry(fake).put_manifest(REPOSITORY, "cpu", MANIFEST, OCI_MANIFEST)
    assert caught.value.status == status
    assert len(fake.requests) == 1


def test_write_that_met_another_write_inside_the_registry_is_tried_again() -> None:
    met = httpx.Response(400, json={"errors": [{"code": "DIGEST_INVALID"}]})
    fake = Fake(met, httpx.Response(201))
    assert registry(fake).put_manifest(REPOSITORY, "cpu", MANIFEST, OCI_MANIFEST).digest == digest_of(MANIFEST)
    with pytest.raises(RegistryError, match=f"failed {ATTEMPTS} times; the last time: 400 Bad Request .DIGEST_INVALID"):
        registry(Fake(met)).put_manifest(REPOSITORY, "cpu", MANIFEST, OCI_MANIFEST)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"errors": []}', b'{"errors": "x"}', b'{"errors": [1]}'])
def test_errors_without_details_still_say_what_failed(body: bytes) -> None:
    with pytest.raises(RegistryError, match="418"):
        registry(Fake(httpx.Response(418, content=body))).head(REPOSITORY.tagged("cpu"))


def test_retry_after_is_honoured() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    answers = [httpx.Response(429, headers={"Retry-After": after}) for after in ("7", later, "soon")]
    fake = Fake(*answers, found())
    registry(fake).get_manifest(REPOSITORY.tagged("cpu"))
    assert fake.slept[0] == 7
    assert 25 < fake.slept[1] <= 30
    assert fake.slept[2] < 10


def test_retry_after_beyond_the_bound_fails_at_once() -> None:
    fake = Fake(httpx.Response(429, headers={"Retry-After": "3600"}))
    with pytest.raises(RegistryError, match="429") as caught:
        registry(fake).head(REPOSITORY.tagged("cpu"))
    assert "3600 s" in caught.value.hint
    assert fake.slept == []


def test_backoff_grows() -> None:
    fake = Fake(httpx.Response(500))
    with pytest.raises(RegistryError):
        registry(fake).head(REPOSITORY.tagged("cpu"))
    assert fake.slept == sorted(fake.slept)
    assert sum(fake.slept) < 5


def test_upload_begins_again_after_a_broken_connection() -> None:
    sessions = 0

    def serve(request: httpx.Request) -> httpx.Response:
        nonlocal sessions
        if request.method == "HEAD":
            return httpx.Response(404)
        if request.method == "POST":
            sessions += 1
            return httpx.Response(
                202, headers={"Location": f"/v2/p/train/blobs/uploads/{sessions}?state=secret{sessions}"}
            )
        assert request.url.path.endswith(f"/{sessions}")
        assert request.url.params["state"] == f"secret{sessions}"
        assert request.url.params["digest"] == digest_of(b"content")
        if sessions < 3:
            raise httpx.WriteError("broken pipe")
        return httpx.Response(201)

    assert registry(serve).put_blob(REPOSITORY, b"content", "text/plain").digest == digest_of(b"content")
    assert sessions == 3
    sessions = -10
    with pytest.raises(RegistryError, match="broken pipe") as caught:
        registry(serve).put_blob(REPOSITORY, b"content", "text/plain")
    assert "secret" not in str(caught.value)


def test_ping_asks_once() -> None:
    fake = Fake(httpx.ConnectError("connection refused"))
    with pytest.raises(RegistryError, match=r"GET https://registry\.lab/v2/ failed once: connection refused") as caught:
        registry(fake).ping()
    assert "https://registry.lab" in caught.value.hint
    assert len(fake.requests) == 1


def test_certificate_nobody_trusts_is_not_tried_again() -> None:
    fake = Fake(httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"))
    with pytest.raises(RegistryError, match="self-signed") as caught:
        registry(fake).ping()
    assert "ca_bundle" in caught.value.hint
    assert len(fake.requests) == 1


def test_ca_bundle_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for path in (tmp_path / "ca.pem", tmp_path / "absent.pem"):
        with pytest.raises(RegistryError, match="cannot use the CA bundle"):
            Registry(HOST, ca_bundle=path)


def test_content_that_does_not_fit_its_digest_is_refused() -> None:
    other = digest_of(b"other")
    with pytest.raises(RegistryError, match="the content has digest"):
        registry(Fake(found(digest=other))).get_manifest(REPOSITORY.tagged("cpu"))
    with pytest.raises(RegistryError, match="the content has digest"):
        registry(Fake(found())).get_manifest(REPOSITORY.at(other))
    with pytest.raises(RegistryError, match="other content"):
        registry(Fake(httpx.Response(200, content=b"x"))).get_blob(REPOSITORY, other)
    stored = httpx.Response(201, headers={"Docker-Content-Digest": other})
    with pytest.raises(RegistryError, match="stored sha256"):
        registry(Fake(stored)).put_manifest(REPOSITORY, "cpu", MANIFEST, OCI_MANIFEST)
    headers = {"Docker-Content-Digest": "", "Content-Length": "9", "Content-Type": OCI_MANIFEST}
    for answer, match in ((other, "answered with sha256"), ("nonsense", "the digest 'nonsense'")):
        reference = REPOSITORY.at(digest_of(MANIFEST)) if answer == other else REPOSITORY.tagged("cpu")
        with pytest.raises(RegistryError, match=match):
            registry(Fake(httpx.Response(200, headers=headers | {"Docker-Content-Digest": answer}))).head(reference)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]"])
def test_answer_that_is_no_manifest_is_refused(body: bytes) -> None:
    with pytest.raises(RegistryError, match="not a manifest"):
        registry(Fake(found(body))).get_manifest(REPOSITORY.tagged("cpu"))
    with pytest.raises(RegistryError, match="not a manifest"):
        registry(Fake(httpx.Response(200, content=body))).head(REPOSITORY.tagged("cpu"))


def test_head_without_a_digest_reads_the_manifest() -> None:
    descriptor = registry(Fake(found())).head(REPOSITORY.tagged("cpu"))
    assert descriptor
    assert (descriptor.digest, descriptor.size) == (digest_of(MANIFEST), len(MANIFEST))


def test_tags_come_in_pages() -> None:
    link = {"Link": '</v2/p/train/tags/list?last=b&n=2>; rel="next"'}
    fake = Fake(
        httpx.Response(200, json={"tags": ["a", "b"]}, headers=link),
        httpx.Response(200, json={"tags": ["c"]}),
    )
    assert registry(fake).list_tags(REPOSITORY) == ["a", "b", "c"]
    assert fake.requests[1].url.params["last"] == "b"
    assert registry(Fake(httpx.Response(200, json={"tags": None}))).list_tags(REPOSITORY) == []
    endless = Fake(httpx.Response(200, json={"tags": ["a"]}, headers=link))
    assert registry(endless).list_tags(REPOSITORY) == ["a"]


def test_referrers_api_is_preferred_to_the_fallback_tag() -> None:
    subject = digest_of(MANIFEST)
    listed = {"mediaType": OCI_MANIFEST, "digest": digest_of(b"x"), "size": 1, "artifactType": "a/b"}
    calls: list[str] = []

    def serve(request: httpx.Request) -> httpx.Response:
        calls.append(f"{request.method} {request.url.path}")
        if "/referrers/" in request.url.path:
            return httpx.Response(200, json={"mediaType": OCI_INDEX, "manifests": [listed]})
        if request.method == "PUT":
            return httpx.Response(201, headers={"OCI-Subject": subject})
        return httpx.Response(200)

    client = registry(serve)
    assert [entry.digest for entry in client.referrers(REPOSITORY, subject, "a/b")] == [digest_of(b"x")]
    assert client.referrers(REPOSITORY, subject, "c/d") == []
    head = httpx.Response(
        200, headers={"Docker-Content-Digest": subject, "Content-Length": "1", "Content-Type": OCI_MANIFEST}
    )
    descriptor = registry(Fake(head)).head(REPOSITORY.tagged("cpu"))
    client.push_artifact(REPOSITORY, "a/b", {}, subject=descriptor)
    assert not [call for call in calls if "manifests/sha256-" in call]


def test_repository_of_another_registry_is_a_bug() -> None:
    with pytest.raises(ValueError, match="is not in registry"):
        registry(Fake(found())).head(Repository("other.lab", "p").tagged("cpu"))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1:5000", True),
        ("127.9.9.9", True),
        ("localhost:5000", True),
        ("[::1]:5000", True),
        ("registry.lab:5000", False),
        ("10.0.0.1:5000", False),
        ("localhost.lab", False),
        ("docker.io", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    transport = Transport(host)
    assert transport.base.startswith("http://" if loopback else "https://")
    transport.close()


# -- logging in ---------------------------------------------------------------------------------


def auth_file(folder: Path, password: str = "open-sesame") -> Path:
    path = folder / "auth.json"
    path.write_text(json.dumps({"auths": {HOST: {"auth": base64.b64encode(f"ci:{password}".encode()).decode()}}}))
    return path


class TokenRegistry:
    """A registry with a token service. Tokens can be made to expire."""

    def __init__(self, realm: str = "https://auth.lab/token", challenge: str = "") -> None:
        scope = "repository:p/train:pull,push"
        self.challenge = challenge or f'Bearer realm="{realm}",service="{HOST}",scope="{scope}"'
        self.issued = 0
        self.valid = ""
        self.requests: list[httpx.Request] = []
        self.token_answer: httpx.Response | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if request.url.host == "auth.lab":
            if self.token_answer:
                return self.token_answer
            self.issued += 1
            self.valid = f"token-{self.issued}"
            return httpx.Response(200, json={"token": self.valid})
        if request.url.host != HOST:
            return httpx.Response(200, content=b"content")
        if request.headers.get("Authorization") != f"Bearer {self.valid}" or not self.valid:
            return httpx.Response(401, headers={"WWW-Authenticate": self.challenge})
        if "/blobs/" in request.url.path:
            return httpx.Response(307, headers={"Location": "https://storage.lab/x?signature=s3cr3t"})
        return found()


def test_bearer_token_is_fetched_once_and_again_when_it_expires(tmp_path: Path) -> None:
    server = TokenRegistry()
    client = registry(server, auth_file=auth_file(tmp_path))
    for _ in range(3):
        client.get_manifest(REPOSITORY.tagged("cpu"))
    assert server.issued == 1
    token_request = next(request for request in server.requests if request.url.host == "auth.lab")
    assert dict(token_request.url.params) == {"service": HOST, "scope": "repository:p/train:pull,push"}
    assert token_request.headers["Authorization"] == f"Basic {base64.b64encode(b'ci:open-sesame').decode()}"
    server.valid = "revoked"
    client.get_manifest(REPOSITORY.tagged("cpu"))
    assert server.issued == 2


def test_anonymous_token(tmp_path: Path) -> None:
    server = TokenRegistry()
    registry(server, auth_file=tmp_path / "absent.json").get_manifest(REPOSITORY.tagged("cpu"))
    assert "Authorization" not in next(request for request in server.requests if request.url.host == "auth.lab").headers


def test_identity_token_is_exchanged(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    path.write_text(json.dumps({"auths": {HOST: {"identitytoken": "refresh-me"}}}))
    server = TokenRegistry()
    registry(server, auth_file=path).get_manifest(REPOSITORY.tagged("cpu"))
    request = next(request for request in server.requests if request.url.host == "auth.lab")
    assert (request.method, b"refresh_token=refresh-me" in request.content) == ("POST", True)


def test_login_never_goes_to_another_host(tmp_path: Path) -> None:
    server = TokenRegistry()
    blob = registry(server, auth_file=auth_file(tmp_path)).get_blob(REPOSITORY, digest_of(b"content"))
    assert blob == b"content"
    storage = [request for request in server.requests if request.url.host == "storage.lab"]
    assert len(storage) == 1
    assert "Authorization" not in storage[0].headers


def test_login_does_not_follow_an_upload_to_another_host(tmp_path: Path) -> None:
    requests: list[httpx.Request] = []

    def serve(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        if request.url.host == "storage.lab":
            return httpx.Response(201)
        if "Authorization" not in request.headers:
            return httpx.Response(401, headers={"WWW-Authenticate": 'Basic realm="x"'})
        if request.method == "POST":
            return httpx.Response(202, headers={"Location": "https://storage.lab/v2/p/train/blobs/uploads/1"})
        return httpx.Response(404)

    registry(serve, auth_file=auth_file(tmp_path)).put_blob(REPOSITORY, b"content", "text/plain")
    assert requests[-1].url.host == "storage.lab"
    assert "Authorization" not in requests[-1].headers
    assert "Authorization" in requests[-2].headers


@pytest.mark.parametrize("realm", ["http://auth.lab/token", "ftp://auth.lab", "", "/token"])
def test_login_never_goes_over_plain_http(tmp_path: Path, realm: str) -> None:
    server = TokenRegistry(realm)
    with pytest.raises(RegistryError, match="not an https address"):
        registry(server, auth_file=auth_file(tmp_path)).head(REPOSITORY.tagged("cpu"))
    assert not [request for request in server.requests if request.url.host == "auth.lab"]


def test_refused_login_names_registry_file_and_command(tmp_path: Path) -> None:
    server = TokenRegistry()
    echo = f"no {base64.b64encode(b'ci:open-sesame').decode()} open-sesame"
    server.token_answer = httpx.Response(401, json={"errors": [{"code": "DENIED", "message": echo}]})
    path = auth_file(tmp_path)
    with pytest.raises(RegistryError) as caught:
        registry(server, auth_file=path).head(REPOSITORY.tagged("cpu"))
    message = caught.value.message
    assert message.startswith(
        "authentication failed: looking for registry.lab/p/train:cpu: registry registry.lab refused"
    )
    assert f"'ci' from {path}" in message
    assert caught.value.hint == f"podman login --authfile {path} registry.lab"
    assert caught.value.status == 401
    assert "open-sesame" not in message
    assert echo.split()[1] not in message


def test_login_that_may_not_do_this(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"authentication failed.*does not let 'ci'") as caught:
        registry(Fake(httpx.Response(403)), auth_file=auth_file(tmp_path)).put_manifest(
            REPOSITORY, "cpu", MANIFEST, OCI_MANIFEST
        )
    assert caught.value.status == 403


def test_basic_login_that_is_refused_is_sent_once(tmp_path: Path) -> None:
    fake = Fake(httpx.Response(401, headers={"WWW-Authenticate": 'Basic realm="x"'}))
    client = registry(fake, auth_file=auth_file(tmp_path))
    with pytest.raises(RegistryError, match="authentication failed"):
        client.head(REPOSITORY.tagged("cpu"))
    assert len(fake.requests) == 2
    with pytest.raises(RegistryError, match="authentication failed"):
        client.head(REPOSITORY.tagged("cpu"))
    assert len(fake.requests) == 3


@pytest.mark.parametrize("challenge", ["", "Negotiate", "Bearer", "Basic", 'Bearer realm="', "=,=,"])
def test_odd_challenges_are_failures_and_not_crashes(tmp_path: Path, challenge: str) -> None:
    fake = Fake(httpx.Response(401, headers={"WWW-Authenticate": challenge} if challenge else {}))
    with pytest.raises(RegistryError):
        registry(fake, auth_file=tmp_path / "absent.json").head(REPOSITORY.tagged("cpu"))


def test_token_service_that_is_down_is_tried_again(tmp_path: Path) -> None:
    server = TokenRegistry()
    server.token_answer = httpx.Response(503)
    with pytest.raises(RegistryError, match=f"auth.lab/token failed {ATTEMPTS} times"):
        registry(server, auth_file=auth_file(tmp_path)).head(REPOSITORY.tagged("cpu"))
    assert len(server.requests) == 2 * ATTEMPTS


@pytest.mark.parametrize("status", [200, 202, 400, 404, 405])
@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]", MANIFEST])
def test_answer_of_the_token_service_never_passes_for_the_registrys(tmp_path: Path, status: int, body: bytes) -> None:
    server = TokenRegistry()
    server.token_answer = httpx.Response(status, content=body)
    client = registry(server, auth_file=auth_file(tmp_path))
    for ask in (client.head, client.get_manifest):
        with pytest.raises(RegistryError, match=rf"token service https://auth\.lab/token answered {status}"):
            ask(REPOSITORY.tagged("cpu"))
