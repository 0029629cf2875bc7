"""PPO with VecNormalize on four SubprocVecEnv, killed in the middle, goes on as if nothing had been, and learns."""

import json

import policylib
import psutil
import smokelib
from stable_baselines3 import PPO
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

CONFIG = "crane-ppo-quick"
STEPS = 12288
BETTER = 30.0  # points of reward an episode; about 85 before and 155 after


def kill_in_the_middle() -> None:
    """Train for three checkpoints, and kill; what it had started must end by itself."""
    process = policylib.train(CONFIG)
    policylib.wait_for_checkpoints(process, 3)
    started = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate(timeout=30)
    _, alive = psutil.wait_procs(started, timeout=30)
    smokelib.require(
        len(started) > 4 and not alive,
        f"{len(started)} processes belonged to the training, and {len(alive)} outlive its kill",
        "environments must end when the process that steps them does",
    )


def require_going_on() -> None:
    """End as failed unless steps, statistics and schedule went on."""
    last = policylib.newest(CONFIG)
    smokelib.equal("steps", policylib.steps(last), STEPS, "the resumed run must count on from its checkpoint")
    count = policylib.statistics(last).obs_rms.count
    print(f"statistics over {count:.0f} observations")
    smokelib.require(count >= STEPS, "the statistics began anew when the run resumed", "they must be in the checkpoint")
    curves = EventAccumulator(str(policylib.RUNS / CONFIG / "tensorboard")).Reload()
    rates = [(event.step, event.value) for event in curves.Scalars("train/learning_rate")]
    smokelib.require(
        rates == sorted(set(rates), key=lambda one: (one[0], -one[1])) and [*{step: 0 for step, _ in rates}] == [
            step for step, _ in rates
        ],
        f"TensorBoard's curve does not go on where it was cut: {rates}",
        "the resumed run must hide what came after its checkpoint",
    )  # fmt: skip
    falls = all(later < earlier for (_, earlier), (_, later) in zip(rates, rates[1:]))  # noqa: B905
    smokelib.require(falls and rates[-1][1] < 2e-4, f"the learning rate's schedule began anew: {rates}", "see learn()")


if __name__ == "__main__":
    kill_in_the_middle()
    left = policylib.steps(policylib.newest(CONFIG))
    smokelib.require(0 < left < STEPS, f"the kill left {left} steps", "a checkpoint must be complete, or not there")
    said = policylib.finish(policylib.train(CONFIG, "--resume"))
    smokelib.require(f"resumed at step {left}:" in said, f"it did not resume at {left}", "see its output above")
    require_going_on()

    first, last = policylib.checkpoints(CONFIG)[0], policylib.newest(CONFIG)
    policylib.require_trained(PPO.load(first / "model.zip", device="cpu"), PPO.load(last / "model.zip", device="cpu"))
    played = [policylib.start("evaluate.py", checkpoint, "--json") for checkpoint in (first, last)]
    before, after = (json.loads(policylib.finish(process))["reward_mean"] for process in played)
    print(f"reward {before:.1f} before, {after:.1f} after")
    smokelib.require(after > before + BETTER, f"the reward went from {before:.1f} to {after:.1f}", "PPO does not learn")
