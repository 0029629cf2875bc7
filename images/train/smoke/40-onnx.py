"""The policies export to ONNX, their normalisation folded in, and act as torch does; kept for the inference image."""

import shutil

import numpy
import onnxlib
import policylib
import smokelib
from stable_baselines3 import PPO

#: The run of each policy that is kept.
RUNS = {"policy": "crane-ppo-quick", "discrete": "crane-switch-ppo-quick"}
FORGOTTEN = 0.01  # what a forgotten normalisation must change at least, or the comparison would prove nothing


def export(config: str, *arguments: object) -> "policylib.subprocess.Popen[str]":
    """Start to export a run."""
    opset = smokelib.row().get("opset")
    given = ["--opset", opset] if opset else []
    return policylib.start("deploy/export_onnx.py", policylib.newest(config), *given, *arguments)


def keep(name: str, config: str) -> None:
    """Keep the observations, and the actions that Stable-Baselines3 itself gives for them."""
    folder = policylib.newest(config)
    model, statistics = PPO.load(folder / "model.zip", device="cpu"), policylib.statistics(folder)
    observations = numpy.load(smokelib.OUT / name / "observations.npy")
    smokelib.equal("observations", len(observations), onnxlib.OBSERVATIONS, "see export_onnx.py")
    wanted, _ = model.predict(statistics.normalize_obs(observations), deterministic=True)
    forgotten, _ = model.predict(observations, deterministic=True)
    difference = abs(wanted.astype(float) - forgotten).max()
    smokelib.require(difference > FORGOTTEN, "normalisation makes no difference", "the comparison proves nothing")
    files = onnxlib.FILES[name]
    numpy.save(smokelib.OUT / files.observations, observations)
    numpy.save(smokelib.OUT / files.actions, wanted)
    shutil.rmtree(smokelib.OUT / name)


if __name__ == "__main__":
    smokelib.OUT.mkdir(exist_ok=True)
    exports = [
        export(config, "--output", smokelib.OUT / onnxlib.FILES[name].model, "--samples", smokelib.OUT / name)
        for name, config in RUNS.items()
    ]
    for process in exports:
        policylib.finish(process)
    policylib.finish(export("cheetah-sac-quick"))
    for name, config in RUNS.items():
        keep(name, config)
        onnxlib.require_same(smokelib.OUT, "CPUExecutionProvider", name)
