"""PPO with VecNormalize on four SubprocVecEnv, killed and then stopped, goes on as if nothing had been, and learns."""

import json
import os
import signal

import policylib
import psutil
import smokelib
from stable_baselines3 import PPO
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

CONFIG = "crane-ppo-quick"
STEPS = 12288
ROLLOUT = 512  # steps that PPO collects before it looks whether it is done
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


def stop_in_the_middle() -> None:
    """Go on for a checkpoint, and stop all of its processes at once, as tini does for `podman stop`."""
    process = policylib.train(CONFIG, "--resume")
    policylib.wait_for_checkpoints(process, 1)
    os.killpg(process.pid, signal.SIGTERM)
    said = policylib.finish(process, 128 + signal.SIGTERM)
    smokelib.require("stopped by SIGTERM" in said, "it did not say that it was stopped", "see its output above")


def require_going_on() -> None:
    """End as failed unless steps, statistics and schedule went on."""
    last = policylib.newest(CONFIG)
    steps = policylib.steps(last)
    print(f"{steps} steps")
    smokelib.require(
        0 <= steps - STEPS < ROLLOUT, f"{steps} steps, not {STEPS}", "the resumed run must count on from its checkpoint"
    )
    count = policylib.statistics(last).obs_rms.count
    print(f"statistics over {count:.0f} observations")
    smokelib.require(count >= STEPS, "the statistics began anew when the run resumed", "they must be in the checkpoint")
    curves = EventAccumulator(str(policylib.RUNS / CONFIG / "tensorboard")).Reload()
    rates = curves.Scalars("train/learning_rate")
    at = [event.step for event in rates]
    todo = "the resumed run must hide what came after its checkpoint"
    smokelib.require(at == sorted(set(at)), f"TensorBoard's curve does not go on where it was cut: {at}", todo)
    values = [event.value for event in rates]
    todo = "the schedule must be that of the whole run; see Keeper.learn"
    falls = values == sorted(set(values), reverse=True) and values[-1] < 2e-4
    smokelib.require(falls, f"the learning rate does not fall as if there had been no kill: {values}", todo)


if __name__ == "__main__":
    kill_in_the_middle()
    left = policylib.steps(policylib.newest(CONFIG))
    stop_in_the_middle()
    killed, left = left, policylib.steps(policylib.newest(CONFIG))
    smokelib.require(
        0 < killed < left < STEPS,
        f"the kill left {killed} steps, and the stop {left} steps",
        "a checkpoint must be complete, or not there",
    )
    said = policylib.finish(policylib.train(CONFIG, "--resume"))
    smokelib.require(f"resumed at step {left}:" in said, f"it did not resume at {left}", "see its output above")
    require_going_on()

    first, last = policylib.checkpoints(CONFIG)[0], policylib.newest(CONFIG)
    policylib.require_trained(PPO.load(first / "model.zip", device="cpu"), PPO.load(last / "model.zip", device="cpu"))
    played = [policylib.start("evaluate.py", checkpoint, "--json") for checkpoint in (first, last)]
    before, after = (json.loads(policylib.finish(process))["reward_mean"] for process in played)
    print(f"reward {before:.1f} before, {after:.1f} after")
    smokelib.require(after > before + BETTER, f"the reward went from {before:.1f} to {after:.1f}", "PPO does not learn")
