"""SB3 trains on the GPU by itself, and the memory is free afterwards."""

import gc

import smokelib
import torch
from stable_baselines3 import PPO

smokelib.require(torch.cuda.is_available(), "torch falls back to the CPU", "see the check gpu-torch")


def train() -> None:
    """Train for a moment, with the device that SB3 chooses."""
    model = PPO("MlpPolicy", "Pendulum-v1", n_steps=128, batch_size=64, n_epochs=1, seed=1)
    smokelib.equal(
        "device", model.device.type, "cuda", "SB3 chose the CPU although a GPU is there; see the check gpu-torch"
    )
    model.learn(256)


before = torch.cuda.memory_allocated()
train()
gc.collect()
torch.cuda.empty_cache()
left = torch.cuda.memory_allocated() - before
smokelib.require(left <= 16 << 20, f"{left} bytes stay allocated on the GPU", "something keeps the model alive")
