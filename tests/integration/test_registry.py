"""The registry client against a real docker-registry."""

from __future__ import annotations

import base64
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from imagebuild.engine.manifest import DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST, Descriptor, Manifest, digest_of
from imagebuild.engine.registry import Registry
from imagebuild.errors import RegistryError
from imagebuild.spec.reference import Repository
from tests.registry_server import HTPASSWD, PASSWORD, USER, RegistryServer, free_port
from tests.release_shop import push_image

KIND = "application/vnd.buildkit.test.v1+json"
TEXT = "text/plain"


@pytest.fixture
def registry(registry_server: RegistryServer) -> Registry:
    return Registry(registry_server.host)


@pytest.fixture
def repository(registry: Registry, request: pytest.FixtureRequest) -> Repository:
    return Repository(registry.host, f"tests/{request.node.name.lower().strip('[]')}")


def test_manifest_round_trip_keeps_every_byte(registry: Registry, repository: Repository) -> None:
    pushed = push_image(registry, repository, "one")
    assert registry.head(repository.tagged("cpu")) == pushed
    manifest = registry.get_manifest(repository.tagged("cpu"))
    assert manifest.descriptor == pushed
    assert registry.get_manifest(repository.at(pushed.digest)).content == manifest.content
    assert json.loads(registry.get_blob(repository, manifest.config_digest)) == {"text": "one"}
    assert [registry.get_blob(repository, layer.digest) for layer in manifest.layers] == [b"one"]


def test_what_is_missing_is_none_or_an_error(registry: Registry, repository: Repository) -> None:
    missing = repository.tagged("nothing")
    assert registry.head(missing) is None
    with pytest.raises(RegistryError, match=r"nothing is not in the registry") as caught:
        registry.get_manifest(missing)
    assert caught.value.status == 404
    with pytest.raises(RegistryError, match="reading blob"):
        registry.get_blob(repository, digest_of(b"nothing"))
    assert registry.list_tags(repository) == []
    assert registry.referrers(repository, digest_of(b"nothing")) == []


def test_retag_is_the_same_digest_under_more_names(registry: Registry, repository: Repository) -> None:
    pushed = push_image(registry, repository, "one", "cpu-in-0123456789abcdef")
    registry.retag(repository.tagged("cpu-in-0123456789abcdef"), "cpu", "cpu-1.0.0")
    heads = registry.heads(repository.tagged(tag) for tag in ("cpu", "cpu-1.0.0", "cpu-2.0.0"))
    assert [found and found.digest for found in heads.values()] == [pushed.digest, pushed.digest, None]
    assert registry.list_tags(repository) == ["cpu", "cpu-1.0.0", "cpu-in-0123456789abcdef"]


def test_index_and_docker_manifest_keep_their_type(registry: Registry, repository: Repository) -> None:
    one = push_image(registry, repository, "amd64", "one")
    docker = Manifest(
        registry.get_manifest(repository.tagged("one")).content.replace(
            OCI_MANIFEST.encode(), DOCKER_MANIFEST.encode()
        ),
        DOCKER_MANIFEST,
    )
    two = registry.put_manifest(repository, "two", docker.content, DOCKER_MANIFEST)
    value = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [one.as_json(), two.as_json()]}
    index = registry.put_manifest(repository, "both", json.dumps(value).encode(), OCI_INDEX)
    registry.retag(repository.tagged("both"), "moved")
    assert registry.head(repository.tagged("moved")) == index
    assert registry.get_manifest(repository.tagged("moved")).is_index
    assert registry.get_manifest(repository.tagged("two")).media_type == DOCKER_MANIFEST


def test_blob_is_sent_once(registry: Registry, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    first = registry.put_blob(repository, b"content", TEXT)

    def no_upload(*_args: object) -> None:
        raise AssertionError("sent again")

    monkeypatch.setattr(registry, "_upload", no_upload)
    assert registry.put_blob(repository, b"content", TEXT) == first
    with pytest.raises(AssertionError, match="sent again"):
        registry.put_blob(repository, b"other", TEXT)


def test_artifacts_hang_on_their_subject(registry: Registry, repository: Repository) -> None:
    subject = push_image(registry, repository, "one")
    other = push_image(registry, repository, "two", "other")
    hung = registry.push_artifact(
        repository, KIND, {"report.json": (b"{}", "application/json")}, subject=subject, annotations={"who": "me"}
    )
    registry.push_artifact(repository, "application/vnd.else", {}, subject=subject)
    registry.push_artifact(repository, KIND, {}, subject=other)
    assert [entry.digest for entry in registry.referrers(repository, subject.digest, KIND)] == [hung.digest]
    assert len(registry.referrers(repository, subject.digest)) == 2
    manifest = registry.get_manifest(repository.at(hung.digest))
    assert manifest.json["subject"]["digest"] == subject.digest
    assert manifest.annotations == {"who": "me"}
    assert registry.get_blob(repository, manifest.layers[0].digest) == b"{}"


def test_same_artifact_twice_is_listed_once(registry: Registry, repository: Repository) -> None:
    subject = push_image(registry, repository, "one")
    for _ in range(2):
        registry.push_artifact(repository, KIND, {}, subject=subject)
    assert len(registry.referrers(repository, subject.digest)) == 1


def test_threads_lose_no_artifact(registry: Registry, repository: Repository) -> None:
    subject = push_image(registry, repository, "one")

    def push(number: int) -> str:
        files = {"n": (str(number).encode(), TEXT)}
        return registry.push_artifact(repository, KIND, files, subject=subject).digest

    with ThreadPoolExecutor(8) as pool:
        pushed = set(pool.map(push, range(12)))
    assert {entry.digest for entry in registry.referrers(repository, subject.digest)} == pushed


def test_deleted_artifact_does_not_stop_the_next(registry: Registry, repository: Repository) -> None:
    subject = push_image(registry, repository, "one")
    gone = registry.push_artifact(repository, KIND, {"a": (b"a", TEXT)}, subject=subject)
    assert registry.delete_manifest(repository, gone.digest)
    kept = registry.push_artifact(repository, KIND, {"b": (b"b", TEXT)}, subject=subject)
    assert [entry.digest for entry in registry.referrers(repository, subject.digest)] == [kept.digest]


def test_delete_tag_leaves_the_others(registry: Registry, repository: Repository) -> None:
    pushed = push_image(registry, repository, "one", "one")
    registry.retag(repository.tagged("one"), "two")
    assert registry.delete_tag(repository, "one")
    assert registry.list_tags(repository) == ["two"]
    assert registry.head(repository.tagged("two")) == pushed
    assert not registry.delete_tag(repository, "one")
    assert registry.delete_manifest(repository, pushed.digest)
    assert not registry.delete_manifest(repository, pushed.digest)
    assert registry.list_tags(repository) == []


def test_deleting_where_it_is_not_allowed_says_so(tmp_path: Path) -> None:
    with RegistryServer(tmp_path, delete=False) as server, Registry(server.host) as registry:
        repository = Repository(server.host, "p/x")
        pushed = push_image(registry, repository, "one")
        with pytest.raises(RegistryError, match="does not allow deleting") as caught:
            registry.delete_manifest(repository, pushed.digest)
        assert "storage.delete.enabled" in caught.value.hint


def test_manifest_without_its_blobs_is_refused(registry: Registry, repository: Repository) -> None:
    absent = Descriptor.of(b"absent", TEXT)
    value = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": absent.as_json(), "layers": []}
    with pytest.raises(RegistryError, match=r"writing .*:bad: PUT .*BLOB_UNKNOWN|MANIFEST_BLOB_UNKNOWN"):
        registry.put_manifest(repository, "bad", json.dumps(value).encode(), OCI_MANIFEST)
    assert registry.head(repository.tagged("bad")) is None


def test_sixty_heads_at_once(registry: Registry, repository: Repository) -> None:
    push_image(registry, repository, "one")
    started = time.monotonic()
    found = registry.heads(repository.tagged(f"cpu{number or ''}") for number in range(60))
    assert sum(descriptor is not None for descriptor in found.values()) == 1
    assert time.monotonic() - started < 2


def test_registry_that_is_down_fails_fast_when_asked_to() -> None:
    host = f"127.0.0.1:{free_port()}"
    started = time.monotonic()
    with Registry(host) as registry, pytest.raises(RegistryError) as caught:
        registry.ping()
    assert time.monotonic() - started < 1
    assert f"GET http://{host}/v2/ failed once: " in caught.value.message
    assert "buildkit registry up" in caught.value.hint


def login_file(path: Path, host: str, password: str) -> Path:
    auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
    path.write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    return path


def test_login(tmp_path: Path) -> None:
    with RegistryServer(tmp_path / "registry", HTPASSWD) as server:
        repository = Repository(server.host, "p/x")
        good = login_file(tmp_path / "auth.json", server.host, PASSWORD)
        with Registry(server.host, auth_file=good) as registry:
            registry.ping()
            pushed = push_image(registry, repository, "one")
            assert registry.head(repository.tagged("cpu")) == pushed
            login = registry.credentials(repository)
            assert login
            assert json.loads(base64.urlsafe_b64decode(login.registry_auth()))["password"] == PASSWORD

        bad = login_file(tmp_path / "wrong.json", server.host, "wrong-horse")
        with Registry(server.host, auth_file=bad) as registry, pytest.raises(RegistryError) as caught:
            registry.head(repository.tagged("cpu"))
        shown = f"{caught.value.message} {caught.value.hint} {caught.value.__cause__}"
        assert "authentication failed" in shown
        assert f"registry {server.host} refused the login of 'ci' from {bad}" in shown
        assert f"podman login --authfile {bad} {server.host}" in shown
        assert "wrong-horse" not in shown
        assert base64.b64encode(b"ci:wrong-horse").decode() not in shown

        absent = tmp_path / "absent.json"
        with Registry(server.host, auth_file=absent) as registry, pytest.raises(RegistryError) as caught:
            push_image(registry, repository, "two")
        assert caught.value.status == 401
        assert f"none was found (looked in {absent} (missing))" in caught.value.message
