"""Evaluate a trained policy: the reward of whole episodes, each from a seed of its own, so that it can be had again.

Examples:
    python evaluate.py /workspace/runs/crane-ppo
    python evaluate.py /workspace/runs/crane-ppo/checkpoints/step-000000000000 --episodes 50
    python evaluate.py /workspace/runs/crane-ppo --json > result.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from checkpoints import CheckpointError, find


def parse() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a run (its newest checkpoint), or of one checkpoint")
    parser.add_argument("--episodes", type=int, default=20, help="how many episodes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1000, help="of the first episode (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    if arguments.episodes < 1:
        parser.error("--episodes must be at least 1")
    return arguments


def episode(policy: Any, environment: Any, seed: int) -> tuple[float, int]:
    """Return the reward and the length of one episode."""
    observation, _ = environment.reset(seed=seed)
    reward, length, over = 0.0, 0, False
    while not over:
        observation, gained, terminated, truncated, _ = environment.step(policy.act(observation[None])[0])
        reward, length, over = reward + float(gained), length + 1, terminated or truncated
    return reward, length


def main() -> int:
    """Evaluate; return the exit code."""
    arguments = parse()
    try:
        checkpoint = find(arguments.run)
        import numpy  # slow, as the next one is: after what can be said without them
        from learning import Policy, gymnasium

        policy = Policy(checkpoint)
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 1
    environment = gymnasium.make(policy.environment_id)
    seeds = range(arguments.seed, arguments.seed + arguments.episodes)
    played = [episode(policy, environment, seed) for seed in seeds]
    rewards, lengths = zip(*played)  # noqa: B905  Python 3.8 has no strict=
    result = {
        "checkpoint": str(checkpoint.folder),
        "steps": checkpoint.steps,
        "environment": policy.environment_id,
        "episodes": arguments.episodes,
        "seed": arguments.seed,
        "reward_mean": float(numpy.mean(rewards)),
        "reward_std": float(numpy.std(rewards)),
        "length_mean": float(numpy.mean(lengths)),
        "rewards": list(rewards),
    }
    if arguments.json:
        print(json.dumps(result, indent=1))
    else:
        print("{environment} after {steps} steps: reward {reward_mean:.2f} +- {reward_std:.2f}, "
              "length {length_mean:.0f}, over {episodes} episodes".format(**result))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
