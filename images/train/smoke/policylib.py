"""The small training run that the train checks share: which environment, and where its results lie."""

from __future__ import annotations

import gymnasium
import smokelib
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv, VecNormalize

#: MuJoCo, many joints, continuous actions; Gymnasium 1.0 renewed it.
ENVIRONMENT = "HalfCheetah-v5" if int(gymnasium.__version__.split(".")[0]) >= 1 else "HalfCheetah-v4"
MODEL = smokelib.OUT / "policy.zip"
STATISTICS = smokelib.OUT / "vecnormalize.pkl"


def make_environments(count: int) -> VecEnv:
    """Return ``count`` environments, each in a process of its own."""
    return make_vec_env(
        ENVIRONMENT, n_envs=count, seed=1, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"}
    )


def load(environments: VecEnv) -> tuple[PPO, VecNormalize]:
    """Return the trained policy and its normalisation, as a user would load them."""
    smokelib.require(MODEL.exists() and STATISTICS.exists(), "there is no trained policy", "look at why 30-ppo failed")
    normalised = VecNormalize.load(str(STATISTICS), environments)
    normalised.training = False
    return PPO.load(MODEL, device="cpu"), normalised
