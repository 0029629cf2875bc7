"""The servers that people work in: a notebook, TensorBoard, SSH; what each runs, and how it shows that it is ready."""

from __future__ import annotations

import http.client
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from imagebuild.errors import InputError, Problem
from imagebuild.run.inside import program
from imagebuild.run.launch import WORKSPACE, Door

_PATIENCE = 5.0  # seconds for one answer
_TOKEN_BYTES = 24
SSH_FOLDER = "/dev/shm/ssh"  # noqa: S108  (the container's own, and made there)
# A shell's line that makes a token of the same kind, for command lines that are printed: they hold none.
_NEW_TOKEN = f"\"$(head -c {_TOKEN_BYTES} /dev/urandom | od -An -v -tx1 | tr -d ' \\n')\""


@dataclass(frozen=True)
class Server:
    """A server to be.

    `variables` are what it reads, keys and tokens, which podman gets by name only; `assignments` are how a shell
    would set them; `place` is what opens it, the token included, and `place_in_shell` the same for a shell;
    `host_key` is where, in the container, a public key of its own is.
    """

    command: tuple[str, ...]
    door: Door
    variables: Mapping[str, str]
    assignments: Mapping[str, str]
    place: str
    place_in_shell: str
    is_ready: Callable[[], bool]
    host_key: str = ""


def notebook(door: Door) -> Server:
    """JupyterLab, which wants the token that it finds in its environment."""
    token, base = secrets.token_hex(_TOKEN_BYTES), f"http://127.0.0.1:{door.port}"
    command = (
        "jupyter", "lab", "--no-browser", f"--ip={door.listen}", f"--port={door.port}", "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={WORKSPACE}",
        # Only what was asked for as localhost is answered, so that no other site's name can be made to lead here.
        "--ServerApp.allow_remote_access=False",
    )  # fmt: skip
    return Server(
        command, door, {"JUPYTER_TOKEN": token}, {"JUPYTER_TOKEN": _NEW_TOKEN}, f"{base}/lab?token={token}",
        f"{base}/lab?token=$JUPYTER_TOKEN", lambda: _answers(door, "/api/status", {"Authorization": f"token {token}"}),
    )  # fmt: skip


def tensorboard(door: Door, folder: str) -> Server:
    """TensorBoard, which has no login: everything is below a path that is the token."""
    token, base = secrets.token_hex(_TOKEN_BYTES), f"http://127.0.0.1:{door.port}"
    return Server(
        program("tensorboard_server", door.listen, str(door.port), folder), door, {"BUILDKIT_TOKEN": token},
        {"BUILDKIT_TOKEN": _NEW_TOKEN}, f"{base}/{token}/", f"{base}/$BUILDKIT_TOKEN/",
        lambda: _answers(door, f"/{token}/", {}),
    )  # fmt: skip


def ssh(door: Door, keys: str, keys_in_shell: str) -> Server:
    """An SSH server that takes these public keys, one a line; `keys_in_shell` is how a shell would name them."""
    place = f"ssh -p {door.port} worker@127.0.0.1"
    return Server(
        program("ssh_server", SSH_FOLDER, door.listen, str(door.port)), door, {"BUILDKIT_AUTHORIZED_KEYS": keys},
        {"BUILDKIT_AUTHORIZED_KEYS": keys_in_shell}, place, place, lambda: _greets(door), f"{SSH_FOLDER}/host_key.pub",
    )  # fmt: skip


def choose_port(wanted: int | None, usual: int) -> int:
    """A free port of loopback: the one that is wanted, or else the usual one, or else any.

    Raises:
        InputError: the wanted one is taken.
    """
    for port in (wanted,) if wanted is not None else (usual, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise InputError(Problem(f"port {wanted} is taken on this machine", hint="without --port a free one is chosen"))


def _answers(door: Door, path: str, headers: Mapping[str, str]) -> bool:
    """Whether a request is answered with 200; made by hand, as a proxy's settings must not lead it elsewhere."""
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=_PATIENCE)
    try:
        connection.request("GET", path, headers=dict(headers))
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _greets(door: Door) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", door.port), timeout=_PATIENCE) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
