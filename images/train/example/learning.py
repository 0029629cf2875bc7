"""Environments, algorithm and normalisation of a run, made from its configuration or loaded from a checkpoint."""

from __future__ import annotations

import difflib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import Any, NoReturn

import envs  # noqa: F401  registers this project's environments
import gymnasium
import numpy
import torch
from checkpoints import MODEL, REPLAY, STATISTICS, Checkpoint
from settings import ConfigError
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecNormalize

ALGORITHMS = {"ppo": PPO, "sac": SAC}
DEFAULT_SHM = 64 << 20  # bytes of /dev/shm that a container gets when nobody asks for more


class Starter:
    """Makes an environment, in whatever process it is called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> gymnasium.Env:
        """Make it; in a process of its own, stop signals are left to the process that trains."""
        if multiprocessing.parent_process() is not None:  # tini and Ctrl-C signal the whole group
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return Monitor(gymnasium.make(self.name))


def linear(start: float) -> Callable[[float], float]:
    """Return a learning rate that falls to zero over the run.

    A function within a function, so that it goes into model.zip as it is: that file then loads without this project.
    """

    def rate(remaining: float) -> float:
        return start * remaining

    return rate


def check(config: Mapping[str, Any]) -> None:
    """Try the environment before anything is started.

    Raises:
        ConfigError: there is no such environment, or the algorithm cannot control it.
    """
    name = config["environment"]["id"]
    try:
        environment = gymnasium.make(name)
    except gymnasium.error.Error as error:
        near = difflib.get_close_matches(name, gymnasium.registry, 1)
        hint = f"did you mean {near[0]}?" if near else "this project registers its own in envs/__init__.py"
        raise ConfigError(f"environment.id: {error}; {hint}") from None
    actions = environment.action_space
    environment.close()
    if config["algorithm"] == "sac" and not isinstance(actions, gymnasium.spaces.Box):
        raise ConfigError(f"algorithm: sac needs continuous actions, and {name} has {actions}: take `algorithm: ppo`")


def make_environments(config: Mapping[str, Any]) -> VecEnv:
    """Return the environments of a run, all in this process or each in one of its own."""
    wanted = config["environment"]
    starters = [Starter(wanted["id"]) for _ in range(wanted["count"])]
    if not wanted["processes"]:
        return DummyVecEnv(starters)
    warn_of_little_shm()
    # A server that has imported the libraries once forks the processes: faster than importing them in each, and
    # without what a fork of this process would inherit (threads, a CUDA context).
    multiprocessing.set_forkserver_preload(["stable_baselines3.common.vec_env.subproc_vec_env"])
    noting = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # for the server, which would end with the group otherwise
    forkserver.ensure_running()
    signal.signal(signal.SIGTERM, noting)
    environments = SubprocVecEnv(starters, start_method="forkserver")
    environments.closing = threading.Event()
    threading.Thread(target=_watch, args=(environments.processes, environments.closing), daemon=True).start()
    return environments


def _watch(processes: Sequence[Any], closing: threading.Event) -> None:
    """End the training when a process of an environment dies: SB3 may wait for its answer for ever."""
    connection.wait([process.sentinel for process in processes])
    if not closing.is_set():
        lost()


def lost() -> NoReturn:
    """End this process, as that of an environment has died; other threads may hang, and need not be waited for."""
    for process in multiprocessing.active_children():  # or their tracebacks would bury what is said here
        process.kill()
    print(
        "the process of an environment died: was it out of memory? see the lines above; "
        "the same command goes on from the last checkpoint",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)  # a checkpoint that is half-written does not count


def warn_of_little_shm() -> None:
    """Say so where /dev/shm is what containers get by default."""
    shm = os.statvfs("/dev/shm")
    size = shm.f_frsize * shm.f_blocks
    if size <= DEFAULT_SHM:
        print(
            f"warning: /dev/shm holds {size >> 20} MB, and processes that share tensors need more: "
            "start the container with --shm-size=8g (`buildkit run` does)",
            flush=True,
        )


def close(environments: VecEnv) -> None:
    """Close environments."""
    if hasattr(environments, "closing"):
        environments.closing.set()
    environments.close()


def device(wanted: str) -> str:
    """Return the device to train on.

    Raises:
        ConfigError: a GPU is wanted, and torch sees none.
    """
    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        built = f"this torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "this torch has no CUDA"
        hint = "see `buildkit doctor`, start the container with its GPU, or write `device: auto`"
        raise ConfigError(f"device: cuda is wanted, and torch sees no GPU ({built}): {hint}")
    return "cuda" if there and wanted != "cpu" else "cpu"


def use(wanted: str, threads: int) -> None:
    """Say so now if the device is not there, and let torch take this many threads on the CPU.

    Raises:
        ConfigError: a GPU is wanted, and torch sees none.
    """
    if device(wanted) == "cpu" and wanted == "auto" and torch.version.cuda:
        print("warning: no GPU is visible: training on the CPU (`device: cuda` makes this an error)", flush=True)
    torch.set_num_threads(threads)


def start(config: Mapping[str, Any], environments: VecEnv) -> BaseAlgorithm:
    """Return a new model on environments; normalised ones if the configuration says so."""
    environments.seed(config["seed"])
    normalise = config["normalise"]
    if normalise["observations"] or normalise["rewards"]:
        environments = VecNormalize(
            environments,
            norm_obs=normalise["observations"],
            norm_reward=normalise["rewards"],
            clip_obs=normalise["clip"],
            gamma=config[config["algorithm"]]["gamma"],
        )
    options = dict(config[config["algorithm"]])
    schedule = options.pop("schedule")
    rate: float | Callable[[float], float] = options.pop("learning_rate")
    return ALGORITHMS[config["algorithm"]](
        "MlpPolicy",
        environments,
        learning_rate=linear(rate) if schedule == "linear" else rate,
        seed=config["seed"],
        device=device(config["device"]),
        policy_kwargs={"net_arch": list(config["network"]["hidden"])},
        **options,
    )


def resume(checkpoint: Checkpoint, config: Mapping[str, Any], environments: VecEnv) -> BaseAlgorithm:
    """Return the model of a checkpoint, as it was, on environments that start new episodes.

    The random numbers start afresh, from seed and steps: a resumed run is as good as one that was never stopped, and
    not the same to the bit.
    """
    seed = config["seed"] + checkpoint.steps
    environments.seed(seed)
    if checkpoint.is_normalised:
        environments = VecNormalize.load(str(checkpoint.file(STATISTICS)), environments)
    algorithm = ALGORITHMS[config["algorithm"]]
    model = algorithm.load(checkpoint.file(MODEL), env=environments, device=device(config["device"]))
    if REPLAY in checkpoint.manifest["files"]:
        model.load_replay_buffer(str(checkpoint.file(REPLAY)))
    model.set_random_seed(seed)
    return model


def files(model: BaseAlgorithm) -> dict[str, Callable[[Path], None]]:
    """Return what a checkpoint of a model consists of: name -> what writes it."""
    found: dict[str, Callable[[Path], None]] = {MODEL: model.save}
    statistics = model.get_vec_normalize_env()
    if statistics is not None:
        found[STATISTICS] = lambda path: statistics.save(str(path))
    if isinstance(model, SAC):
        found[REPLAY] = lambda path: model.save_replay_buffer(str(path))
    return found


class Policy:
    """The policy of a checkpoint, on the CPU, with the normalisation that it was trained with."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        config = checkpoint.config
        torch.set_num_threads(1)  # the network is small: threads would wait for each other more than they compute
        self.checkpoint = checkpoint
        self.environment_id = str(config["environment"]["id"])
        self.normalisation: VecNormalize | None = None
        if checkpoint.is_normalised:
            environments = DummyVecEnv([Starter(self.environment_id)])
            self.normalisation = VecNormalize.load(str(checkpoint.file(STATISTICS)), environments)
            self.normalisation.training = False
        self.model = ALGORITHMS[config["algorithm"]].load(checkpoint.file(MODEL), device="cpu")

    def act(self, observations: numpy.ndarray) -> numpy.ndarray:
        """Return the best actions for raw observations, as the environment takes them."""
        if self.normalisation is not None:
            observations = self.normalisation.normalize_obs(observations)
        actions, _ = self.model.predict(observations, deterministic=True)
        return numpy.asarray(actions)
