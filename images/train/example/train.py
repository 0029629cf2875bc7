"""Train a policy, as a configuration says. The same command again goes on where the run was stopped, killed or cut off.

Examples:
    python train.py --config configs/crane-ppo.yaml
    python train.py --config configs/cheetah-sac.yaml --run /workspace/runs/second-try
    python train.py --config configs/crane-ppo.yaml --resume       there must be something to go on with

Exit codes: 0 done, 1 failed, 2 bad configuration, 130 and 143 stopped by Ctrl-C and SIGTERM (with a checkpoint).
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

import settings
from checkpoints import Checkpoint, CheckpointError, Run

RUNS = Path("/workspace/runs")


def parse() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="the YAML file")
    parser.add_argument("--run", type=Path, help=f"the folder of the run (default: {RUNS}/<name of the configuration>)")
    parser.add_argument("--resume", action="store_true", help="fail if there is no checkpoint to go on from")
    parser.add_argument("--steps", type=int, help="train up to this many steps instead of the configuration's")
    return parser.parse_args()


class Stop:
    """Notes a signal that asks to stop, for the training loop to see."""

    def __init__(self) -> None:
        self.signal = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: Any) -> None:
        self.signal = number


def beginning(run: Run, config: dict[str, Any], *, must_resume: bool) -> Checkpoint | None:
    """Return the checkpoint to go on from; None for a new run.

    Raises:
        ConfigError: the run in that folder was started with something else.
        CheckpointError: there must be one, and there is none.
    """
    checkpoint = run.newest()
    if checkpoint is None:
        if must_resume:
            raise CheckpointError(f"there is no checkpoint in {run.folder} to resume from: leave out --resume")
        return None
    changed = settings.differences(checkpoint.config, config)
    if changed:
        message = f"{run.folder} has a run with another configuration: {'; '.join(changed)}"
        raise settings.ConfigError(f"{message}: give --run another folder")
    return checkpoint


def train(run: Run, config: dict[str, Any], checkpoint: Checkpoint | None) -> int:
    """Train from the beginning or a checkpoint on; return the exit code."""
    stop = Stop()
    import learning  # slow: torch, after what can be said without it
    from training import Keeper, logger

    learning.check(config)
    learning.use(config["device"], config["threads"])
    environments = learning.make_environments(config)
    try:
        if checkpoint:
            model = learning.resume(checkpoint, config, environments)
            print(f"resumed at step {model.num_timesteps}: {checkpoint.folder}", flush=True)
        else:
            model = learning.start(config, environments)
        model.set_logger(logger(run, model.num_timesteps))
        keeper = Keeper(run, config, stop)
        keeper.learn(model)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        learning.lost()
    finally:
        learning.close(environments)
    if stop.signal:
        name = signal.Signals(stop.signal).name
        print(f"stopped by {name} at step {model.num_timesteps}; the same command goes on from there", flush=True)
        return 128 + stop.signal
    print(f"done: {model.num_timesteps} steps in {run.folder}", flush=True)
    return 0


def main() -> int:
    """Train; return the exit code."""
    arguments = parse()
    try:
        config = settings.load(arguments.config)
        if arguments.steps is not None:
            config["steps"] = settings.checked("steps", arguments.steps)
        run = Run(arguments.run or RUNS / arguments.config.stem)
        with run.locked():
            checkpoint = beginning(run, config, must_resume=arguments.resume)
            if checkpoint and checkpoint.steps >= config["steps"]:
                print(f"done already: {checkpoint.steps} steps in {run.folder}")
                return 0
            return train(run, config, checkpoint)
    except settings.ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
