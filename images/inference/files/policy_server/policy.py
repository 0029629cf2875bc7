"""An exported policy in ONNX Runtime: what it says of itself is checked before it acts."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

import numpy
import onnxruntime

from policy_server.errors import InputError, ServerError
from policy_server.options import Options

_PROVIDERS = {
    "cpu": ["CPUExecutionProvider"],
    "cuda": ["CUDAExecutionProvider"],
    "tensorrt": ["TensorrtExecutionProvider", "CUDAExecutionProvider"],
}
_EXPORT = "export it with images/train/example/deploy/export_onnx.py"
_WARM_UP = 200  # decisions: caches, branch predictors and the allocator have settled by then


class Description(NamedTuple):
    """What a policy file says: of which algorithm and environment it is, and the form of what goes in and out."""

    algorithm: str
    environment: str
    observation_shape: tuple[int, ...]
    action_space: str
    action_shape: tuple[int, ...]
    normalisation: str

    @property
    def action_type(self) -> Any:
        """The numpy type of an action."""
        return numpy.float32 if self.action_space == "box" else numpy.int64

    @property
    def observation_count(self) -> int:
        """How many numbers an observation has."""
        return int(numpy.prod(self.observation_shape, dtype=int))

    @property
    def action_count(self) -> int:
        """How many numbers an action has."""
        return int(numpy.prod(self.action_shape, dtype=int))


class Policy:
    """A policy that is ready to act. `act` takes and gives whole batches."""

    def __init__(self, options: Options) -> None:
        """Load, check and warm up.

        Raises:
            InputError: the file is not there, is no policy, or contradicts itself.
            ServerError: the provider that was asked for is not there, or was replaced.
        """
        self._file = options.policy
        self._session = _session(options)
        self.provider = self._session.get_providers()[0]
        self.description = self._describe(options.any_policy)
        self._check_types()
        self._prepare_one()
        self._warm_up()

    def act(self, observations: Any) -> Any:
        """Return the actions for a batch of raw observations, as float32 or int64."""
        return self._session.run(["action"], {"observation": observations})[0]

    def act_once(self) -> None:
        """Turn what is in `observation` into what is then in `action`: arrays of one row, allocated once."""
        if self._binding is not None:
            self._session.run_with_iobinding(self._binding)
        else:
            self.action[...] = self.act(self.observation)

    def _prepare_one(self) -> None:
        """Allocate; on the CPU ONNX Runtime works in these arrays, on a GPU it has to copy anyway."""
        description = self.description
        self.observation = numpy.zeros((1, *description.observation_shape), numpy.float32)
        self.action = numpy.zeros((1, *description.action_shape), description.action_type)
        self._binding = None
        if self.provider == "CPUExecutionProvider":
            self._binding = self._session.io_binding()
            wrap = onnxruntime.OrtValue.ortvalue_from_numpy
            self._binding.bind_ortvalue_input("observation", wrap(self.observation))
            self._binding.bind_ortvalue_output("action", wrap(self.action))

    def _describe(self, any_policy: bool) -> Description:
        said: dict[str, str] = self._session.get_modelmeta().custom_metadata_map
        if said.get("buildkit.policy") is None and any_policy:
            return self._guess()
        if said.get("buildkit.policy") != "1":
            raise InputError(f"{self._file} does not say which policy it is (metadata buildkit.policy=1): {_EXPORT}, "
                           "or pass --any-policy if you know that it takes raw observations")  # fmt: skip
        try:
            description = Description(
                said["buildkit.algorithm"], said["buildkit.environment"], _shape(said["buildkit.observation_shape"]),
                said["buildkit.action_space"], _shape(said["buildkit.action_shape"]), said["buildkit.normalisation"],
            )  # fmt: skip
        except KeyError as missing:
            raise InputError(f"{self._file} lacks the metadata {missing}: {_EXPORT}") from None
        except ValueError as wrong:
            raise InputError(f"{self._file} has wrong metadata ({wrong}): {_EXPORT}") from None
        if description.normalisation not in ("folded", "none"):
            raise InputError(f"{self._file} was exported with normalisation {description.normalisation!r}, so it would "
                           f"misread raw observations: {_EXPORT}, which folds the statistics in")  # fmt: skip
        if description.action_space not in ("box", "discrete", "multi_discrete"):
            raise InputError(f"{self._file} has the action space {description.action_space!r}, and only box, discrete "
                           "and multi_discrete are served: train with one of these")  # fmt: skip
        return description

    def _guess(self) -> Description:
        """What the graph itself tells, for a policy that somebody vouches for."""
        ends = [*self._session.get_inputs(), *self._session.get_outputs()]
        if len(ends) != 2 or not all(each.shape for each in ends):
            names = [each.name for each in ends]
            raise InputError(f"{self._file} has {names}, and a policy has one batch in and one out: {_EXPORT}")
        given, made = ends
        shapes = [given.shape[1:], made.shape[1:]]
        if any(not isinstance(size, int) for shape in shapes for size in shape):
            raise InputError(f"{self._file} has sizes that are not fixed, {shapes}: only the batch may vary")
        space = "box" if made.type == "tensor(float)" else "multi_discrete" if shapes[1] else "discrete"
        return Description("unknown", "unknown", tuple(shapes[0]), space, tuple(shapes[1]), "unknown")

    def _check_types(self) -> None:
        made = "tensor(float)" if self.description.action_type is numpy.float32 else "tensor(int64)"
        wanted = {"observation": "tensor(float)", "action": made}
        found = {each.name: each.type for each in [*self._session.get_inputs(), *self._session.get_outputs()]}
        if found != wanted:
            raise InputError(f"{self._file} has {found}, and a policy has {wanted}: {_EXPORT}")

    def _warm_up(self) -> None:
        noise = numpy.random.default_rng(0)
        tried = noise.normal(size=(3, *self.description.observation_shape)).astype(numpy.float32)
        try:
            many = self.act(tried)
            for number in range(_WARM_UP):
                self.observation[...] = tried[number % 3]
                self.act_once()
        except Exception as error:  # noqa: BLE001  (ONNX Runtime has its own exception classes, and numpy's come too)
            raise InputError(f"{self._file} does not run with observations of the shape that it names, "
                           f"{list(self.description.observation_shape)}: {first_line(error)}") from None  # fmt: skip
        shape = (3, *self.description.action_shape)
        if many.shape != shape:
            raise InputError(f"{self._file} gives actions of shape {many.shape}, not {shape}: {_EXPORT}")
        if not numpy.isfinite(many).all():
            raise InputError(f"{self._file} gives actions that are not finite: the training diverged, or the "
                           "normalisation divides by zero")  # fmt: skip
        if not numpy.allclose(self.action[0], many[(_WARM_UP - 1) % 3], atol=1e-3):
            raise InputError(f"{self._file} gives other actions for one observation than for several: {_EXPORT}")


def _session(options: Options) -> Any:
    if not os.path.isfile(options.policy):
        raise InputError(f"there is no policy at {options.policy}: mount one there, read-only, or name it by --policy")
    wanted = _PROVIDERS[options.provider]
    missing = [name for name in wanted if name not in onnxruntime.get_available_providers()]
    if missing:
        raise ServerError(f"this ONNX Runtime has no {missing[0]}: use the inference image of a CUDA row, or pass "
                          "--provider cpu")  # fmt: skip
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = options.threads, 1
    settings.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(options.policy, settings, providers=wanted)
    except Exception as error:  # noqa: BLE001  (ONNX Runtime has a class of its own for every failure)
        if options.provider != "cpu":
            raise ServerError(f"{options.policy} does not run on {wanted[0]}: {first_line(error)}") from None
        raise InputError(f"{options.policy} is no policy that ONNX Runtime {onnxruntime.__version__} can load: "
                       f"{first_line(error)}") from None  # fmt: skip
    session.disable_fallback()
    if session.get_providers()[0] != wanted[0]:
        raise ServerError(f"ONNX Runtime fell back from {wanted[0]} to {session.get_providers()[0]}: its CUDA, cuDNN "
                          "or driver does not fit (the log above says which), or pass --provider cpu")  # fmt: skip
    return session


def _shape(text: str) -> tuple[int, ...]:
    sizes: list[Any] = json.loads(text)
    if not isinstance(sizes, list) or not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError(f"{text!r} is no list of sizes")
    return tuple(sizes)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, or its name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
