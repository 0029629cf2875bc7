"""The messages of the Unix socket: one JSON object a line, one answer a line. docs/serving.md has them all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class RefusedError(Exception):
    """A message that is answered with an error. `code` is for programs, the text for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Handlers(NamedTuple):
    """What answers: `act` takes a list of observations and gives as many actions; the others describe the server."""

    act: Callable[[list[Any]], list[Any]]
    info: Callable[[], dict[str, Any]]
    health: Callable[[], dict[str, Any]]


class Conversation:
    """Turns lines into answers, whatever is in them."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._steps = 0

    def reply(self, line: bytes) -> bytes:
        """Return the answer to one line, as a line. Nothing that a line can say raises."""
        message: Any = None
        try:
            message = parse(line)
            answer = self._answer(message)
        except RefusedError as refusal:
            answer = error(refusal.code, str(refusal))
        except Exception as failure:  # noqa: BLE001  (a client must hear of it, and the server live)
            answer = error("failed", f"{type(failure).__name__}: {failure}")
        if isinstance(message, dict) and "id" in message:
            answer["id"] = message["id"]
        return as_line(answer)

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        wanted = [key for key in ("ask", "observation", "observations") if key in message]
        if len(wanted) != 1:
            raise RefusedError("bad_message", "a message has exactly one of observation, observations and ask")
        unknown = sorted(set(message) - {*wanted, "id"})
        if unknown:
            raise RefusedError("bad_message", f"a message has no {unknown[0]!r}")
        if wanted == ["ask"]:
            return self._tell(message["ask"])
        observations = message["observations"] if wanted == ["observations"] else [message["observation"]]
        if not isinstance(observations, list) or not observations:
            raise RefusedError("bad_message", "observations is a list of at least one observation")
        actions = self._handlers.act(observations)
        self._steps += len(actions)
        if wanted == ["observations"]:
            return {"actions": actions, "step": self._steps}
        return {"action": actions[0], "step": self._steps}

    def _tell(self, what: Any) -> dict[str, Any]:
        if what == "info":
            return dict(self._handlers.info())
        if what == "health":
            return dict(self._handlers.health())
        raise RefusedError("bad_message", "one can ask for info or health")


def parse(line: bytes) -> dict[str, Any]:
    """Read a line.

    Raises:
        RefusedError: it is no JSON object.
    """
    try:
        message = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise RefusedError("bad_message", "a message is UTF-8") from None
    except (ValueError, RecursionError) as wrong:
        raise RefusedError("bad_message", f"a message is one JSON object on one line: {wrong}") from None
    if not isinstance(message, dict):
        raise RefusedError("bad_message", "a message is one JSON object on one line")
    return message


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def error(code: str, text: str) -> dict[str, Any]:
    """Return the answer that says what was wrong."""
    return {"error": text, "code": code}


def as_line(answer: dict[str, Any]) -> bytes:
    """Write an answer."""
    return json.dumps(answer, separators=(",", ":")).encode() + b"\n"
