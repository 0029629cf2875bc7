"""SB3 trains on the GPU by itself, and the memory is free afterwards."""

import gc

import gpulib
import smokelib

gpulib.gpu()
if not smokelib.installed("stable-baselines3"):
    smokelib.skip("there is no Stable-Baselines3 here")

import torch  # noqa: E402  its absence has a message of its own
from stable_baselines3 import PPO  # noqa: E402


def train() -> None:
    """Train for a moment, with the device that SB3 chooses."""
    model = PPO("MlpPolicy", "Pendulum-v1", n_steps=128, batch_size=64, n_epochs=1, seed=1)
    smokelib.equal(
        "device", model.device.type, "cuda", "SB3 chose the CPU although a GPU is there; see the check gpu-torch"
    )
    model.learn(256)


before = torch.cuda.memory_allocated()
with gpulib.explained():
    train()
gc.collect()
torch.cuda.empty_cache()
left = torch.cuda.memory_allocated() - before
smokelib.require(left <= 16 << 20, f"{left} bytes stay allocated on the GPU", "something keeps the model alive")
