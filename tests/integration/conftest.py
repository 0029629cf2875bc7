"""Fixtures that the integration tests share: a registry, Podman, and tiny projects on the demo's images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuild.engine.podman import Podman
from imagebuild.engine.service import find_socket
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


@pytest.fixture
def tiny(tmp_path: Path, demo: Demo, registry_server: RegistryServer) -> Tiny:
    """A project whose only row builds on the demo's base image in seconds."""
    return Tiny.make(tmp_path / "tiny", demo.image("base"), registry_server.host)
