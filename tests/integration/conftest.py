"""Fixtures that the integration tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.registry_server import RegistryServer


@pytest.fixture(scope="session")
def registry_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """One real registry for all tests of a session: use a repository of your own in it."""
    with RegistryServer(tmp_path_factory.mktemp("registry")) as server:
        yield server
