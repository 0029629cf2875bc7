"""Where logins come from."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from imagebuild.engine.credentials import Credentials, auth_files, find_credentials, registry_config
from imagebuild.errors import RegistryError


def entry(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_places_in_the_order_of_podman(tmp_path: Path) -> None:
    environ = {"HOME": "/home/me", "XDG_RUNTIME_DIR": "/run/user/7"}
    assert [str(path) for path in auth_files(environ=environ)] == [
        "/run/user/7/containers/auth.json",
        "/home/me/.config/containers/auth.json",
        "/home/me/.docker/config.json",
    ]
    assert auth_files(environ=environ | {"REGISTRY_AUTH_FILE": "/a.json"}) == [Path("/a.json")]
    assert auth_files(Path("/b.json"), environ | {"REGISTRY_AUTH_FILE": "/a.json"}) == [Path("/b.json")]
    elsewhere = environ | {"XDG_CONFIG_HOME": "/cfg", "DOCKER_CONFIG": "/docker"}
    assert [str(path) for path in auth_files(environ=elsewhere)[1:]] == [
        "/cfg/containers/auth.json",
        "/docker/config.json",
    ]


def test_first_file_with_a_login_wins(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    write(tmp_path / ".docker/config.json", {"auths": {"r.lab": entry("docker", "d:x")}})
    found = find_credentials("r.lab", environ=environ)
    assert found == Credentials("docker", "d:x", source=str(tmp_path / ".docker/config.json"))
    write(tmp_path / "run/containers/auth.json", {"auths": {"other.lab": entry("podman", "p")}})
    assert find_credentials("r.lab", environ=environ) == found
    write(tmp_path / "run/containers/auth.json", {"auths": {"r.lab": entry("podman", "p")}})
    found = find_credentials("r.lab", environ=environ)
    assert found
    assert found.username == "podman"
    assert find_credentials("nobody.lab", environ=environ) is None


@pytest.mark.parametrize(
    ("registry", "repository", "user"),
    [
        ("r.lab:5000", "", "host"),
        ("r.lab:5000", "team/train", "team"),
        ("r.lab:5000", "team/special", "special"),
        ("r.lab:5000", "teams/x", "host"),
        ("docker.io", "library/ubuntu", "hub"),
        ("old.lab", "", "old"),
    ],
)
def test_narrowest_key_wins(tmp_path: Path, registry: str, repository: str, user: str) -> None:
    auths = {
        "r.lab:5000": entry("host", "x"),
        "r.lab:5000/team": entry("team", "x"),
        "r.lab:5000/team/special": {"username": "special", "password": "x"},
        "https://index.docker.io/v1/": entry("hub", "x"),
        "https://old.lab/v1/": entry("old", "x"),
    }
    found = find_credentials(registry, repository, auth_file=write(tmp_path / "auth.json", {"auths": auths}))
    assert found
    assert found.username == user


def test_engine_headers(tmp_path: Path) -> None:
    login = Credentials("me", "pä?ss>", source="f")
    assert json.loads(base64.urlsafe_b64decode(login.registry_auth())) == {"username": "me", "password": "pä?ss>"}
    assert json.loads(base64.urlsafe_b64decode(registry_config({"r.lab": login})))["r.lab"]["username"] == "me"
    token = find_credentials("r.lab", auth_file=write(tmp_path / "a", {"auths": {"r.lab": {"identitytoken": "tok"}}}))
    assert token
    assert json.loads(base64.urlsafe_b64decode(token.registry_auth()))["identitytoken"] == "tok"


def test_secrets_do_not_show() -> None:
    shown = repr(Credentials("me", "hunter22", "tok-en", "file"))
    assert "me" in shown
    assert "hunter22" not in shown
    assert "tok-en" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "not json hunter22",
        "[1]",
        '{"auths": {"r.lab": {"auth": "hunter22!"}}}',
        '{"auths": {"r.lab": {"auth": "/w=="}}}',
    ],
)
def test_damaged_file_is_named_and_not_quoted(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "auth.json", text)
    with pytest.raises(RegistryError) as caught:
        find_credentials("r.lab", auth_file=path)
    assert str(path) in caught.value.message
    assert "hunter22" not in f"{caught.value} {caught.value.__cause__}"


def helper(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = write(folder / "docker-credential-vault", f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@pytest.mark.parametrize("config", [{"credHelpers": {"r.lab": "vault"}}, {"credsStore": "vault"}])
def test_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]) -> None:
    helper(tmp_path, 'read -r name; echo "{\\"Username\\": \\"$1\\", \\"Secret\\": \\"for-$name\\"}"', monkeypatch)
    found = find_credentials("r.lab", "p/x", auth_file=write(tmp_path / "auth.json", config))
    assert found
    assert (found.username, found.password) == ("get", "for-r.lab")
    assert found.source.startswith("docker-credential-vault")


def test_helper_with_an_identity_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(tmp_path, """echo '{"Username": "<token>", "Secret": "tok"}'""", monkeypatch)
    found = find_credentials("r.lab", auth_file=write(tmp_path / "auth.json", {"credsStore": "vault"}))
    assert found
    assert (found.username, found.password, found.identity_token) == ("", "", "tok")


def test_helper_without_a_login_is_no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(tmp_path, "echo credentials not found in native keychain; exit 1", monkeypatch)
    assert find_credentials("r.lab", auth_file=write(tmp_path / "auth.json", {"credsStore": "vault"})) is None


@pytest.mark.parametrize("script", ["echo hunter22 >&2; exit 3", "echo hunter22"])
def test_helper_that_fails_is_named_and_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    helper(tmp_path, script, monkeypatch)
    with pytest.raises(RegistryError, match=r"docker-credential-vault .*r\.lab") as caught:
        find_credentials("r.lab", auth_file=write(tmp_path / "auth.json", {"credsStore": "vault"}))
    assert "hunter22" not in f"{caught.value} {caught.value.__cause__}"


def test_helper_that_is_missing(tmp_path: Path) -> None:
    named = write(tmp_path / "auth.json", {"credHelpers": {"r.lab": "no-such-helper"}})
    with pytest.raises(RegistryError, match="docker-credential-no-such-helper, which is not on PATH"):
        find_credentials("r.lab", auth_file=named)
    general = write(tmp_path / "config.json", {"credsStore": "no-such-helper"})
    assert find_credentials("r.lab", auth_file=general) is None
