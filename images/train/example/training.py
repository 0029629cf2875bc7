"""The training loop's side of a run: when a checkpoint is due, when to stop, and where the curves go."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import learning
from checkpoints import Run
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger, configure
from torch.utils.tensorboard import SummaryWriter


def logger(run: Run, steps: int) -> Logger:
    """Return a logger for the terminal and TensorBoard, whose curves go on at ``steps``.

    What a killed process had logged after its last checkpoint is hidden: those steps are done once more.
    """
    if steps:
        SummaryWriter(str(run.tensorboard), purge_step=steps + 1).close()
    return configure(str(run.tensorboard), ["stdout", "tensorboard"])


class Keeper(BaseCallback):
    """Writes a checkpoint every so many steps and every so many seconds, and ends the training when asked to.

    It does so between two rollouts, when the policy has learned from all steps that are counted.
    """

    def __init__(self, run: Run, config: Mapping[str, Any], stop: Any) -> None:
        super().__init__()
        self.run = run
        self.config = config
        self.stop = stop
        self.written_steps = -1
        self.written_at = 0.0

    def learn(self, model: BaseAlgorithm) -> None:
        """Train a model up to the steps of the configuration, its schedules included, and write the last checkpoint."""
        self.init_callback(model)
        if model.num_timesteps == 0:
            self.write()
        self.written_steps, self.written_at = model.num_timesteps, time.monotonic()
        left = self.config["steps"] - model.num_timesteps
        model.learn(left, callback=self, reset_num_timesteps=model.num_timesteps == 0)
        self.write()

    def write(self) -> None:
        """Write a checkpoint of this moment, if there is none."""
        steps = self.model.num_timesteps
        if steps == self.written_steps:
            return
        keep = self.config["checkpoint"]["keep"]
        checkpoint = self.run.write(steps, self.config, learning.files(self.model), keep=keep)
        self.written_steps, self.written_at = steps, time.monotonic()
        print(f"checkpoint: {Path(checkpoint.folder)}", flush=True)

    def _on_rollout_start(self) -> None:
        due = self.config["checkpoint"]
        steps = self.model.num_timesteps - self.written_steps
        if steps >= due["every_steps"] or time.monotonic() - self.written_at >= due["every_seconds"]:
            self.write()

    def _on_step(self) -> bool:
        return not self.stop.signal
