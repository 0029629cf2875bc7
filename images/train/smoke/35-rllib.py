"""RLlib trains PPO on the example's crane, in processes of its own, and goes on from its checkpoint; nobody is told."""

import os
import sys
import tempfile

import policylib
import smokelib

if not smokelib.row().get("ray"):
    smokelib.skip("this row has no RLlib")

import numpy
import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

FLOATS = 12_000_000  # 96 MB: more than the 64 MB of /dev/shm that containers get by default
STEPS = 800  # an iteration


def crane(_settings: object) -> object:
    """Return the example's crane, in whatever process RLlib steps it."""
    sys.path.insert(0, str(policylib.EXAMPLE))
    import envs  # noqa: F401  registers it
    import gymnasium

    return gymnasium.make("Crane-v0")


@ray.remote
def total(array: numpy.ndarray) -> float:
    """Return the sum of an array, in another process."""
    return float(array.sum())


def used_shm() -> int:
    """Return the bytes in use in /dev/shm."""
    shm = os.statvfs("/dev/shm")
    return (shm.f_blocks - shm.f_bfree) * shm.f_frsize


def steps(result: dict) -> int:
    """Return the steps that an algorithm has behind it."""
    return int(result["num_env_steps_sampled_lifetime"])


if __name__ == "__main__":
    smokelib.equal("RAY_USAGE_STATS_ENABLED", os.environ.get("RAY_USAGE_STATS_ENABLED"), "0", "train must set it")
    before = used_shm()  # Ray may take all of its store at once
    ray.init(
        num_cpus=3, include_dashboard=False, log_to_driver=False, object_store_memory=256 << 20,
        _node_ip_address="127.0.0.1",
    )  # fmt: skip
    stored = ray.put(numpy.ones(FLOATS))
    found = ray.get(total.remote(stored))
    smokelib.equal("sum of an object in Ray's store", found, float(FLOATS), "Ray's shared memory is corrupt")
    smokelib.require(
        used_shm() - before >= FLOATS * 8,
        "Ray's object store is not in /dev/shm",
        f"start the container with --shm-size={smokelib.row()['shm_size']} (buildkit run does)",
    )
    register_env("crane", crane)
    config = (
        PPOConfig()
        .environment("crane")
        .env_runners(num_env_runners=2)
        .training(train_batch_size=STEPS, minibatch_size=200, num_epochs=2)
        .debugging(seed=1)
    )
    algorithm = config.build_algo()
    first = steps(algorithm.train())
    weights = algorithm.get_module().state_dict()
    with tempfile.TemporaryDirectory() as folder:
        path = algorithm.save_to_path(folder)
        algorithm.stop()
        restored = Algorithm.from_checkpoint(path)
    same = all(value.equal(weights[name]) for name, value in restored.get_module().state_dict().items())
    smokelib.require(same and weights, "the restored policy is another one", "RLlib's checkpoints do not work here")
    second = steps(restored.train())
    restored.stop()
    ray.shutdown()
    print(f"{first} steps, then {second} after the restore")
    smokelib.require(first >= STEPS and second >= first + STEPS, "it did not go on counting", "see RLlib's log above")
