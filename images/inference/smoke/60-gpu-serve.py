"""On a GPU the policy server decides on the GPU, and says so; it never does on the CPU in silence."""

import numpy
import policy_client
import servelib
import smokelib

TOLERANCE = 1e-3  # TF32 explains that much, not more
DECISIONS = 1000

policy = smokelib.artifact("policy.onnx")
observations = numpy.load(smokelib.artifact("observations.npy"))[:DECISIONS]
wanted = numpy.load(smokelib.artifact("actions.npy"))[:DECISIONS]
with servelib.served(policy, "--provider", "cuda") as server:
    with policy_client.SocketClient(server.folder) as talker:
        provider = talker.ask({"ask": "info"})["provider"]
        smokelib.equal("provider", provider, "CUDAExecutionProvider", servelib.REMEDY)
    servelib.drive(server.folder, observations, wanted, TOLERANCE)
