"""The process of the Unix socket: a policy of its own, so that nobody who talks to it delays the control loop."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import numpy
import policy_exchange as px

from policy_server.errors import ServerError
from policy_server.options import Options
from policy_server.policy import Policy
from policy_server.protocol import Conversation, Handlers, RefusedError, as_line, error

_CLIENTS = 64  # at once


class Talker:
    """Answers the clients of the socket."""

    def __init__(self, options: Options, policy: Policy) -> None:
        self._options = options
        self._policy = policy
        self._conversation = Conversation(Handlers(self._act, self._info, self._health))
        self._clients: set[Any] = set()

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client, line by line, until it goes."""
        self._clients.add(writer)
        try:
            if len(self._clients) > _CLIENTS:
                writer.write(as_line(error("busy", f"there are {_CLIENTS} clients already")))
                return
            while True:
                line = await self._next_line(reader, writer)
                if not line:
                    return
                writer.write(self._conversation.reply(line))
                await writer.drain()
                await asyncio.sleep(0)  # one that writes without a pause must not keep the others waiting
        except ConnectionError:
            pass
        finally:
            self._clients.discard(writer)
            writer.close()

    async def _next_line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        try:
            return await reader.readline()
        except ValueError:  # longer than the reader's limit
            longest = self._options.max_message
            writer.write(as_line(error("too_long", f"a message has at most {longest} bytes (--max-message)")))
            return b""

    def _act(self, observations: list[Any]) -> list[Any]:
        shape = self._policy.description.observation_shape
        try:
            given = numpy.asarray(observations)
        except ValueError:
            raise RefusedError(
                "bad_observation", f"an observation is a list of numbers of shape {list(shape)}"
            ) from None
        if given.dtype.kind not in "iuf" or given.shape[1:] != shape:
            raise RefusedError("bad_observation", f"an observation is a list of numbers of shape {list(shape)}, not "
                                             f"{list(given.shape[1:])} of {given.dtype.name}")  # fmt: skip
        with numpy.errstate(over="ignore"):
            given = given.astype(numpy.float32)
        if not numpy.isfinite(given).all():
            raise RefusedError("bad_observation", px.ERROR_TEXTS[px.BAD_OBSERVATION])
        actions = self._policy.act(given)
        if not numpy.isfinite(actions).all():
            raise RefusedError("bad_action", px.ERROR_TEXTS[px.BAD_ACTION])
        found: list[Any] = actions.tolist()
        return found

    def _info(self) -> dict[str, Any]:
        described = self._policy.description
        return {**described._asdict(), "provider": self._policy.provider, "max_message": self._options.max_message}

    def _health(self) -> dict[str, Any]:
        """What the control loop says of itself, in the exchange."""
        try:
            exchange = px.Exchange(os.open(self._options.exchange, os.O_RDONLY | os.O_CLOEXEC), writable=False)
        except (OSError, px.ExchangeError) as wrong:
            return {"healthy": False, "status": "failed", "reason": str(wrong)}
        header = exchange.header
        exchange.close()
        age = px.heartbeat_age(header)
        return {
            "healthy": header.status == px.SERVING and age < px.GONE_AFTER_SECONDS,
            "status": px.STATUS_NAMES[header.status],
            "heartbeat_age": round(age, 3),
            "decisions": header.decisions,
        }


def run(options: Options) -> None:
    """Serve the socket until SIGTERM or SIGINT.

    Raises:
        ServerError: see Policy; or the socket cannot be made.
    """
    asyncio.run(_serve(options, Talker(options, Policy(options))))


async def _serve(options: Options, talker: Talker) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    os.umask(0o777 & ~options.mode)
    try:
        server = await asyncio.start_unix_server(talker.converse, options.socket, limit=options.max_message)
    except OSError as error:
        raise ServerError(f"cannot make the socket {options.socket}: {error}") from None
    await stopping.wait()
    server.close()
    os.unlink(options.socket)
