"""TensorBoard below a secret path. It has no login: who does not know the path gets 404, also for the data."""

import os
import signal
import sys

from tensorboard import program

listen, port, folder = sys.argv[1:]
server = program.TensorBoard()
# The path is read from the environment, and `launch`, unlike the command, does not print it: it is in no list of
# processes and in no log.
prefix = "/" + os.environ.pop("BUILDKIT_TOKEN")
server.configure(argv=["tensorboard", "--logdir", folder, "--host", listen, "--port", port, "--path_prefix", prefix])
server.launch()
print(f"TensorBoard shows {folder}", flush=True)
signal.pause()
