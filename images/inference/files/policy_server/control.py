"""The process of the control loop: waits for an observation in shared memory, answers with an action, and nothing else.

It has no threads and no garbage collection, so that nothing in it comes between a request and its answer.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy
import policy_exchange as px

from policy_server.options import Options
from policy_server.policy import Policy, first_line

_LOCK_ALL = 3  # MCL_CURRENT | MCL_FUTURE


class ControlLoop:
    """Answers the requests of one exchange until it is told to stop."""

    def __init__(self, policy: Policy, exchange: px.Exchange, spin: float = 0.0) -> None:
        """Take a policy that is warm, an exchange of its size, and how long to look before sleeping, in seconds."""
        self._policy = policy
        self._exchange = exchange
        self._spin_ns = int(spin * 1e9)
        self._stopping = False
        self._shared_observation = _shared(exchange.observation, policy.observation)
        self._shared_action = _shared(exchange.action, policy.action)
        self._is_finite = numpy.zeros(policy.observation.shape, bool)
        self._nothing = numpy.nan if policy.action.dtype == numpy.float32 else -1

    def stop(self, *_unused: Any) -> None:
        """Stop after the decision that is being made."""
        self._stopping = True

    def run(self) -> None:
        """Serve; returns when stopped, with the exchange marked so."""
        header = self._exchange.header
        requests, responses = self._exchange.address("request"), self._exchange.address("response")
        last = header.response
        header.heartbeat_ns = time.monotonic_ns()
        header.status = px.SERVING
        try:
            while not self._stopping:
                sequence = header.request
                if sequence == last:
                    if not self._is_asked(header, last):
                        px.wait(requests, last, px.HEARTBEAT_SECONDS)
                    header.heartbeat_ns = time.monotonic_ns()
                    continue
                px.fence()
                header.received_ns = time.monotonic_ns()
                self._answer(header)
                header.answered_ns = header.heartbeat_ns = time.monotonic_ns()
                px.fence()
                header.response = last = sequence
                px.wake(responses)
        finally:
            px.end(self._exchange, px.STOPPED if self._stopping else px.FAILED)

    def _is_asked(self, header: Any, last: int) -> bool:
        """Look for a new request for as long as the spin lasts."""
        until = time.monotonic_ns() + self._spin_ns if self._spin_ns else 0
        while until and time.monotonic_ns() < until:
            if header.request != last:
                return True
        return False

    def _answer(self, header: Any) -> None:
        """Decide, and leave an action with `valid` 1, or no action and what was wrong."""
        header.valid = 0
        error = self._decide()
        if error == px.OK:
            self._shared_action[...] = self._policy.action
        else:
            self._shared_action.fill(self._nothing)
        header.error, header.valid = error, int(error == px.OK)
        header.decisions += 1

    def _decide(self) -> int:
        policy = self._policy
        policy.observation[...] = self._shared_observation
        if not numpy.isfinite(policy.observation, out=self._is_finite).all():
            return px.BAD_OBSERVATION
        try:
            policy.act_once()
        except Exception as error:  # noqa: BLE001  (whatever it is, the robot must hear of it, and the loop go on)
            print(f"policy-server: a decision failed: {first_line(error)}", file=sys.stderr)
            return px.POLICY_FAILED
        return px.OK if numpy.isfinite(policy.action).all() else px.BAD_ACTION


def _shared(view: memoryview, like: Any) -> Any:
    return numpy.frombuffer(view, like.dtype).reshape(like.shape)


def run(options: Options, ready: Callable[[str], None]) -> None:
    """Load the policy, make the exchange, tell that all is ready, and serve until SIGTERM or SIGINT.

    Raises:
        ServerError: see Policy.
    """
    policy = Policy(options)
    description = policy.description
    layout = px.Layout.of(description.observation_count, description.action_count,
                          1 if description.action_space == "box" else 2)  # fmt: skip
    exchange = px.create(options.exchange, layout, options.mode)
    loop = ControlLoop(policy, exchange, options.spin)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, loop.stop)
    if options.realtime:
        be_realtime(options.realtime)
    ready(f"{description.algorithm} for {description.environment}: {description.observation_count} numbers -> "
          f"{description.action_count} ({description.action_space}), {policy.provider}")  # fmt: skip
    gc.collect()
    gc.freeze()
    gc.disable()
    loop.run()


def be_realtime(priority: int) -> None:
    """Run under SCHED_FIFO with all memory locked; where that is not permitted, say what permits it, and go on."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError as error:
        print(f"policy-server: no real-time priority ({error.strerror}): start with --ulimit rtprio={priority} as a "
              "user whose limits permit that", file=sys.stderr)  # fmt: skip
    if ctypes.CDLL(None, use_errno=True).mlockall(_LOCK_ALL):
        print(f"policy-server: memory is not locked ({os.strerror(ctypes.get_errno())}): start with "
              "--ulimit memlock=-1", file=sys.stderr)  # fmt: skip
