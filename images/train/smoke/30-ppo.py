"""PPO with VecNormalize on four SubprocVecEnv trains, saves, and loads as the same policy."""

import numpy
import policylib
import smokelib
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecNormalize

STEPS = 2048

if __name__ == "__main__":
    environments = VecNormalize(policylib.make_environments(4))
    model = PPO("MlpPolicy", environments, n_steps=256, batch_size=256, n_epochs=4, seed=1, device="cpu")
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    model.learn(STEPS)
    changed = [name for name, value in model.policy.state_dict().items() if not value.equal(before[name])]
    broken = [name for name, value in model.policy.state_dict().items() if not value.isfinite().all()]
    print(f"{model.num_timesteps} steps, {len(changed)} of {len(before)} parameters changed")
    smokelib.equal("steps", model.num_timesteps >= STEPS, True, "learn() ended early; see its output above")
    smokelib.require(
        len(changed) == len(before), "training changed nothing", "torch's optimiser does not work in this image"
    )
    smokelib.require(
        not broken, f"parameters are not finite: {broken}", "torch's arithmetic does not work in this image"
    )

    smokelib.OUT.mkdir(exist_ok=True)
    model.save(policylib.MODEL)
    environments.save(str(policylib.STATISTICS))
    environments.training = False
    observations = environments.reset()
    wanted, _ = model.predict(observations, deterministic=True)
    loaded, statistics = policylib.load(environments.venv)
    actual, _ = loaded.predict(observations, deterministic=True)
    smokelib.require(
        numpy.array_equal(wanted, actual),
        "the loaded policy acts differently",
        "saving and loading is broken in this image",
    )
    smokelib.require(
        numpy.array_equal(statistics.obs_rms.mean, environments.obs_rms.mean) and environments.obs_rms.count > STEPS,
        "the loaded normalisation differs",
        "saving and loading of VecNormalize is broken in this image",
    )
    environments.close()
