"""What holds for every test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Tests start buildkit hundreds of times: let those processes share compiled modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_ONE_ENGINE = {"integration", "pipeline"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep what shares the machine's Podman, and the demo's images, on one of pytest-xdist's workers.

    It is done here, as xdist reads the groups before any other hook sees the list of tests.
    """
    if _ONE_ENGINE & set(Path(item.path).parts):
        item.add_marker(pytest.mark.xdist_group("engine"))
