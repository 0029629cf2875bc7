"""What holds for every test."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.clones import copy_project
from tests.integration.tiny import Demo, run_demo
from tests.registry_server import RegistryServer

# Tests start buildkit hundreds of times: let those processes share compiled modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell starts what it puts into the background with SIGINT ignored, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A fresh clone in which `scripts/demo` ran once, with a registry of its own: every later test uses its images."""
    folder = tmp_path_factory.mktemp("demo") / "a clone"
    folder.mkdir()
    copy_project(folder, lend_venv=False)
    with RegistryServer(folder.parent / "registry") as server:
        environment = {**os.environ, "BUILDKIT_REGISTRY": server.host}
        first = run_demo(folder, environment)
        yield Demo(folder, server.host, environment, first)
