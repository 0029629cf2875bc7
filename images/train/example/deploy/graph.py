"""The network that is exported: normalisation, policy, and what makes its output an action of the environment."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from gymnasium import spaces

KINDS = {"Box": "box", "Discrete": "discrete", "MultiDiscrete": "multi_discrete"}


class Deployed(torch.nn.Module):
    """Raw observations -> the best actions, as `predict(deterministic=True)` gives them after VecNormalize.

    Args:
        model: PPO or SAC, as Stable-Baselines3 trained it.
        normalisation: the VecNormalize of its training, or None.
    """

    def __init__(self, model: Any, normalisation: Any) -> None:
        super().__init__()
        self.policy = model.policy
        self.kind = KINDS[type(model.action_space).__name__]
        self.is_normalised = normalisation is not None and normalisation.norm_obs
        if self.is_normalised:
            self.limit = float(normalisation.clip_obs)
            statistics = normalisation.obs_rms
            self.register_buffer("mean", torch.as_tensor(statistics.mean))
            self.register_buffer("scale", torch.as_tensor(numpy.sqrt(statistics.var + normalisation.epsilon)))
        if isinstance(model.action_space, spaces.Box):
            self.register_buffer("low", torch.as_tensor(model.action_space.low))
            self.register_buffer("high", torch.as_tensor(model.action_space.high))
        elif isinstance(model.action_space, spaces.MultiDiscrete):
            self.choices = [int(number) for number in model.action_space.nvec]

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Normalise, act, and give the action its form."""
        if hasattr(self.policy, "actor"):
            return self._squashed(self.normalised(observation))
        output = self.logits(observation)
        if self.kind == "box":
            return torch.minimum(torch.maximum(output, self.low), self.high)
        if self.kind == "discrete":
            return output.argmax(dim=1)
        return torch.stack([part.argmax(dim=1) for part in output.split(self.choices, dim=1)], dim=1)

    def normalised(self, observation: torch.Tensor) -> torch.Tensor:
        """Normalise as VecNormalize does: in double precision, and clipped."""
        if not self.is_normalised:
            return observation
        return ((observation.double() - self.mean) / self.scale).clamp(-self.limit, self.limit).float()

    def logits(self, observation: torch.Tensor) -> torch.Tensor:
        """Return what PPO's network gives: the mean of a continuous action, or the logits of a discrete one."""
        features = self.policy.extract_features(self.normalised(observation), self.policy.pi_features_extractor)
        output = self.policy.action_net(self.policy.mlp_extractor.forward_actor(features))
        return output.reshape(-1, *self.low.shape) if self.kind == "box" else output

    def _squashed(self, observation: torch.Tensor) -> torch.Tensor:
        """Return SAC's mean action, stretched from -1..1 to the bounds."""
        actor = self.policy.actor
        mean = actor.mu(actor.latent_pi(actor.extract_features(observation, actor.features_extractor)))
        share = torch.tanh(mean).reshape(-1, *self.low.shape)
        return self.low + 0.5 * (share + 1.0) * (self.high - self.low)
