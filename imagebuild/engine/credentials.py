"""Where a login to a registry comes from: the files and the helpers that Podman and Docker use."""

from __future__ import annotations

import base64
import binascii
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from imagebuild.errors import RegistryError

DOCKER_HUB = "docker.io"
_HUB_KEYS = ("docker.io", "index.docker.io", "registry-1.docker.io")
_HUB_SERVER = "https://index.docker.io/v1/"
_HELPER_SECONDS = 30


@dataclass(frozen=True)
class Credentials:
    """A login to one registry. `source` says where it was found; the secrets are never shown."""

    username: str
    password: str = field(repr=False)
    identity_token: str = field(default="", repr=False)
    source: str = ""

    @property
    def basic(self) -> str:
        """The value of an `Authorization` header for HTTP Basic."""
        return f"Basic {base64.b64encode(f'{self.username}:{self.password}'.encode()).decode()}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be in a message."""
        joined = self.basic.removeprefix("Basic ") if self.password else ""
        return tuple(secret for secret in (joined, self.password, self.identity_token) if secret)

    def as_json(self) -> dict[str, str]:
        """The login as the engine's API wants it."""
        value = {"username": self.username, "password": self.password}
        return value | ({"identitytoken": self.identity_token} if self.identity_token else {})

    def registry_auth(self) -> str:
        """The value of `X-Registry-Auth`, for one pull or push through the engine's API."""
        return _header(self.as_json())


def registry_config(logins: Mapping[str, Credentials]) -> str:
    """The value of `X-Registry-Config`, for a build that pulls from several registries (host -> login)."""
    return _header({host: login.as_json() for host, login in logins.items()})


def auth_files(auth_file: Path | None = None, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The files to look in, best first: the one given or `REGISTRY_AUTH_FILE` alone, else the usual places."""
    if auth_file or environ.get("REGISTRY_AUTH_FILE"):
        return [Path(auth_file or environ["REGISTRY_AUTH_FILE"])]
    home = Path(environ.get("HOME") or Path.home())
    runtime = environ.get("XDG_RUNTIME_DIR")
    files = [Path(runtime, "containers", "auth.json")] if runtime else []
    files.append(Path(environ.get("XDG_CONFIG_HOME") or home / ".config", "containers", "auth.json"))
    files.append(Path(environ.get("DOCKER_CONFIG") or home / ".docker", "config.json"))
    return files


def find_credentials(
    registry: str, repository: str = "", *, auth_file: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Credentials | None:
    """The login for a registry, or None where no file and no helper has one.

    Args:
        registry: host, with its port if it has one.
        repository: path inside the registry; a login for exactly this path or a parent of it is preferred.
        auth_file: look only here.
        environ: where `REGISTRY_AUTH_FILE` and the home folders are read from.

    Raises:
        RegistryError: a file cannot be read, or a credential helper failed.
    """
    for path in auth_files(auth_file, environ):
        config = _load(path)
        found = next(filter(None, (_from_entry(config, key, path) for key in _keys(registry, repository))), None)
        if found := found or _from_helper(config, registry, path):
            return found
    return None


def _load(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RegistryError(f"cannot read the credential file {path}: {error.strerror}") from error
    except ValueError:
        config = None
    if not isinstance(config, dict):
        # The parser's own message could quote the file, so it is not passed on.
        raise RegistryError(f"the credential file {path} is not a JSON object", hint="log in again with podman login")
    return config


def _keys(registry: str, repository: str) -> Iterator[str]:
    """The names a login may be stored under, the narrowest first."""
    parts = repository.split("/") if repository else []
    for depth in range(len(parts), 0, -1):
        yield "/".join([registry, *parts[:depth]])
    for host in _HUB_KEYS if registry in _HUB_KEYS else (registry,):
        yield host
        yield from (f"https://{host}", f"https://{host}/v1/", f"https://{host}/v2/", f"http://{host}")


def _from_entry(config: Mapping[str, Any], key: str, path: Path) -> Credentials | None:
    entry = (config.get("auths") or {}).get(key)
    if not isinstance(entry, dict) or not entry:
        return None
    username, password = str(entry.get("username") or ""), str(entry.get("password") or "")
    if entry.get("auth"):
        try:
            username, _, password = base64.b64decode(str(entry["auth"]), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            # `from None`: the cause would carry the secret it failed to decode.
            raise RegistryError(f"the login for {key} in {path} is damaged", hint=f"podman login {key}") from None
    token = str(entry.get("identitytoken") or "")
    return Credentials(username, password.rstrip("\0"), token, str(path)) if username or token else None


def _from_helper(config: Mapping[str, Any], registry: str, path: Path) -> Credentials | None:
    key = _HUB_SERVER if registry in _HUB_KEYS else registry
    named = (config.get("credHelpers") or {}).get(key)
    helper = named or config.get("credsStore")
    if not helper:
        return None
    program = f"docker-credential-{helper}"
    if not shutil.which(program):
        if not named:  # a desktop's store for everything, in a file that came here from elsewhere
            return None
        raise RegistryError(f"{path} names the credential helper {program}, which is not on PATH")
    try:
        done = subprocess.run(
            [program, "get"], input=key, capture_output=True, text=True, timeout=_HELPER_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise RegistryError(f"{program} did not answer within {_HELPER_SECONDS} s (asked for {key})") from None
    if done.returncode:
        if "credentials not found" in (done.stdout + done.stderr).lower():
            return None
        raise RegistryError(f"{program} failed with exit code {done.returncode} (asked for {key})")
    try:
        answer = json.loads(done.stdout)
        username, secret = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, KeyError, TypeError):
        raise RegistryError(f"{program} gave an answer that is not a login (asked for {key})") from None
    source = f"{program} (named in {path})"
    return Credentials("", "", secret, source) if username == "<token>" else Credentials(username, secret, "", source)


def _header(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
