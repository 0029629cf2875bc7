"""Promises broken on purpose, in real containers: the checks notice, and say what to do."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest

from imagebuild.engine.container import Container, ContainerSettings
from imagebuild.engine.podman import Podman
from imagebuild.events import silent
from imagebuild.plan.targets import Target
from imagebuild.run import smoke
from imagebuild.spec import matrix
from tests.integration.tiny import Demo, Tiny
from tests.projects import ROOT

FAULTS = """
ENV http_proxy=http://proxy.example:3128 NVIDIA_VISIBLE_DEVICES=all
USER 0:0
RUN touch /usr/local/share/ca-certificates/site.crt && install -m 4755 /usr/bin/env /usr/local/bin/be-root
USER 1000:1000
ENTRYPOINT ["env"]
"""


def reports(podman: Podman, request: smoke.Request, monkeypatch: pytest.MonkeyPatch, *checks: str) -> dict[str, str]:
    """Run some checks of a suite in one container; what each of them that fails says."""
    monkeypatch.setattr(smoke.Suite, "checks", lambda *_, **__: list(checks))
    cases = smoke.run_smoke(podman, request, silent, StringIO()).report.cases
    return {case.name: case.message for case in cases if case.outcome == "failed"}


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ("USER 0:0", {"30-user": "the image runs as root: the template must end with USER 1000:1000"}),
        (FAULTS, {
            "30-user": "no package brings /usr/local/bin/be-root",
            "35-init": "PID 1 is sleep, not tini: start the image with its own entrypoint",
            "40-ca": "the image trusts /usr/local/share/ca-certificates/site.crt",
            "45-environment": "the image sets http_proxy",
        }),
    ],
    ids=["root", "the others"],
)  # fmt: skip
def test_an_image_that_breaks_the_rules_of_base_fails(
    tiny: Tiny, demo: Demo, podman: Podman, monkeypatch: pytest.MonkeyPatch, faults: str, said: dict[str, str]
) -> None:
    (tiny.folder / "templates/base.Containerfile.j2").write_text(f"FROM {{{{ base_image }}}}\n{faults}\n")
    built = tiny("build", "base-tiny")
    assert built.code == 0, built.err
    target = Target("base", matrix.load(demo.folder / "matrix.yaml").rows["cpu"])
    image, suite = tiny.plan()["base-tiny"].local_name, smoke.Suite.load(ROOT, "base")
    failed = reports(podman, smoke.Request(target, image, "sha256:x", suite, owner=tiny.project), monkeypatch,
                     *(f"{name}.py" for name in said))  # fmt: skip
    assert set(failed) == set(said)
    assert all(said[name] in message for name, message in failed.items()), failed


def test_a_silent_fallback_to_the_cpu_fails(demo: Demo, podman: Podman, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the CPU wheel had come into a row for GPUs, and a GPU were there."""
    row, settings = matrix.load(demo.folder / "matrix.yaml").rows["cu128"], ContainerSettings
    monkeypatch.setattr(smoke, "ContainerSettings", lambda **given: replace(settings(**given), devices=[]))
    suite = smoke.Suite.load(ROOT, "train")
    request = smoke.Request(Target("train", row), demo.image("train"), "sha256:x", suite, "require", gpu_present=True,
                            owner="test-promises")  # fmt: skip
    checks = ("60-gpu-torch.py", "61-gpu-arithmetic.py", "62-gpu-training.py", "64-gpu-nccl.py")
    failed = reports(podman, request, monkeypatch, *checks)
    assert [f"{name}.py" for name in failed] == list(checks)
    for message in failed.values():
        assert "is a CPU build, so everything falls back to the CPU: a row for GPUs needs its CUDA wheel" in message


def test_diagnose_sees_a_small_dev_shm(demo: Demo, podman: Podman) -> None:
    settings = ContainerSettings(demo.image("diag-tools"), ["sleep", "infinity"], 2**26, owner="test-promises")
    with Container(podman, settings) as container:
        answer = container.run(["buildkit", "diagnose"], timeout=120)
    assert answer.exit_code == 1
    assert "! /dev/shm" in answer.output
    assert "--shm-size=8g" in answer.output
