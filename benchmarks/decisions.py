"""The clock of the serving benchmark: the same for the container's decisions and for its peers'."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def timed(decide: Callable[[Any], Any], observations: Any) -> list[int]:
    """Return how many nanoseconds each decision took."""
    took = []
    for observation in observations:
        began = time.perf_counter_ns()
        decide(observation)
        took.append(time.perf_counter_ns() - began)
    return took
