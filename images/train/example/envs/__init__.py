"""The environments of this project. Importing it registers them with Gymnasium, by id and with their time limit."""

import gymnasium

#: Ids, and how the crane is controlled there.
CRANES = {"Crane-v0": "drive", "CraneSwitch-v0": "switch", "CraneGears-v0": "gears"}
EPISODE_STEPS = 200

for _name, _controls in CRANES.items():
    if _name not in gymnasium.registry:
        gymnasium.register(
            _name,
            entry_point="envs.crane:Crane",
            kwargs={"controls": _controls},
            max_episode_steps=EPISODE_STEPS,
        )
