"""Promotion on a real registry: the main story, a crash, and rivals. The rest is in tests/unit/test_release.py."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from imagebuild.engine.transport import Transport
from imagebuild.errors import GateError
from tests.registry_server import RegistryServer
from tests.release_shop import Crash, Shop, consistent, crash


@pytest.fixture
def shop(registry_server: RegistryServer, request: pytest.FixtureRequest) -> Iterator[Shop]:
    made = Shop(lambda: Transport(registry_server.host), f"shop/{request.node.name.lower()}")
    yield made
    made.registry.close()


def test_promote_twice_and_go_back(shop: Shop) -> None:
    shop.release("1.0.0", "1.1.0")
    assert shop.digest("cpu-prod") == shop.digest("cpu-1.1.0-prod") == shop.digest("cpu-1.1.0")
    assert not shop.promote("1.1.0").changed
    shop.rollback()
    assert shop.digest("cpu-prod") == shop.digest("cpu-1.0.0-prod")
    assert shop.story() == ["promote 1.0.0 done", "promote 1.1.0 done", "rollback 1.0.0 done"]
    with pytest.raises(GateError, match="raise `version:`"):
        shop.promote("1.0.0", candidate=shop.candidate("1.0.0", "other"))
    consistent(shop)


def test_crash_between_the_two_tags(shop: Shop) -> None:
    shop.release("1.0.0")
    shop.candidate("1.1.0")
    with pytest.raises(Crash):
        shop.promote("1.1.0", registry=shop.interrupted(3, "before", crash))
    assert shop.digest("cpu-prod") == shop.digest("cpu-1.0.0")
    assert shop.promote("1.1.0").recovered
    assert shop.digest("cpu-prod") == shop.digest("cpu-1.1.0")
    consistent(shop)


def test_many_at_once_lose_nothing(shop: Shop) -> None:
    versions = [f"1.{number}.0" for number in range(5)]
    for version in versions:
        shop.candidate(version)
    with ThreadPoolExecutor(len(versions)) as pool:
        outcomes = list(pool.map(lambda version: shop.promote(version, registry=shop.another()), versions))
    assert all(outcome.release and outcome.release.state == "done" for outcome in outcomes)
    assert sorted(shop.story()) == [f"promote {version} done" for version in versions]
    consistent(shop)
