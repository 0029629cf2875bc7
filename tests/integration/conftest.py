"""Fixtures that the integration tests share: a registry, Podman, the demo's images, and tiny projects on them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuild.engine.podman import Podman
from imagebuild.engine.service import find_socket
from tests.clones import copy_project
from tests.integration.tiny import Demo, Tiny
from tests.registry_server import RegistryServer


@pytest.fixture(scope="session")
def registry_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """One real registry for all tests of a session: use a repository of your own in it."""
    with RegistryServer(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture(scope="session")
def podman() -> Podman:
    """The rootless Podman of this machine."""
    return Podman(find_socket(os.environ.get("BUILDKIT_PODMAN")))


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


def run_demo(folder: Path, environment: dict[str, str]) -> str:
    """Run scripts/demo; its output, which is shown as it comes when pytest runs with -s."""
    done = subprocess.run(
        [folder / "scripts" / "demo"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, timeout=1500,
    )  # fmt: skip
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


@pytest.fixture
def tiny(tmp_path: Path, demo: Demo, registry_server: RegistryServer) -> Tiny:
    """A project whose only row builds on the demo's base image in seconds."""
    return Tiny.make(tmp_path / "tiny", demo.image("base"), registry_server.host)
