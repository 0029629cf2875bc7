"""What holds for every test."""

import os
import signal

# Tests start buildkit hundreds of times: let those processes share compiled modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell starts what it puts into the background with SIGINT ignored, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
