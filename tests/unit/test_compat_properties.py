"""What holds for any row and any fleet: no crash, no finding without a place, no suggestion that does not work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imagebuild.spec import facts as facts_module
from imagebuild.spec.compat import FIELDS, Fleet, check_fleet, check_row
from imagebuild.spec.suggest import as_yaml, suggest
from tests.compat_rows import GOOD, NVIDIA

FACTS = facts_module.load()
VERSIONS: dict[str, list[Any]] = {
    "torch": [*FACTS.torch.by_version], "torchvision": [*FACTS.torch.torchvisions], "sb3": [*FACTS.sb3.releases],
    "sb3_contrib": [*FACTS.sb3_contrib.releases], "gymnasium": [*FACTS.gymnasium.releases],
    "mujoco": [*FACTS.mujoco.releases], "numpy": [line.newest for line in FACTS.numpy.lines.values()],
    "onnxruntime": [line.newest for line in FACTS.onnxruntime.lines.values()], "ray": ["2.9.3", "2.50.0", "2.60.0"],
    "tensorrt": [*FACTS.tensorrt.releases, "tensorrt-cu13==10.14"], "opset": [17, 26, 28], "onnx": ["1.17.0", "1.23.2"],
    "python": ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"], "wheels": ["pytorch", "pypi"],
    "variant": ["cpu", *FACTS.torch.floors, *FACTS.torch.never_published], "os": [*FACTS.os],
    "base": ["bootstrap", *(NVIDIA + image.tag for image in FACTS.image.published[::7])],
    "inference_base": [NVIDIA + image.tag for image in FACTS.image.published[::11]],
}  # fmt: skip
GARBAGE = st.one_of(
    st.text(max_size=30), st.integers(), st.floats(), st.booleans(), st.binary(max_size=4), st.just({"a": [1]}),
    st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,4}(rc1|\+cu118|\.post1|\.dev0)?", fullmatch=True),
    st.from_regex(r"(docker\.io/)?nvidia/cuda(:[0-9a-z.-]{0,30})?(@sha256:ab)?", fullmatch=True),
    st.from_regex(r"(cu[0-9]{2,4}|tensorrt-cu[0-9]{2}==[0-9.]{1,6})", fullmatch=True),
)  # fmt: skip


def sane(field: str) -> st.SearchStrategy[Any]:
    return st.none() | st.sampled_from([str(value) for value in VERSIONS[field]])


ANY_ROW = st.fixed_dictionaries({}, optional={field: sane(field) | GARBAGE for field in FIELDS})
SANE_ROW = st.fixed_dictionaries({field: sane(field) for field in FIELDS})
DRIVERS = st.lists(
    st.sampled_from(["450.80.02", "470.256.02", "525", "535.104.05", "550.54.15", "580.65.06", "615.10"]), max_size=2
)
GPUS = st.lists(st.sampled_from([*FACTS.gpu.cc, "8.6", "sm_120"]), max_size=2)
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@settings(max_examples=400, deadline=None)
@given(fields=ANY_ROW, drivers=DRIVERS, gpus=GPUS, strict=st.booleans())
def test_any_row_gets_findings_and_never_an_exception(
    fields: dict[str, Any], drivers: list[str], gpus: list[str], strict: bool
) -> None:
    found = check_row(SimpleNamespace(**fields), Fleet(tuple(drivers), tuple(gpus)), strict=strict, suggestions=False)

    for finding in found:
        assert finding.rule
        assert finding.message
        assert finding.field in FIELDS
        assert set(finding.others) <= set(FIELDS)
        assert finding.field in fields, "it points at something that the row has"


@SLOW
@given(fields=ANY_ROW, drivers=DRIVERS, gpus=GPUS)
def test_any_row_can_be_searched_for_a_change(fields: dict[str, Any], drivers: list[str], gpus: list[str]) -> None:
    check_row(SimpleNamespace(**fields), Fleet(tuple(drivers), tuple(gpus)))


@given(drivers=st.lists(GARBAGE | st.text(), max_size=3), gpus=st.lists(GARBAGE | st.text(), max_size=3))
@settings(deadline=None)
def test_any_fleet_gets_findings_and_never_an_exception(drivers: list[Any], gpus: list[Any]) -> None:
    fleet = Fleet(tuple(map(str, drivers)), tuple(map(str, gpus)))

    assert all(finding.field in {"drivers", "gpus"} for finding in check_fleet(fleet))
    check_row(SimpleNamespace(**GOOD), fleet, suggestions=False)


@given(
    field=st.sampled_from(["torch", "sb3", "numpy", "python", "mujoco", "ray"]), text=st.text(min_size=1, max_size=12)
)
@settings(deadline=None)
def test_a_version_that_is_none_is_a_finding_of_its_field(field: str, text: str) -> None:
    found = check_row(SimpleNamespace(**{field: f"x{text}"}))

    assert [(finding.rule, finding.field) for finding in found] == [("version", field)]


@SLOW
@given(fields=SANE_ROW, drivers=DRIVERS, gpus=GPUS)
def test_a_complete_suggestion_leaves_no_error_and_any_other_ends_its_clash(
    fields: dict[str, Any], drivers: list[str], gpus: list[str]
) -> None:
    fleet = Fleet(tuple(drivers), tuple(gpus))
    found = [one for one in check_row(SimpleNamespace(**fields), fleet) if one.severity == "error"]
    before = {finding.clash for finding in found}
    for finding in found:
        for suggestion in finding.suggestions:
            mended = fields | {change.field: change.new for change in suggestion.changes}
            after = check_row(SimpleNamespace(**mended), fleet, suggestions=False)
            left = {one.clash for one in after if one.severity == "error"}
            assert not left if suggestion.complete else left <= before - {finding.clash}


@SLOW
@given(
    drivers=DRIVERS,
    gpus=GPUS,
    python=st.none() | st.sampled_from(VERSIONS["python"]),
    torch=st.none() | st.sampled_from([">=2.4", "<2.3", "==2.7.*", "2.9.1", ">=3"]),
    variant=st.none() | st.sampled_from(["cpu", "cu118", "cu126", "cu130"]),
    os=st.none() | st.sampled_from([*FACTS.os]),
)
def test_what_is_suggested_is_accepted(
    drivers: list[str], gpus: list[str], python: str | None, torch: str | None, variant: str | None, os: str | None
) -> None:
    for proposal in suggest(drivers, gpus, python=python, torch=torch, variant=variant, os=os):
        found = check_row(proposal.row, Fleet(tuple(drivers), tuple(gpus)), strict=False)
        assert [one for one in found if one.severity == "error"] == []
        pasted = yaml.safe_load("rows:\n" + as_yaml(proposal))["rows"][proposal.name]
        assert pasted == proposal.fields, "what YAML reads is what was checked"
        assert python in {None, proposal.fields["python"]}
        assert variant in {None, proposal.fields["variant"]}
        assert os in {None, proposal.fields["os"]}
