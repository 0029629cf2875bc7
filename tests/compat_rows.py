"""Rows and fleets for the tests of the check."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from imagebuild.spec.compat import Finding, Fleet, check_fleet, check_row

NVIDIA = "docker.io/nvidia/cuda:"

#: A whole row that works.
GOOD = {
    "os": "debian12", "base": "bootstrap", "python": "3.11", "variant": "cu128", "wheels": "pytorch", "torch": "2.9.1",
    "torchvision": "0.24.1", "sb3": "2.9.2", "sb3_contrib": "2.9.2", "gymnasium": "1.2.3", "mujoco": "3.17.0",
    "numpy": "2.4.6", "onnx": "1.22.0", "onnxruntime": "1.26.0", "opset": 18,
}  # fmt: skip


def row(**fields: Any) -> SimpleNamespace:
    """A row with these fields; `image` is a tag of nvidia/cuda, `ort` is short for onnxruntime."""
    if "image" in fields:
        fields["base"] = NVIDIA + fields.pop("image")
    if "ort" in fields:
        fields["onnxruntime"] = fields.pop("ort")
    return SimpleNamespace(**fields)


def findings(*, strict: bool = False, **fields: Any) -> list[Finding]:
    """What the check says of a row; `driver` and `gpu` (one or a list) are the fleet's."""
    drivers, gpus = (_words(fields.pop(name, ())) for name in ("driver", "gpu"))
    fleet = Fleet(drivers, gpus)
    return [*check_fleet(fleet, strict=strict), *check_row(row(**fields), fleet, strict=strict)]


def errors(**fields: Any) -> list[Finding]:
    """The findings that refuse a row."""
    return [finding for finding in findings(**fields) if finding.severity == "error"]


def rules(found: list[Finding]) -> set[str]:
    """The rules that findings come from."""
    return {finding.rule for finding in found}


def _words(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
