#!/usr/bin/env python3
"""A control loop at a fixed rate in Python: asks for an action each period, counts what came late, and stops safely.

    python3 control_loop.py /dev/shm/policy --rate 1000 --seconds 60

Prints one JSON object; exit code 0: no decision missed its deadline. Replace read_sensors, move and be_safe.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from array import array
from typing import Any

import policy_client

DEADLINE = 0.005  # seconds


def read_sensors(observation: array[float], step: int) -> None:
    """Fill in what the robot feels."""
    for number in range(len(observation)):
        observation[number] = (step * 7 + number * 13) % 200 / 100 - 1


def move(action: Any) -> None:
    """Do it."""


def be_safe() -> None:
    """Brakes on, zero torque: whatever is safe on this robot."""


def run(client: policy_client.ControlClient, rate: float, steps: int) -> dict[str, Any]:
    """Control for so many steps; how long decisions took, from when their period began."""
    observation = array("f", bytes(4 * client.layout.observation_count))
    took = []
    failed = 0
    following = time.monotonic()
    for step in range(steps):
        time.sleep(max(0.0, following - time.monotonic()))
        read_sensors(observation, step)
        try:
            move(client.decide(observation, DEADLINE))
        except policy_client.PolicyError as error:
            be_safe()
            failed += 1
            if isinstance(error, policy_client.NotServingError):
                print(f"control_loop: {error}", file=sys.stderr)
                break
        took.append(time.monotonic() - following)
        following += 1 / rate
    return {"missed": sum(seconds > DEADLINE for seconds in took), "failed": failed, **summary(took)}


def summary(took: list[float]) -> dict[str, float]:
    """Describe durations in seconds by percentiles in microseconds."""
    ordered = sorted(took) or [0.0]
    points = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999, "max_us": 1.0}
    found = {name: round(ordered[int(at * (len(ordered) - 1))] * 1e6, 1) for name, at in points.items()}
    return {"steps": len(took), **found}


def main() -> int:
    """Run the loop that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="the server's run folder")
    parser.add_argument("--rate", type=float, default=1000.0, help="decisions a second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--spin", type=float, default=0.0, help="microseconds to look for an answer before sleeping")
    options = parser.parse_args()
    gc.disable()
    try:
        with policy_client.ControlClient(options.run, options.spin / 1e6) as client:
            found = run(client, options.rate, int(options.rate * options.seconds))
    except policy_client.PolicyError as error:
        print(f"control_loop: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found))
    return 1 if found["missed"] or found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
