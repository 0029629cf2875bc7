"""The facts as data: they load fast, each has a source, and they agree with themselves."""

from __future__ import annotations

import re
import time
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from imagebuild.errors import InputError
from imagebuild.spec import facts as facts_module
from imagebuild.spec.compat import FIELDS, Fleet, check_row
from imagebuild.spec.facts import Facts, load, read
from imagebuild.spec.facts_table import SUBJECTS, facts_table
from imagebuild.spec.rules import RULES
from imagebuild.spec.values import version
from tests.compat_rows import GOOD

FACTS = load()


def cpu_seconds(times: int = 3) -> float:
    """The least of some runs, as other work may run beside."""
    load()
    best = 9.0
    for _ in range(times):
        start = time.process_time()
        Facts.model_validate(read())
        best = min(best, time.process_time() - start)
    return best


def test_loading_takes_less_than_150_ms() -> None:
    assert cpu_seconds() < 0.15


def test_each_section_has_a_source_and_a_day() -> None:
    sections = set(Facts.model_fields) - {"as_of", "sources"}

    assert set(FACTS.sources) == sections
    for source in FACTS.sources.values():
        assert date.fromisoformat(source.date) <= date.fromisoformat(FACTS.as_of)
        assert source.text


def test_a_misspelt_key_in_the_facts_is_refused() -> None:
    data = {**read(), "mujocco": {}}

    with pytest.raises(ValidationError, match="mujocco"):
        Facts.model_validate(data)


def test_floors_and_ceilings_are_those_of_the_releases() -> None:
    seen: dict[str, list[object]] = {}
    for release, entry in FACTS.torch.by_version.items():
        for name in entry.variants_of(release):
            seen.setdefault(name, []).append(release)

    assert {name: releases[0] for name, releases in seen.items()} == FACTS.torch.floors
    newest = max(FACTS.torch.by_version)
    ended = {name: r[-1] for name, r in seen.items() if newest not in r and name != "cu116"}
    assert ended == FACTS.torch.ceilings
    assert not set(seen) & set(FACTS.torch.never_published)


def test_every_torch_release_has_its_torchvision_and_a_default_variant() -> None:
    for release, entry in FACTS.torch.by_version.items():
        assert entry.torchvision_of(release) in FACTS.torch.torchvisions
        assert entry.default in entry.variants
        assert all(sm_set in FACTS.torch.sm_sets for _, sm_set in entry.variants.values())


def test_each_cuda_of_a_wheel_has_a_toolkit_and_a_lowest_driver() -> None:
    for name in FACTS.torch.floors:
        cuda = version(f"{name[2:4]}.{name[4:]}")
        assert cuda == version("11.6") or cuda in FACTS.cuda.first_of_minor
        assert cuda.major in FACTS.cuda.minor_compat_driver


def test_every_published_image_passes_the_check_of_tags() -> None:
    for image in FACTS.image.published:
        row = SimpleNamespace(base=f"docker.io/nvidia/cuda:{image.tag}")
        assert [found for found in check_row(row) if found.rule == "image"] == []


def test_rules_read_only_fields_that_a_row_has() -> None:
    assert {field for rule in RULES for field in rule.fields} <= set(FIELDS)
    assert len({rule.find.__name__ for rule in RULES}) == len(RULES)


def test_the_facts_table_has_every_subject_with_sources() -> None:
    assert {"torch", "cuda", "driver", "gpu", "image", "sb3", "gymnasium", "mujoco", "ray"} <= set(SUBJECTS)
    for subject in SUBJECTS:
        lines = facts_table(subject)
        assert lines, subject
        assert all(line.subject == subject and line.text and line.source for line in lines)
    everything = facts_table()
    assert {line.subject for line in everything} == set(SUBJECTS) - {"driver", "torchvision"}


def test_claims_in_circulation_are_told_with_a_verdict_and_their_own_source() -> None:
    claims = {line.name: line for line in facts_table("claims")}

    autocast = claims["PPO of Stable-Baselines3 takes use_autocast=True"]
    assert autocast.text.startswith("verdict no")
    assert autocast.source == "DLR-RM/stable-baselines3"


def test_an_unknown_subject_is_an_input_error_with_a_hint() -> None:
    with pytest.raises(InputError) as caught:
        facts_table("troch")

    assert caught.value.problems[0].hint == "did you mean torch?"


def test_claims_that_are_false_are_refused_as_rows() -> None:
    wrong = [
        {"torch": "2.9.1", "variant": "cu118"},
        {"sb3": "2.9.2", "python": "3.8"},
        {"onnxruntime": "1.26.0", "base": "docker.io/nvidia/cuda:13.0.0-cudnn-runtime-ubi8"},
        {"base": "docker.io/nvidia/cuda:11.8.0-devel-rockylinux9"},
        {"base": "docker.io/nvidia/cuda:12.4.1-cudnn8-devel-rockylinux8"},
        {"torch": "2.14.1", "variant": "cu131"},
        {"torch": "2.14.1", "variant": "cu133"},
    ]
    for fields in wrong:
        found = check_row(SimpleNamespace(**fields))
        assert "error" in {finding.severity for finding in found}, fields


def test_the_facts_name_no_package_registry() -> None:
    text = facts_module.FILE.read_text()
    hosts = set(re.findall(r"https?://([^/\s\"]+)", text))

    assert hosts <= {"developer.nvidia.com", "onnxruntime.ai"}
    assert Path(facts_module.FILE).suffix == ".yaml"


def test_ten_thousand_rows_are_checked_in_two_seconds() -> None:
    fleet = Fleet(("470.256.02", "580.65.06"), ("V100", "A100"))
    torches, pythons = [str(release) for release in FACTS.torch.by_version], ["3.9", "3.10", "3.11", "3.12"]
    rows = [
        SimpleNamespace(**GOOD | {"torch": torches[i % len(torches)], "python": pythons[i % 4], "opset": i // 40})
        for i in range(10_000)
    ]
    start = time.process_time()
    found = sum(len(check_row(row, fleet, suggestions=False)) for row in rows)
    elapsed = time.process_time() - start

    assert found
    assert elapsed < 2.0
