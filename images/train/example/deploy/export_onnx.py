"""Export a trained policy to ONNX, its normalisation in the graph: raw observation in, action out, nothing to forget.

The file is compared with torch over 10,000 observations before it is written; one that differs is never there.

    input   observation  float32 [batch, *shape]   as the environment gives it
    output  action       float32 [batch, *shape], clipped to the bounds (Box); int64 [batch] (Discrete);
                         int64 [batch, n] (MultiDiscrete)

Examples:
    python deploy/export_onnx.py /workspace/runs/crane-ppo
    python deploy/export_onnx.py /workspace/runs/crane-ppo --output policy.onnx --opset 17
    python deploy/export_onnx.py /workspace/runs/crane-ppo --samples out/     keep the observations and torch's actions
"""

from __future__ import annotations

import argparse
import inspect
import json
import logging
import sys
import tempfile
import warnings
from importlib import util
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from checkpoints import CheckpointError, find

OBSERVATIONS = 10_000
TOLERANCE = 1e-5
TIE = 1e-4  # two logits nearer than this are a tie: which of them wins, no two machines need agree on
FORMAT = "1"


class ExportError(Exception):
    """The policy cannot be exported, or what came out is not the policy."""


def parse() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a run (its newest checkpoint), or of one checkpoint")
    parser.add_argument("--output", type=Path, help="the file to write (default: policy.onnx in the folder given)")
    parser.add_argument("--opset", type=int, help="the ONNX opset (default: the exporter's own)")
    parser.add_argument("--seed", type=int, default=1, help="of the observations (default: %(default)s)")
    parser.add_argument("--samples", type=Path, help="a folder for observations.npy and actions.npy of the comparison")
    return parser.parse_args()


def network(policy: Any) -> Any:
    """Return the policy as a torch module: raw observations -> actions.

    Raises:
        ExportError: it has spaces that the format does not know.
    """
    import torch

    from deploy.graph import KINDS, Deployed

    observations, actions = policy.model.observation_space, policy.model.action_space
    if getattr(observations, "dtype", None) is None or observations.dtype.kind != "f" or not observations.shape:
        raise ExportError(f"the observation space is {observations}: only a Box of floats can be exported")
    if type(actions).__name__ not in KINDS:
        raise ExportError(f"the action space is {actions}: only {', '.join(KINDS)} can be exported")
    with torch.no_grad():
        return Deployed(policy.model, policy.normalisation).eval()


def write(module: Any, path: Path, example: Any, opset: int | None) -> None:
    """Write a module as ONNX, by the exporter that this torch has."""
    import torch

    options: dict[str, Any] = {"input_names": ["observation"], "output_names": ["action"], "verbose": False}
    if util.find_spec("onnxscript") and "external_data" in inspect.signature(torch.onnx.export).parameters:
        options.update(dynamo=True, external_data=False, dynamic_shapes=({0: torch.export.Dim("batch")},))
    else:
        options["dynamic_axes"] = {"observation": {0: "batch"}, "action": {0: "batch"}}
    if opset is not None:
        options["opset_version"] = opset
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses torchvision, which no policy here needs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own use of torch; what it writes is compared below
        torch.onnx.export(module, (example,), str(path), **options)


def describe(path: Path, policy: Any, module: Any) -> None:
    """Write into the file what it is, for those who serve it."""
    import onnx

    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, {
        "buildkit.policy": FORMAT,
        "buildkit.algorithm": type(policy.model).__name__,
        "buildkit.environment": policy.environment_id,
        "buildkit.observation_shape": json.dumps(list(policy.model.observation_space.shape)),
        "buildkit.action_space": module.kind,
        "buildkit.action_shape": json.dumps(list(policy.model.action_space.shape)),
        "buildkit.normalisation": "folded" if module.is_normalised else "none",
    })  # fmt: skip
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def compare(path: Path, observations: Any, wanted: Any) -> float:
    """Return how far the file's actions are from torch's at most; for discrete ones, how many differ.

    Raises:
        ExportError: they differ by more than rounding explains.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    actions = session.run(["action"], {"observation": observations})[0]
    if (actions.shape, actions.dtype) != (wanted.shape, wanted.dtype):
        was = f"{actions.dtype}{list(actions.shape)}"
        raise ExportError(f"ONNX gives {was} where torch gives {wanted.dtype}{list(wanted.shape)}: try another --opset")
    discrete = wanted.dtype.kind == "i"
    difference = float((actions != wanted).sum() if discrete else abs(actions - wanted).max())
    if not difference <= (0 if discrete else TOLERANCE):
        raise ExportError(f"ONNX and torch differ ({difference:g}): the exporter does not fit; try another --opset")
    return difference


def export(arguments: argparse.Namespace) -> None:
    """Export, compare, and only then put the file in its place."""
    checkpoint = find(arguments.run)
    import numpy  # slow, as the next ones are: after what can be said without them
    import torch
    from learning import Policy

    from deploy.observations import draw

    policy = Policy(checkpoint)
    module = network(policy)
    observations = draw(policy, module, OBSERVATIONS, arguments.seed, TIE)
    wanted = policy.act(observations)
    output = arguments.output or arguments.run / "policy.onnx"
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=str(output.parent)) as folder:
        made = Path(folder) / "policy.onnx"
        write(module, made, torch.as_tensor(observations[:2]), arguments.opset)
        describe(made, policy, module)
        difference = compare(made, observations, wanted)
        made.replace(output)
    if arguments.samples:
        arguments.samples.mkdir(parents=True, exist_ok=True)
        numpy.save(str(arguments.samples / "observations.npy"), observations)
        numpy.save(str(arguments.samples / "actions.npy"), wanted)
    normalised = "with its normalisation" if module.is_normalised else "trained without normalisation"
    print(f"{output}: {type(policy.model).__name__} after {checkpoint.steps} steps, {normalised}; "
          f"{len(observations)} actions, {difference:g} from torch's at most")  # fmt: skip


def main() -> int:
    """Export; return the exit code."""
    try:
        export(parse())
    except (CheckpointError, ExportError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
