"""`policy-server health`: asks the running server, as a client would."""

from __future__ import annotations

import json
import socket
from typing import Any

from policy_server.options import Options

_SECONDS = 3.0


def check(options: Options) -> int:
    """Print one line, and return 0 if the server serves, else 1."""
    try:
        answer = _ask(options.socket)
    except (OSError, ValueError) as wrong:
        print(f"not serving: {options.socket} does not answer: {wrong}")
        return 1
    if not answer.get("healthy"):
        print(f"not serving: the control loop is {answer.get('status')}, its last sign of life "
              f"{answer.get('heartbeat_age', 'never')} s ago {answer.get('reason', '')}".rstrip())  # fmt: skip
        return 1
    print(f"serving: {answer['decisions']} decisions, last sign of life {answer['heartbeat_age']} s ago")
    return 0


def _ask(path: str) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_SECONDS)
        connection.connect(path)
        connection.sendall(b'{"ask":"health"}\n')
        with connection.makefile("rb") as lines:
            answer: dict[str, Any] = json.loads(lines.readline())
    return answer
