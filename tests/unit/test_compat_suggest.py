"""Suggestions: the newest that works, and the reason why it is not newer."""

from __future__ import annotations

import pytest

from imagebuild.errors import InputError
from imagebuild.spec.suggest import as_yaml, obstacles, suggest


def test_an_old_driver_with_volta_gets_the_newest_torch_that_still_has_it() -> None:
    best, second, *_ = suggest(["535"], ["V100"], python="3.11", torch=">=2.4")

    assert (best.fields["torch"], best.fields["variant"], best.fields["python"]) == ("2.14.1", "cu126", "3.11")
    assert "2.15.0 has no cu126" in best.reasons["torch"]
    assert (second.fields["torch"], second.fields["variant"]) == ("2.10.0", "cu128")
    assert "V100" in second.reasons["torch"]


def test_driver_470_gets_cuda_11() -> None:
    best = suggest(["470.256.02"], ["V100", "A100"])[0]

    assert (best.fields["torch"], best.fields["variant"]) == ("2.7.1", "cu118")
    assert best.fields["onnxruntime"].startswith("1.18")
    assert "cudnn8" in best.fields["base"]
    assert best.fields["numpy"].startswith("1.26"), "ONNX Runtime for CUDA 11 takes numpy 1"


def test_without_a_fleet_cpu_is_among_the_suggestions_and_with_one_it_is_not() -> None:
    assert "cpu" in {proposal.name for proposal in suggest()}
    assert "cpu" not in {proposal.name for proposal in suggest(["580.65.06"], ["A100"])}


def test_a_wish_that_nothing_meets_is_explained() -> None:
    assert suggest(["535"], ["RTX5090"], variant="cu126") == []
    assert any("RTX5090" in reason for reason in obstacles(["535"], ["RTX5090"], variant="cu126"))
    assert any("cu118" in reason for reason in obstacles(torch=">=2.9", variant="cu118"))


def test_text_to_paste_quotes_what_yaml_would_change() -> None:
    text = as_yaml(suggest(python="3.10", variant="cu126", os="ubuntu22.04")[0])

    assert '    python: "3.10"' in text
    assert text.startswith("  cu126:\n    os: ubuntu22.04\n")


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ({"drivers": ["new"]}, "not an NVIDIA driver"),
        ({"gpus": ["V1000"]}, "did you mean V100?"),
        ({"python": "snake"}, "not a version"),
        ({"torch": "about 2"}, "not a requirement"),
        ({"torch": "2.x"}, "not a requirement"),
        ({"variant": "gpu"}, "not a variant"),
        ({"os": "windows"}, "windows"),
    ],
)
def test_a_wish_that_cannot_be_understood_is_an_input_error(wish: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told.replace("?", r"\?")):
        suggest(**wish)  # type: ignore[arg-type]
