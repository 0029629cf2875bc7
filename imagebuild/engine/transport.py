"""HTTP to one registry: logging in, trying again where that is safe, and errors that say what failed."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import NoReturn, TypeVar

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from imagebuild.engine.auth import RegistryAuth, is_loopback, repository_of
from imagebuild.engine.credentials import DOCKER_HUB, Credentials, auth_files, find_credentials
from imagebuild.errors import RegistryError

T = TypeVar("T")

LONGEST_WAIT = 60.0
_FIRST_BACKOFF = 0.4
_LONGEST_BACKOFF = 10.0
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
# What docker-registry answers to a PUT that reads one of its own files while another PUT is writing that file.
# We compute our digests ourselves, so a true mismatch means damage on the way, and is worth another attempt too.
_PASSING_CODE = "DIGEST_INVALID"


class _PassingError(Exception):
    """A failure that may be gone on the next attempt; `wait` is what the registry asked for, in seconds."""

    def __init__(self, request: str, reason: str, *, status: int = 0, wait: float | None = None) -> None:
        super().__init__(f"{request} failed: {reason}")
        self.request = request
        self.reason = reason
        self.status = status
        self.wait = wait


class Transport:
    """Sends requests to one registry.

    Args:
        host: host, with its port if it has one. Loopback hosts are spoken to over plain HTTP.
        auth_file: the only file to look for a login in (default: where Podman and Docker look).
        ca_bundle: PEM file trusted in addition to the system's own certificates.
        attempts: how often a request is sent before it counts as failed; 1 fails fast.
        timeout: seconds an answer may take.
        connect_timeout: seconds a connection may take.
        plain_http: speak HTTP (True) or HTTPS (False) whatever the host is called.
        sleep: waits between attempts.
        backend: stands in for the network, in tests.
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
        plain_http: bool | None = None,
        sleep: Callable[[float], None] = time.sleep,
        backend: httpx.BaseTransport | None = None,
    ) -> None:
        self.host = host
        self.auth_file = auth_file
        self.attempts = attempts
        self._sleep = sleep
        loopback = is_loopback(host)
        plain = loopback if plain_http is None else plain_http
        self.base = f"{'http' if plain else 'https'}://{'registry-1.docker.io' if host == DOCKER_HUB else host}"
        self._auth = RegistryAuth(httpx.URL(self.base), lambda path: find_credentials(host, path, auth_file=auth_file))
        self._client = httpx.Client(
            auth=self._auth,
            verify=_trust(ca_bundle, system=not loopback),
            timeout=httpx.Timeout(timeout, connect=connect_timeout),
            follow_redirects=True,
            trust_env=not loopback,  # a proxy has no way to this machine's own loopback
            transport=backend,
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def credentials(self, path: str = "") -> Credentials | None:
        """The login used for a repository path, or None where none was found."""
        return self._auth.credentials(path)

    def send(
        self,
        method: str,
        url: str,
        *,
        doing: str,
        ok: Collection[int] = (200,),
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> httpx.Response:
        """Send one request, several times if need be, and return its answer.

        Only for requests that do no harm when sent twice.

        Args:
            method: the HTTP method.
            url: absolute, or a path on this registry.
            doing: what is being attempted, for messages: `reading host/repository:tag`.
            ok: the statuses that the caller can use; all others are errors.
            headers: sent along.
            content: the body.
        """

        def send() -> httpx.Response:
            return self.send_once(method, url, doing=doing, ok=ok, headers=headers, content=content)

        return self.retry(send, doing)

    def retry(self, operation: Callable[[], T], doing: str, attempts: int = 0) -> T:
        """Run `operation`, made of `send_once` calls, again as a whole while its failures are passing ones.

        Raises:
            RegistryError: after `attempts` (default: those of this transport), or for a failure that will stay.
        """
        attempts = attempts or self.attempts
        retrying = Retrying(
            stop=stop_after_attempt(attempts),
            wait=_seconds_to_wait,
            retry=retry_if_exception_type(_PassingError),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return retrying(operation)
        except _PassingError as last:
            times = "once" if attempts == 1 else f"{attempts} times; the last time"
            message = f"{doing}: {last.request} failed {times}: {last.reason}"
            raise RegistryError(message, hint=self._hint(last), status=last.status) from last.__cause__

    def send_once(
        self,
        method: str,
        url: str,
        *,
        doing: str,
        ok: Collection[int] = (200,),
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> httpx.Response:
        """One attempt of `send`."""
        target = httpx.URL(self.base).join(url)
        try:
            response = self._client.request(method, target, headers=headers, content=content)
        except httpx.HTTPError as error:
            self._fail_to_connect(error, f"{method} {_shown(target)}", doing)
        if response.status_code in ok:
            return response
        request = f"{response.request.method} {_shown(response.request.url)}"
        if response.status_code in (401, 403):
            self._fail_to_log_in(response, target, doing)
        answer = self._answer(response)
        if response.status_code in _PASSING or (method == "PUT" and _error(response).get("code") == _PASSING_CODE):
            wait = _retry_after(response)
            if wait is not None and wait > LONGEST_WAIT:
                hint = f"the registry asks to be left alone for {wait:.0f} s; try again after that"
                raise RegistryError(f"{doing}: {request} failed: {answer}", hint=hint, status=response.status_code)
            raise _PassingError(request, answer, status=response.status_code, wait=wait)
        raise RegistryError(f"{doing}: {request} failed: {answer}", status=response.status_code)

    def _fail_to_connect(self, error: httpx.HTTPError, request: str, doing: str) -> NoReturn:
        reason = str(error) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            hint = f"if {self.host} has a certificate of the site's own authority, name its PEM file as ca_bundle"
            raise RegistryError(f"{doing}: {request} failed: {reason}", hint=hint) from error
        if not isinstance(error, httpx.TransportError):
            raise RegistryError(f"{doing}: {request} failed: {reason}") from error
        raise _PassingError(request, reason) from error

    def _fail_to_log_in(self, response: httpx.Response, target: httpx.URL, doing: str) -> NoReturn:
        """Say which registry, whose login from which file, and how to log in."""
        login = self.credentials(repository_of(target))
        user = repr(login.username or "a token") if login else ""
        status = response.status_code
        if login is None:
            places = ", ".join(f"{path}{'' if path.exists() else ' (missing)'}" for path in auth_files(self.auth_file))
            why = f"registry {self.host} wants a login and none was found (looked in {places})"
        elif status == 401:
            why = f"registry {self.host} refused the login of {user} from {login.source}"
        else:
            why = f"registry {self.host} does not let {user} (login from {login.source}) do this"
        authfile = f" --authfile {self.auth_file}" if self.auth_file else ""
        message = f"authentication failed: {doing}: {why}: {self._answer(response)}"
        raise RegistryError(message, hint=f"podman login{authfile} {self.host}", status=status)

    def _answer(self, response: httpx.Response) -> str:
        """Status and the registry's own words, without anything secret that it may have echoed."""
        words = f"{response.status_code} {response.reason_phrase}".strip()
        if detail := ": ".join(_error(response).values()):
            words = f"{words} ({detail})"
        for secret in self._auth.secrets():
            words = words.replace(secret, "***")
        return words

    def _hint(self, failure: _PassingError) -> str:
        if failure.status:
            return ""
        return f"is a registry listening at {self.base}? (on loopback: buildkit registry up)"


def _trust(ca_bundle: Path | None, *, system: bool) -> ssl.SSLContext:
    """The system's certificates (slow to load, and of no use on loopback), and those of the site."""
    context = ssl.create_default_context() if system else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca_bundle:
        try:
            context.load_verify_locations(ca_bundle)
        except (OSError, ssl.SSLError) as error:
            raise RegistryError(f"cannot use the CA bundle {ca_bundle}: {error}") from error
    return context


def _seconds_to_wait(state: RetryCallState) -> float:
    """What the registry asked for, else twice as long each time, spread so that clients do not march in step."""
    failure = state.outcome.exception() if state.outcome else None
    if isinstance(failure, _PassingError) and failure.wait is not None:
        return failure.wait
    backoff: float = min(_LONGEST_BACKOFF, _FIRST_BACKOFF * 2 ** (state.attempt_number - 1))
    return backoff * random.uniform(0.5, 1.0)  # noqa: S311


def _retry_after(response: httpx.Response) -> float | None:
    """The wait that a `Retry-After` header asks for, in seconds; it holds seconds or a date."""
    text = response.headers.get("Retry-After", "").strip()
    if text.isdecimal():
        return float(text)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def _error(response: httpx.Response) -> dict[str, str]:
    """The first error in a registry's JSON answer, its parts in one short line each; empty where there is none."""
    try:
        first = response.json()["errors"][0]
        return {key: " ".join(str(first[key]).split())[:300] for key in ("code", "message") if first.get(key)}
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}


def _shown(url: httpx.URL) -> str:
    """A URL for a message: upload sessions and signed redirects carry secrets in the query."""
    return str(url.copy_with(query=None, userinfo=b""))
