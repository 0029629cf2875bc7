"""What holds for every test."""

import os

# Tests start buildkit hundreds of times: let those processes share compiled modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
