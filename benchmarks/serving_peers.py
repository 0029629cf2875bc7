"""What serving.py compares with, inside the inference image: ONNX Runtime in the same process, and JSON over HTTP.

python3 serving_peers.py DECISIONS      prints {"in process": [nanoseconds, ...], "HTTP and JSON": [...]}
"""

from __future__ import annotations

import http.client
import http.server
import json
import os
import signal
import sys
from typing import Any

import numpy
import onnxruntime
from decisions import timed


def load() -> Any:
    """Return the policy as a session of one thread."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    return onnxruntime.InferenceSession("/policy/policy.onnx", settings, providers=["CPUExecutionProvider"])


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers {"observation": [...]} with {"action": [...]}, keeping the connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = 2**16  # one write an answer: two would wait for each other's acknowledgement, 40 ms each time
    disable_nagle_algorithm = True
    session: Any = None

    def do_POST(self) -> None:
        """Decide."""
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        observation = numpy.asarray([given["observation"]], numpy.float32)
        body = json.dumps(
            {"action": self.session.run(["action"], {"observation": observation})[0][0].tolist()}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_unused: Any) -> None:
        """Say nothing."""


def over_http(observations: Any) -> list[int]:
    """Serve from a process of its own, as one would, and ask it."""
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    child = os.fork()
    if not child:
        Handler.session = load()
        server.serve_forever()
    connection = http.client.HTTPConnection(*server.server_address[:2])

    def decide(observation: Any) -> Any:
        connection.request("POST", "/", json.dumps({"observation": observation.tolist()}))
        return json.loads(connection.getresponse().read())

    try:
        timed(decide, observations[:100])
        return timed(decide, observations)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def main() -> None:
    """Measure both."""
    http_first = load()  # its input's shape; the fork of over_http comes before any thread of ours
    shape = http_first.get_inputs()[0].shape[1:]
    observations = numpy.random.default_rng(0).normal(size=(int(sys.argv[1]), *shape)).astype(numpy.float32)
    by_http = over_http(observations)

    def decide(observation: Any) -> Any:
        return http_first.run(["action"], {"observation": observation[None]})[0]

    timed(decide, observations[:100])
    print(json.dumps({"in process": timed(decide, observations), "HTTP and JSON": by_http}))


if __name__ == "__main__":
    main()
