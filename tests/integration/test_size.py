"""Budgets and `buildkit size` on real images and a real registry."""

from __future__ import annotations

import shutil

import pytest

from imagebuild.engine.podman import Podman
from imagebuild.engine.registry import Registry
from imagebuild.run.decide import address
from tests.integration.tiny import Tiny
from tests.projects import ROOT

_LARGE = """\
FROM {{ parents["base"] }}
USER 0:0

# What it is all about
RUN head -c %d /dev/%s > /opt/large
USER 1000:1000
"""


def train_has(tiny: Tiny, megabytes: int, kind: str = "zero") -> None:
    """Change the size of the one file that the train image adds."""
    (tiny.folder / "templates/train.Containerfile.j2").write_text(_LARGE % (megabytes * 1_000_000, kind))


@pytest.fixture
def weighed(tiny: Tiny) -> Tiny:
    """A project whose images are measured by our own check."""
    shutil.copytree(ROOT / "images/common/smoke", tiny.folder / "images/common/smoke")
    for path in (tiny.folder / "images/common/smoke").glob("[1-9]*.py"):
        path.unlink()
    train_has(tiny, 3)
    return tiny


def test_where_the_bytes_are_and_what_changed_since_the_release(weighed: Tiny, podman: Podman) -> None:
    assert weighed("build", "tiny").code == 0
    # Here only, and not tested: measured on the spot, and compared with nothing.
    (untested,) = weighed("size", "--json", "train-tiny").json
    assert {one["name"]: one["size"] for one in untested["packages"]}["/opt/large"] == 3_000_000
    assert (untested["pull"], untested["against"]) == (None, "")
    pushed = weighed("build", "--smoke", "--push", "train-tiny")
    assert pushed.code == 0, pushed.err
    assert weighed("promote", "train-tiny").code == 0
    train_has(weighed, 5)
    weighed.edit_matrix("version: 1.0.0", "version: 1.1.0")
    assert weighed("build", "--smoke", "--push", "train-tiny").code == 0
    podman.untag_or_remove(weighed.plan()["train-tiny"].local_name)
    shutil.rmtree(weighed.folder / ".buildkit")  # now only the registry knows

    shown = weighed("size", "train-tiny")
    assert shown.code == 0, shown.err
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["What", "it", "is", "all", "about", "train-tiny", "5.0", "0.0", "+2.0"] in lines
    assert ["/opt/large", "no", "package", "5.0"] in lines
    assert ["/opt/large", "no", "package", "5.0", "+2.0"] in lines
    assert "change  +2.0 MB, ~ MB to pull since 1.0.0 (prod on " in shown.out
    (report,) = weighed("size", "--json", "train-tiny").json
    assert round((report["size"] - report["size_before"]) / 1e6) == 2
    assert sum(one["size"] for one in report["packages"]) + report["overhead"] == report["size"]
    assert sum(one["pull"] for one in report["layers"]) == report["pull"]
    (same,) = weighed("size", "--json", "--against", "tiny-1.1.0", "train-tiny").json
    assert {one["change"] for one in (*same["layers"], *same["packages"])} == {0}
    absent = weighed("size", "--against", "staging", "train-tiny")
    assert (absent.code, "tiny-staging is not in the registry" in absent.err) == (1, True)


def test_an_image_over_its_budget_is_kept_and_fails_and_is_not_pushed(tiny: Tiny, podman: Podman) -> None:
    train_has(tiny, 3)
    tiny.edit_matrix("stages: [base, train]", "stages: [base, train], budgets: {train: 100m}")
    for _ in range(2):  # built, and then found
        failed = tiny("build", "train-tiny")
        assert failed.code == 1
        assert "MB over its budget of 100m (105 MB, matrix.yaml:7:" in failed.err
        assert "3.0 MB  What it is all about" in failed.err
        assert "buildkit size train-tiny" in failed.err
    alone = tiny("push", "train-tiny")
    assert (alone.code, "over its budget" in alone.err) == (1, True)
    planned = tiny.plan()["train-tiny"]
    assert podman.image(planned.local_name) is not None
    assert Registry(tiny.registry).head(address(planned, tiny.registry)) is None


def test_what_is_too_large_to_pull_gets_no_tag(tiny: Tiny) -> None:
    train_has(tiny, 3, "urandom")
    tiny.edit_matrix("stages: [base, train]", "stages: [base, train], budgets: {train: {pull: 40m}}")
    assert tiny("build", "train-tiny").code == 0
    failed = tiny("push", "train-tiny")
    assert failed.code == 1
    assert "over its budget of 40m (42 MB, matrix.yaml:7:" in failed.err
    planned = tiny.plan()["train-tiny"]
    registry, reference = Registry(tiny.registry), address(planned, tiny.registry)
    assert [tag for tag in registry.list_tags(reference.repository) if "sha256" not in tag] == [planned.tag]
    again = tiny("build", "train-tiny")
    assert (again.code, "MB to pull" in again.err) == (1, True)
    tiny.edit_matrix("pull: 40m", "pull: 1g")
    assert tiny("push", "train-tiny").code == 0
    assert registry.head(reference.repository.tagged("tiny-1.0.0"))
