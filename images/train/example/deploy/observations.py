"""Observations to compare a policy over: what it meets, what it meets when it is disturbed, and beyond."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy
import torch

_DISTURBED = 0.3  # of the actions are random


def draw(policy: Any, module: Any, count: int, seed: int, tie: float) -> numpy.ndarray:
    """Return raw observations, float32.

    One in five is met in episodes with many a random action; the others are spread about those three times as wide,
    within the bounds of the space. Where a discrete policy has two best actions, to within ``tie``, an
    observation is left out.
    """
    generator = numpy.random.default_rng(seed)
    met = _met(policy, count // 5, seed, generator)
    found = numpy.empty((0, *met.shape[1:]), dtype=numpy.float32)
    candidates = met
    while len(found) < count:
        found = numpy.concatenate([found, candidates[~_is_tied(module, candidates, tie)]])
        candidates = _spread(met, count - count // 5, policy.model.observation_space, generator)
    return found[:count]


def _met(policy: Any, count: int, seed: int, generator: numpy.random.Generator) -> numpy.ndarray:
    environment = gymnasium.make(policy.environment_id)
    environment.action_space.seed(seed)
    observations = []
    observation, _ = environment.reset(seed=seed)
    while len(observations) < count:
        observations.append(numpy.asarray(observation, dtype=numpy.float32))
        random = generator.random() < _DISTURBED
        action = environment.action_space.sample() if random else policy.act(observations[-1][None])[0]
        observation, _, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            observation, _ = environment.reset()
    environment.close()
    return numpy.stack(observations)


def _spread(met: numpy.ndarray, count: int, space: Any, generator: numpy.random.Generator) -> numpy.ndarray:
    noise = generator.normal(size=(count, *met.shape[1:]))
    wide = met.mean(axis=0, dtype=float) + 3 * met.std(axis=0, dtype=float) * noise
    return numpy.clip(wide, space.low, space.high).astype(numpy.float32)


def _is_tied(module: Any, observations: numpy.ndarray, tie: float) -> numpy.ndarray:
    """Say for each observation whether the two best choices are as good as equal."""
    if module.kind == "box":
        return numpy.zeros(len(observations), dtype=bool)
    with torch.no_grad():
        logits = module.logits(torch.as_tensor(observations))
    parts = logits.split(module.choices, dim=1) if module.kind == "multi_discrete" else (logits,)
    best = [part.topk(2, dim=1).values for part in parts if part.shape[1] > 1]
    tied = [(two[:, 0] - two[:, 1] < tie).numpy() for two in best]
    return numpy.any(tied, axis=0) if tied else numpy.zeros(len(observations), dtype=bool)
