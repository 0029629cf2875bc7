"""PPO trains a policy with discrete actions, all environments in one process."""

import policylib
import smokelib
from stable_baselines3 import PPO

CONFIG = "crane-switch-ppo-quick"

policylib.finish(policylib.train(CONFIG))
first, last = policylib.checkpoints(CONFIG)[0], policylib.newest(CONFIG)
smokelib.equal("steps", policylib.steps(last), 4096, "see the output of train.py above")
policylib.require_trained(PPO.load(first / "model.zip", device="cpu"), PPO.load(last / "model.zip", device="cpu"))
