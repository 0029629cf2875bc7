"""What holds for every test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Tests start buildkit hundreds of times: let those processes share compiled modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_ONE_ENGINE = {"integration", "pipeline"}


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what shares the machine's Podman, and the demo's images, on one of pytest-xdist's workers."""
    for item in items:
        if _ONE_ENGINE & set(Path(item.path).parts):
            item.add_marker(pytest.mark.xdist_group("engine"))
