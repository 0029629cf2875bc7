"""SAC trains on MuJoCo, ends at SIGTERM with a checkpoint, and goes on with its replay buffer."""

import pickle
import signal

import policylib
import smokelib
from stable_baselines3 import SAC

CONFIG = "cheetah-sac-quick"
STEPS = 1200
SIGTERM_CODE = 143

process = policylib.train(CONFIG)
policylib.wait_for_checkpoints(process, 3)
process.send_signal(signal.SIGTERM)
said = policylib.finish(process, SIGTERM_CODE)
stopped = policylib.steps(policylib.newest(CONFIG))
smokelib.require(f"stopped by SIGTERM at step {stopped};" in said, "there is no checkpoint of the stop", "see above")
smokelib.require(stopped < STEPS, "it went on to the end", "SIGTERM must end the training")
policylib.finish(policylib.train(CONFIG, "--resume"))

first, last = policylib.checkpoints(CONFIG)[0], policylib.newest(CONFIG)
smokelib.equal("steps", policylib.steps(last), STEPS, "the resumed run must count on from its checkpoint")
policylib.require_trained(SAC.load(first / "model.zip", device="cpu"), SAC.load(last / "model.zip", device="cpu"))
with (last / "replay_buffer.pkl").open("rb") as file:
    buffer = pickle.load(file)
kept = buffer.pos * buffer.n_envs  # the step at which SIGTERM came is counted, and not learned from
print(f"{kept} transitions")
smokelib.require(
    STEPS - buffer.n_envs <= kept <= STEPS,
    f"{kept} transitions of {STEPS} are kept",
    "the replay buffer must be in the checkpoint",
)
