"""Pushing to a real registry: read back, reconciled, and told apart from what only looks like success."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest

from imagebuild.engine.git import Commit
from imagebuild.engine.podman import Podman
from imagebuild.engine.registry import Registry
from imagebuild.errors import EngineError, RegistryError
from imagebuild.run import ship
from imagebuild.run.decide import address
from imagebuild.spec.site import Site
from tests.integration.tiny import Tiny
from tests.registry_server import HTPASSWD, PASSWORD, USER, RegistryServer


def test_a_push_is_read_back_and_every_tag_follows(tiny: Tiny, podman: Podman) -> None:
    pushed = tiny("build", "--smoke", "--push", "--json", "base-tiny")
    assert pushed.code == 0, pushed.err
    result = next(one for one in pushed.json if one["task"] == "push")
    planned = tiny.plan()["base-tiny"]
    registry = Registry(tiny.registry)
    reference = address(planned, tiny.registry)
    image = podman.image(planned.local_name)
    assert image is not None
    assert registry.get_manifest(reference).config_digest == image.id
    for tag in (planned.tag, "tiny-1.0.0"):
        found = registry.head(reference.repository.tagged(tag))
        assert found is not None
        assert found.digest == result["digest"]
    # Another build of the row: its tags move to it, the old address stays.
    (tiny.folder / "images/base/files/note.txt").write_text("new\n")
    assert tiny("build", "--smoke", "--push", "base-tiny").code == 0
    new = address(tiny.plan()["base-tiny"], tiny.registry)
    assert registry.get_manifest(reference).digest == result["digest"]
    assert registry.get_manifest(new).digest == registry.get_manifest(new.repository.tagged("tiny-1.0.0")).digest


def test_tags_are_put_right_without_another_upload(tiny: Tiny) -> None:
    tiny("build", "--smoke", "--push", "tiny")
    tiny.edit_matrix("version: 1.0.0", "version: 1.1.0")
    again = tiny("build", "--smoke", "--push", "tiny")
    assert again.code == 0, again.err
    assert "tested before" in again.err
    registry, planned = Registry(tiny.registry), tiny.plan()["train-tiny"]
    tags = registry.list_tags(address(planned, tiny.registry).repository)
    assert {planned.tag, "tiny-1.0.0", "tiny-1.1.0"} <= set(tags)


def test_the_moving_tag_is_for_exact_commits_of_the_default_branch() -> None:
    site = Site()
    commit = "0123456789abcdef0123456789abcdef01234567"
    assert ship.tags_of("cpu", "1.0.0", Commit(commit, "main"), site) == ["cpu-1.0.0", "cpu-g0123456789ab", "cpu"]
    assert ship.tags_of("cpu", "1.0.0", Commit(commit, "feature"), site) == ["cpu-1.0.0", "cpu-g0123456789ab"]
    assert ship.tags_of("cpu", "1.0.0", Commit(commit, "main", dirty=True), site) == ["cpu-1.0.0"]
    assert ship.tags_of("cpu", "1.0.0", Commit(), site) == ["cpu-1.0.0"]


def test_a_push_that_only_says_that_it_worked_is_a_failure(
    tiny: Tiny, podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny("build", "base-tiny")
    planned = tiny.plan()["base-tiny"]
    image = podman.image(planned.local_name)
    assert image is not None
    registry, reference = Registry(tiny.registry), address(planned, tiny.registry)
    with monkeypatch.context() as patched:
        patched.setattr(podman, "push", lambda *_, **__: None)
        with pytest.raises(RegistryError, match="is not in the registry"):
            ship.push(podman, registry, planned.local_name, image.id, reference)
    with pytest.raises(RegistryError, match="after the push, not sha256:000"):
        ship.push(podman, registry, planned.local_name, "sha256:" + "0" * 64, reference)


def test_a_registry_that_goes_away_loses_nothing(tiny: Tiny, tmp_path: Path) -> None:
    with RegistryServer(tmp_path / "registry") as server:
        tiny.environment["BUILDKIT_REGISTRY"] = server.host
        assert tiny("build", "--smoke", "base-tiny").code == 0
        server.stop()
        failed = tiny("push", "base-tiny")
        assert failed.code == 1
        assert server.host in failed.err
        built = tiny("build", "base-tiny")  # building needs no registry
        assert built.code == 0
        assert "deciding from Podman's own store alone" in built.err
        server.start()
        pushed = tiny("push", "base-tiny")
        assert pushed.code == 0, pushed.err


def test_an_image_that_is_only_in_the_registry_is_pulled_for_its_children(tiny: Tiny, podman: Podman) -> None:
    tiny("build", "--push", "base-tiny")
    podman.untag_or_remove(tiny.plan()["base-tiny"].local_name)
    built = tiny("build", "train-tiny")
    assert built.code == 0, built.err
    assert "base-tiny" not in built.err.replace("base-tiny        build  up to date", "")
    assert podman.image(tiny.plan()["base-tiny"].local_name) is not None


def test_logins_travel_with_each_call_and_their_lack_is_said(tiny: Tiny, tmp_path: Path) -> None:
    with RegistryServer(tmp_path / "registry", HTPASSWD) as server:
        login = tmp_path / "auth.json"
        login.write_text(json.dumps({"auths": {}}))
        tiny.environment |= {"BUILDKIT_REGISTRY": server.host, "BUILDKIT_AUTH_FILE": str(login)}
        refused = tiny("build", "--push", "base-tiny")
        assert refused.code == 1
        assert server.host in refused.err
        assert "podman login" in refused.err
        login.write_text(
            json.dumps({"auths": {server.host: {"auth": b64encode(f"{USER}:{PASSWORD}".encode()).decode()}}})
        )
        pushed = tiny("build", "--push", "base-tiny")
        assert pushed.code == 0, pushed.err
        assert PASSWORD not in pushed.err


def test_pulling_what_is_not_there_is_an_error(podman: Podman, registry_server: RegistryServer) -> None:
    with pytest.raises(EngineError, match=r"manifest unknown|not found"):
        podman.pull(f"{registry_server.host}/no/such:image", tls_verify=False)
