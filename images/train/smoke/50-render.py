"""A frame renders without a display."""

import os

import gymnasium
import policylib
import smokelib

if __name__ == "__main__":
    if smokelib.is_cuda() and not smokelib.expect()["gpu_present"]:
        os.environ["MUJOCO_GL"] = "osmesa"  # EGL needs the driver that comes with a GPU
    print("MUJOCO_GL", os.environ["MUJOCO_GL"])
    environment = gymnasium.make(policylib.ENVIRONMENT, render_mode="rgb_array", width=320, height=240)
    environment.reset(seed=1)
    first = environment.render()
    for _ in range(20):
        environment.step(environment.action_space.sample())
    second = environment.render()
    environment.close()
    todo = "is libOSMesa (or, with a GPU, libEGL and the graphics capability) in the image?"
    smokelib.equal("frame", first.shape, (240, 320, 3), todo)
    smokelib.require(first.std() > 5, f"the frame is blank (deviation {first.std():.1f})", todo)
    smokelib.require((first != second).any(), "the picture does not move", todo)
