"""The policy, its normalisation folded in, exports to ONNX and acts as torch does; kept for the inference image."""

import inspect

import numpy
import onnxruntime
import policylib
import smokelib
import torch

OBSERVATIONS = 1000
TOLERANCE = 1e-5


class Policy(torch.nn.Module):
    """Observation as the environment gives it -> action as the environment takes it."""

    def __init__(self, model: "policylib.PPO", normalisation: "policylib.VecNormalize") -> None:
        super().__init__()
        self.policy = model.policy
        self.limit = float(normalisation.clip_obs)
        statistics = normalisation.obs_rms
        scale = numpy.sqrt(statistics.var + normalisation.epsilon)
        for name, value in {
            "mean": statistics.mean,
            "scale": scale,
            "low": model.action_space.low,
            "high": model.action_space.high,
        }.items():
            self.register_buffer(name, torch.as_tensor(value))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Normalise as VecNormalize does (in double precision), act, clip as predict() does."""
        normalised = ((observation.double() - self.mean) / self.scale).clamp(-self.limit, self.limit).float()
        features = self.policy.extract_features(normalised, self.policy.pi_features_extractor)
        action = self.policy.action_net(self.policy.mlp_extractor.forward_actor(features))
        return torch.minimum(torch.maximum(action, self.low), self.high)


def export(module: torch.nn.Module, example: torch.Tensor) -> None:
    """Write policy.onnx, by the exporter that this torch has."""
    options = {"input_names": ["observation"], "output_names": ["action"]}
    if smokelib.installed("onnxscript") and "external_data" in inspect.signature(torch.onnx.export).parameters:
        options |= {"dynamo": True, "external_data": False, "dynamic_shapes": ({0: torch.export.Dim("batch")},)}
    else:
        options |= {"dynamic_axes": {"observation": {0: "batch"}, "action": {0: "batch"}}}
    if smokelib.row().get("opset"):
        options["opset_version"] = int(smokelib.row()["opset"])
    torch.onnx.export(module, (example,), str(smokelib.OUT / "policy.onnx"), **options)


if __name__ == "__main__":
    environments = policylib.make_environments(1)
    model, normalisation = policylib.load(environments)
    spread = numpy.random.default_rng(1).normal(size=(OBSERVATIONS, *environments.observation_space.shape))
    observations = (normalisation.obs_rms.mean + 3 * numpy.sqrt(normalisation.obs_rms.var) * spread).astype(
        numpy.float32
    )
    wanted, _ = model.predict(normalisation.normalize_obs(observations), deterministic=True)
    forgotten, _ = model.predict(observations, deterministic=True)
    smokelib.require(
        abs(wanted - forgotten).max() > 0.01,
        "normalisation makes no difference",
        "the comparison below would prove nothing",
    )

    export(Policy(model, normalisation).eval(), torch.as_tensor(observations[:2]))
    session = onnxruntime.InferenceSession(str(smokelib.OUT / "policy.onnx"), providers=["CPUExecutionProvider"])
    actions = session.run(["action"], {"observation": observations})[0]
    difference = float(abs(actions - wanted).max())
    print(f"{OBSERVATIONS} observations, largest difference {difference:.2e}")
    smokelib.require(
        difference <= TOLERANCE,
        f"ONNX and torch differ by {difference}",
        "the exporter does not fit this torch; try another `onnx:` or `opset:`",
    )
    numpy.save(smokelib.OUT / "observations.npy", observations)
    numpy.save(smokelib.OUT / "actions.npy", wanted)
    environments.close()
