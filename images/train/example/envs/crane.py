"""An overhead crane: drive the trolley so that the hanging load comes to the target, and stays there without swinging.

The observation is what the sensors say, in their own units: from a speed of one to an encoder of tens of thousands.
A policy that gets it without normalisation learns little; one that was trained with it, and is then run without, acts
wildly. That makes it a good test of a deployment.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy
from gymnasium import spaces

GRAVITY = 9.81  # m/s2
RAIL = 5.0  # m, from the middle to either end
CABLE = 2.0  # m
LOAD = 500.0  # kg
ACCELERATION = 2.0  # m/s2, what the drive can do
SPEED = 2.5  # m/s
DAMPING = 0.1  # 1/s, of the swing
STEP = 0.05  # s between two decisions
SUBSTEPS = 5  # of the simulation, a decision
COUNTS = 10_000.0  # of the encoder, a metre
SWAY_LIMIT = 1.0  # rad: beyond it the crane stops, and the episode ends

#: The observation, in order: the trolley's encoder (counts) and speed (m/s), the sway (mrad) and its rate (rad/s), the
#: way from the trolley to the target (m), the force in the cable (N).
LIMITS = numpy.array([RAIL * COUNTS, SPEED, 1.5e3 * SWAY_LIMIT, 20.0, 2 * RAIL, 1e6], dtype=numpy.float32)


class Crane(gymnasium.Env):
    """The crane, with one of three ways to control it.

    Args:
        controls: `drive`: an acceleration between -1 and 1 (times 2 m/s2); `switch`: left, off, right;
            `gears`: left, off, right, and half or full power.
        render_mode: must be None; there is no picture.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  that is how Gymnasium declares it

    def __init__(self, controls: str = "drive", render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.controls = controls
        self.observation_space = spaces.Box(-LIMITS, LIMITS, dtype=numpy.float32)
        self.action_space = {
            "drive": spaces.Box(-1.0, 1.0, (1,), dtype=numpy.float32),
            "switch": spaces.Discrete(3),
            "gears": spaces.MultiDiscrete([3, 2]),
        }[controls]
        self.position = self.speed = self.sway = self.rate = self.target = 0.0

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[numpy.ndarray, dict[str, Any]]:
        """Start an episode: trolley and target anywhere on the inner 6 m of the rail, the load at rest."""
        super().reset(seed=seed)
        self.position, self.target = (float(value) for value in self.np_random.uniform(-3.0, 3.0, 2))
        self.speed = self.sway = self.rate = 0.0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[numpy.ndarray, float, bool, bool, dict[str, Any]]:
        """Drive for 50 ms.

        The reward is 1 with the load at the target, less the farther it is and the harder the drive works.
        """
        power = self._power(action)
        for _ in range(SUBSTEPS):
            self._move(power * ACCELERATION, STEP / SUBSTEPS)
        distance = abs(self.position + CABLE * numpy.sin(self.sway) - self.target)
        reward = float(1.0 / (1.0 + distance) - 0.02 * power**2)
        return self._observation(), reward, bool(abs(self.sway) > SWAY_LIMIT), False, {"distance": float(distance)}

    def _power(self, action: Any) -> float:
        """Return what share of the drive's acceleration an action asks for, -1 to 1."""
        if self.controls == "drive":
            return float(numpy.clip(action[0], -1.0, 1.0))
        if self.controls == "switch":
            return float(action) - 1.0
        return (float(action[0]) - 1.0) * (0.5, 1.0)[int(action[1])]

    def _move(self, acceleration: float, seconds: float) -> None:
        """Integrate trolley and load (semi-implicit Euler); at the ends of the rail the trolley stands."""
        speed = min(max(self.speed + acceleration * seconds, -SPEED), SPEED)
        position = self.position + speed * seconds
        if abs(position) > RAIL:
            position, speed = float(numpy.sign(position)) * RAIL, 0.0
        felt = (speed - self.speed) / seconds
        swing = -(GRAVITY * numpy.sin(self.sway) + felt * numpy.cos(self.sway)) / CABLE - DAMPING * self.rate
        self.rate += float(swing) * seconds
        self.sway += self.rate * seconds
        self.position, self.speed = position, speed

    def _observation(self) -> numpy.ndarray:
        force = LOAD * (GRAVITY * numpy.cos(self.sway) + CABLE * self.rate**2)
        way = self.target - self.position
        sensors = [self.position * COUNTS, self.speed, self.sway * 1e3, self.rate, way, force]
        return numpy.clip(numpy.array(sensors, dtype=numpy.float32), -LIMITS, LIMITS)
