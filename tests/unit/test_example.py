"""The parts of the example project that need no torch: its configuration, and its checkpoints under kill -9."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.clones import ROOT

EXAMPLE = ROOT / "images" / "train" / "example"
GOOD = "algorithm: ppo\nsteps: 1000\nenvironment:\n  id: Crane-v0\n"


def module(name: str) -> ModuleType:
    """Load a file of the example, which is no package of ours."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLE / f"{name}.py")
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


settings = module("settings")
checkpoints = module("checkpoints")


def load(tmp_path: Path, text: str) -> dict[str, object]:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    loaded: dict[str, object] = settings.load(path)
    return loaded


def test_defaults_fill_in_and_only_the_chosen_algorithm_stays(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD + "ppo:\n  learning_rate: 3e-4\n")
    assert config["ppo"] == {**config["ppo"], "learning_rate": 3e-4, "n_steps": 2048}  # type: ignore[dict-item]
    assert "sac" not in config
    assert config["device"] == "auto"


@pytest.mark.parametrize("path", sorted((EXAMPLE / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_configurations_of_the_example_are_right(path: Path) -> None:
    assert settings.load(path)["steps"] > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD + "sed: 1\n", "run.yaml:5: sed: no such key; did you mean seed?"),
        (GOOD + "  cuont: 4\n", "run.yaml:5: environment.cuont: no such key; did you mean count?"),
        (GOOD + "seed: 1\nseed: 2\n", "run.yaml:6: seed: is there twice"),
        (GOOD + "seed: one\n", "run.yaml:5: seed: is 'one', and must be a whole number, at least 0"),
        (GOOD + "seed: true\n", "run.yaml:5: seed: is True, and must be a whole number"),
        (GOOD + "device: gpu\n", "run.yaml:5: device: is 'gpu', and must be one of auto, cpu, cuda"),
        (GOOD + "ppo:\n  gamma: 1.5\n", "run.yaml:6: ppo.gamma: is 1.5, and must be a number, at least 0, at most 1"),
        (GOOD + "ppo: fast\n", "run.yaml:5: ppo: must be a section with learning_rate, schedule"),
        (GOOD + "ppo:\n  batch_size: 100\n", "run.yaml:6: ppo.batch_size: must divide n_steps x environment.count"),
        (GOOD + "sac:\n  tau: 0.1\n", "run.yaml:5: sac: is not used with algorithm: ppo"),
        (GOOD + "network:\n  hidden: 64\n", "network.hidden: is 64, and must be a list of layer sizes, like [64, 64]"),
        ("steps: 10\nenvironment:\n  id: Crane-v0\n", "run.yaml: algorithm: is missing, and must be one of ppo, sac"),
        ("algorithm: ppo\nsteps: 1\nenvironment:\n  count: 2\n", "run.yaml:3: environment.id: is missing"),
        ("- ppo\n", "must be a mapping"),
        ("", "must be a mapping"),
        ("a: [", "is not YAML"),
    ],
)
def test_what_is_wrong_is_said_with_line_key_and_what_would_be_right(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(settings.ConfigError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)


def test_every_problem_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(settings.ConfigError) as caught:
        load(tmp_path, GOOD + "sed: 1\ndevice: gpu\n")
    assert len(str(caught.value).splitlines()) == 2


def test_a_run_may_become_longer_but_not_another(tmp_path: Path) -> None:
    old = load(tmp_path, GOOD)
    assert settings.differences(old, load(tmp_path, GOOD.replace("1000", "2000") + "device: cpu\n")) == []
    changed = settings.differences(old, load(tmp_path, GOOD + "seed: 7\nppo:\n  gamma: 0.9\n"))
    assert changed == ["seed was 1, and is 7", "ppo.gamma was 0.99, and is 0.9"]
    other = load(tmp_path, GOOD.replace("ppo", "sac"))
    assert any(line.startswith("algorithm was ppo, and is sac") for line in settings.differences(old, other))


def write(folder: Path, steps: int, *, keep: int = 3, size: int = 100) -> None:
    def content(path: Path) -> None:
        path.write_bytes(str(steps).encode() * size)

    config = {"normalise": {"observations": True, "rewards": True}}
    files = {"model.zip": content, "vecnormalize.pkl": content}
    checkpoints.Run(folder).write(steps, config, files, keep=keep)


def test_only_the_last_checkpoints_are_kept(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for steps in (0, 900, 1000, 20000):
        write(tmp_path, steps)
    assert [one.steps for one in checkpoints.Run(tmp_path).all()] == [900, 1000, 20000]


def train_without_end(run: Any, steps: int) -> None:
    """Write checkpoints, as it were, until the process is killed."""
    try:
        with run.locked():
            while True:
                steps += 1
                write(run.folder, steps, keep=2, size=20_000)
    finally:
        os._exit(1)


def test_a_kill_at_any_moment_leaves_the_last_complete_checkpoint(tmp_path: Path) -> None:
    run = checkpoints.Run(tmp_path)
    steps = kills = 0
    while steps <= 25 or kills < 25:  # on a busy machine most are killed before they write
        with run.locked():
            before = run.newest()
        child = os.fork()
        if not child:
            train_without_end(run, before.steps if before else 0)
        time.sleep(random.uniform(0.0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for found in run.all():
            for name in ("model.zip", "vecnormalize.pkl"):
                assert found.file(name).read_bytes() == str(found.steps).encode() * 20_000
        assert before is None or run.newest().steps >= before.steps
        steps, kills = run.newest().steps if run.newest() else 0, kills + 1

    with run.locked():
        assert [path.name for path in (tmp_path / "checkpoints").glob(".*-*")] == []


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path) -> None:
    with checkpoints.Run(tmp_path).locked(), pytest.raises(checkpoints.CheckpointError) as caught:
        checkpoints.Run(tmp_path).locked().__enter__()
    assert "another process trains" in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "said"), [("missing", "is missing"), ("foreign", "is not the file that was written")]
)
def test_statistics_that_are_missing_or_of_another_checkpoint_are_refused(
    tmp_path: Path, damage: str, said: str
) -> None:
    for name, steps in (("a", 10), ("b", 20)):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        write(tmp_path / name, steps)
    found, other = (checkpoints.find(tmp_path / name) for name in ("a", "b"))
    (found.folder / "vecnormalize.pkl").unlink()
    if damage == "foreign":
        other.file("vecnormalize.pkl").rename(found.folder / "vecnormalize.pkl")
    assert found.is_normalised
    with pytest.raises(checkpoints.CheckpointError) as caught:
        found.file("vecnormalize.pkl")
    assert said in str(caught.value)


def test_a_folder_without_checkpoints_is_said(tmp_path: Path) -> None:
    with pytest.raises(checkpoints.CheckpointError) as caught:
        checkpoints.find(tmp_path)
    assert "there is no checkpoint" in str(caught.value)
