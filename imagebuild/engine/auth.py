"""Logging in to a registry over HTTP: HTTP Basic, or a bearer token from its token service."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Generator, Mapping
from threading import Lock
from urllib.request import parse_http_list, parse_keqv_list

import httpx

from imagebuild.engine.credentials import Credentials
from imagebuild.errors import RegistryError

_REPOSITORY = re.compile(r"^/v2/(.+)/(?:manifests|blobs|tags|referrers)/")


class RegistryAuth(httpx.Auth):
    """Answers a registry's challenges: HTTP Basic, or a bearer token fetched from where it says.

    Nothing is looked up before a registry asks, and a login never goes to another host than the
    registry and its own token service.
    """

    requires_response_body = True

    def __init__(self, base: httpx.URL, look_up: Callable[[str], Credentials | None]) -> None:
        self._base = base
        self._look_up = look_up
        self._lock = Lock()
        self._found: dict[str, Credentials | None] = {}
        self._headers: dict[tuple[str, bool], str] = {}

    def credentials(self, path: str) -> Credentials | None:
        """The login for a repository path, looked up once."""
        with self._lock:
            if path not in self._found:
                self._found[path] = self._look_up(path)
            return self._found[path]

    def secrets(self) -> list[str]:
        """Everything sent so far that must not be in a message."""
        with self._lock:
            logins = [secret for login in self._found.values() if login for secret in login.secrets]
            return logins + [header.partition(" ")[2] for header in self._headers.values()]

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send a request, and again with what its challenge asks for."""
        if _origin(request.url) != _origin(self._base):
            yield request
            return
        path = repository_of(request.url)
        key = (path, request.method in {"GET", "HEAD"})
        sent = self._headers.get(key, "")
        if sent:
            request.headers["Authorization"] = sent
        response = yield request
        if response.status_code != 401:
            return
        scheme, parameters = _challenge(response)
        login = self.credentials(path)
        if scheme == "bearer":
            answer = yield self._token_request(parameters, login)
            if answer.status_code in (401, 403, 429) or answer.status_code >= 500:
                return  # the caller deals with these as if the registry itself had said so
            header = f"Bearer {_token(answer)}"
        elif scheme == "basic" and login:
            header = login.basic
        else:
            return
        if header == sent:
            return
        with self._lock:
            self._headers[key] = header
        request.headers["Authorization"] = header
        yield request

    def _token_request(self, parameters: Mapping[str, str], login: Credentials | None) -> httpx.Request:
        realm = httpx.URL(parameters.get("realm", ""))
        safe = realm.scheme == "https" or (realm.scheme == "http" and is_loopback(realm.host))
        if not safe:
            raise RegistryError(f"{self._base.host} sends logins to {str(realm)!r}, which is not an https address")
        query = {name: parameters[name] for name in ("service", "scope") if name in parameters}
        if login and login.identity_token:
            form = query | {
                "grant_type": "refresh_token",
                "refresh_token": login.identity_token,
                "client_id": "buildkit",
            }
            return httpx.Request("POST", realm, data=form)
        headers = {"Authorization": login.basic} if login else {}
        return httpx.Request("GET", realm.copy_merge_params(query), headers=headers)


def is_loopback(host: str) -> bool:
    """Whether a host (its port is ignored) is this machine itself."""
    name = httpx.URL(f"http://{host}").host
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def repository_of(url: httpx.URL) -> str:
    """The repository path that a URL of the registry API is about; empty where it is about none."""
    match = _REPOSITORY.match(url.path)
    return match.group(1) if match else ""


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _challenge(response: httpx.Response) -> tuple[str, dict[str, str]]:
    """The scheme (lower case) and the parameters of the challenge that we answer best."""
    challenges = {}
    for header in response.headers.get_list("WWW-Authenticate"):
        scheme, _, rest = header.strip().partition(" ")
        pairs = [pair for pair in parse_http_list(rest) if "=" in pair]
        challenges[scheme.lower()] = parse_keqv_list(pairs)
    scheme = next((known for known in ("bearer", "basic") if known in challenges), "")
    return scheme, challenges.get(scheme, {})


def _token(answer: httpx.Response) -> str:
    """The token in an answer of a token service. Any other answer must not pass for the registry's own."""
    service = answer.request.url.copy_with(query=None)
    try:
        body = answer.raise_for_status().json()
        return str(body.get("token") or body["access_token"])
    except (httpx.HTTPStatusError, ValueError, LookupError, TypeError, AttributeError):
        reason = f"the token service {service} answered {answer.status_code} without a token"
        raise RegistryError(reason, status=answer.status_code) from None
