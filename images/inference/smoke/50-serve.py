"""The policy server gives torch's actions over shared memory and over its socket, and says so when it has none."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy
import policy_client as client
import servelib
import smokelib

TOLERANCE = 1e-5  # of continuous actions; discrete ones are equal
SECONDS = servelib.ANSWER_SECONDS
ON_CPU = ("--provider", "cpu")  # GPUs have a check of their own
HANGS_AFTER = 1.5  # seconds; clients count a server as gone after one


def expect(kind: type[Exception], what: str, call: Any, *arguments: Any) -> None:
    """End as failed unless a call raises."""
    try:
        call(*arguments)
    except kind as error:
        print(f"{what}: {error}")
    else:
        smokelib.fail(f"{what} was not refused", servelib.REMEDY)


def check_refusals(folder: str, observation: Any) -> None:
    """What is no observation gets no action, and the next one does."""
    broken = observation.copy()
    broken[0] = numpy.nan
    with client.ControlClient(folder) as control:
        expect(client.RefusedError, "not a number over shared memory", control.decide, broken, SECONDS)
        expect(client.BusyError, "a second control loop", client.ControlClient, folder)
        control.decide(observation, SECONDS)
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(f"{folder}/policy.sock")
        raw.sendall(b'{"observation": [1e999]}\n\xff\n' + b"[" * 100_000 + b'\n{"observation": ["1"]}\n')
        lines = raw.makefile("rb")
        for _ in range(4):
            smokelib.require(b'"error"' in lines.readline(), "nonsense on the socket got no error", servelib.REMEDY)
    with client.SocketClient(folder) as talker:
        expect(client.RefusedError, "too few numbers on the socket", talker.decide, [0.0])
        talker.decide(observation.tolist())


def check_ends(server: servelib.Server, policy: Path, observation: Any) -> None:
    """A client hears of every end of the server, and can go on with the next one."""
    with client.ControlClient(server.folder) as control:
        server.kill()
        smokelib.require(not server.is_healthy(), "a killed server is called healthy", servelib.REMEDY)
        after = servelib.Server(policy, server.folder, *ON_CPU)
        try:
            expect(
                client.NotServingError, "a server that was killed and replaced", control.decide, observation, SECONDS
            )
            control.connect()
            control.decide(observation, SECONDS)
            kill_socket(after)
            control.decide(observation, SECONDS)
            smokelib.equal("exit code after SIGTERM", after.stop(), 0, servelib.REMEDY)
            expect(client.NotServingError, "a stopped server", control.decide, observation, SECONDS)
        finally:
            after.end()
    expect(client.NotServingError, "a stopped server's exchange", client.ControlClient, server.folder)
    smokelib.require(not after.is_healthy(), "a stopped server is called healthy", servelib.REMEDY)


def check_crash(policy: Path, observation: Any) -> None:
    """A control loop that hangs is unhealthy; one that crashes ends the server, and its client hears of it."""
    with servelib.served(policy, *ON_CPU) as server, client.ControlClient(server.folder) as control:
        control.decide(observation, SECONDS)
        loop = server.children()[0]
        os.kill(loop, signal.SIGSTOP)
        time.sleep(HANGS_AFTER)
        smokelib.require(not server.is_healthy(), "a server that hangs is called healthy", servelib.REMEDY)
        expect(client.NotServingError, "a server that hangs", control.decide, observation, 0.01)
        os.kill(loop, signal.SIGCONT)
        control.decide(observation, SECONDS)
        os.kill(loop, signal.SIGKILL)
        smokelib.equal("exit code after a crash", server.wait(), 1, servelib.REMEDY)
        expect(client.NotServingError, "a server that crashed", control.decide, observation, SECONDS)


def check_fallback(policy: Path) -> None:
    """An image for GPUs does not serve from the CPU unless it is told to: without a GPU it ends, and says why."""
    with tempfile.TemporaryDirectory(prefix="policy-", dir="/tmp") as folder:
        command = ["policy-server", "--policy", str(policy), "--run", folder]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    said = done.stderr.strip().splitlines()[-1:]
    print(*said)
    smokelib.equal("exit code without a GPU", done.returncode, 1, "it must not serve from the CPU in silence")
    smokelib.require("CUDA" in "".join(said), f"it does not say why it ended: {said}", servelib.REMEDY)


def kill_socket(server: servelib.Server) -> None:
    """Kill the process of the socket: it must come back."""
    os.kill(server.children()[1], signal.SIGKILL)
    until = time.monotonic() + 30
    time.sleep(0.2)
    while not server.is_healthy():
        smokelib.require(time.monotonic() < until, "a socket that died did not come back", servelib.REMEDY)
        time.sleep(0.2)


def check(prefix: str, name: str) -> None:
    """Serve one policy and compare all its actions."""
    policy = smokelib.artifact(name)
    observations = numpy.load(smokelib.artifact(f"{prefix}observations.npy"))
    wanted = numpy.load(smokelib.artifact(f"{prefix}actions.npy"))
    with servelib.served(policy, *ON_CPU) as server:
        servelib.drive(server.folder, observations, wanted, TOLERANCE)
        if not prefix:
            check_refusals(server.folder, observations[0])
            check_ends(server, policy, observations[0])
            check_crash(policy, observations[0])


check("", "policy.onnx")
if (smokelib.IN / "discrete.onnx").exists():
    check("discrete-", "discrete.onnx")
if smokelib.is_cuda() and not smokelib.expect()["gpu_present"]:
    check_fallback(smokelib.artifact("policy.onnx"))
