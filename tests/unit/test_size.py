"""`buildkit size`: what steps are called, what took the place of what, how it is shown, and the check that measures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from imagebuild.engine.layers import Layer
from imagebuild.errors import Location
from imagebuild.plan.steps import comments, step_of
from imagebuild.run.budget import Limit
from imagebuild.run.sizes import Contents, Measured
from imagebuild.views.size import compare, show
from tests.projects import ROOT, plan, project

MB = 1_000_000


@pytest.mark.parametrize(
    ("history", "containerfile"),
    [
        ("/bin/sh -c set -eu;     echo 'a  b' > /x;     rm y", "RUN set -eu; \\\n    echo 'a  b' > /x; \\\n    rm y"),
        ("/bin/sh -c --mount=type=secret,id=ca     true", "RUN --mount=type=secret,id=ca \\\n    true"),
        ("/bin/sh -c #(nop) COPY file:3115599a in /opt/a.txt ", "COPY a.txt /opt/a.txt"),
        ("/bin/sh -c #(nop) COPY dir:862f456a in / ", "COPY --from=slim /slim /"),
        ("/bin/sh -c #(nop) ADD file:d165c1 in / ", "ADD rootfs.tar /"),
        ("RUN /bin/sh -c true # buildkit", "RUN true"),
        ("RUN |1 TARGET=amd64 /bin/sh -c true # buildkit", "RUN true"),
        ("COPY a.txt /opt/a.txt # buildkit", "COPY a.txt /opt/a.txt"),
    ],
)
def test_a_step_is_the_same_in_a_history_and_in_a_containerfile(history: str, containerfile: str) -> None:
    assert [step_of(history)] == list(comments(f"FROM scratch\n{containerfile}\n"))


def test_steps_have_the_comment_above_them() -> None:
    text = """\
# the file
FROM a AS first
# gone with its stage
RUN one
FROM b
USER 0:0

# Two lines
# of it
COPY x /x
RUN two

RUN three
# four
ENV A=1
"""
    assert comments(text) == {
        "COPY /x": "Two lines of it (COPY /x)",
        "RUN two": "Two lines of it",
        "RUN three": "RUN three",
    }


def test_the_steps_of_our_own_templates_have_comments(tmp_path: Path) -> None:
    planned = plan(project(tmp_path))
    found = comments(planned["train-cpu"].containerfile)
    assert "Their bytecode" in found.values()
    assert any(said.startswith("Headless rendering") for said in found.values())


# --- comparing --------------------------------------------------------------------------------------


def layer(step: str, size: int | None, pull: int | None = None) -> Layer:
    return Layer(f"sha256:{step}{size}", step, size and size * MB, pull and pull * MB)


def contents(**files: int) -> Contents:
    return Contents(
        os={"libc6": 10 * MB}, python={name: size * MB for name, size in files.items()}, files={"/etc/x": MB}
    )


NAMES = {"RUN pip b": ("train-cpu", "Their packages"), "RUN apt": ("base-cpu", "The system")}
NOW = Measured(
    "sha256:now",
    (layer("RUN apt", 20, 8), layer("RUN pip b", 40, 12), layer("COPY /x", 1, 1)),
    contents(torch=35, rich=2),
)
BEFORE = Measured(
    "sha256:old",
    (layer("RUN apt", 20, 8), layer("RUN pip a", 30, 9), layer("RUN gone", 5, 2)),
    contents(torch=25, six=3),
)
LIMITS = [
    Limit("size", "60m", 60 * 2**20, Location("matrix.yaml", 3, 9)),
    Limit("pull", "20m", 20 * 2**20, Location("matrix.yaml", 3, 14)),
]


def test_layers_and_packages_are_paired_and_sorted() -> None:
    report = compare("train-cpu", NOW, BEFORE, limits=LIMITS, names=NAMES, against="0.9.0")
    assert [(one.name, one.group, one.change) for one in report.layers] == [
        ("Their packages", "train-cpu", 10 * MB),  # a changed step stands where the old one stood
        ("The system", "base-cpu", 0),
        ("COPY /x", "", -4 * MB),
    ]
    assert report.packages is not None
    assert [(one.name, one.group, one.size, one.change) for one in report.packages] == [
        ("torch", "python", 35 * MB, 10 * MB),
        ("libc6", "os", 10 * MB, 0),
        ("rich", "python", 2 * MB, 2 * MB),
        ("/etc/x", "files", MB, 0),
        ("six", "python", 0, -3 * MB),
    ]
    assert report.overhead == (61 - 48) * MB
    assert sum(one.size or 0 for one in report.packages) + report.overhead == report.size
    value = json.loads(json.dumps(report.as_json()))
    assert value["layers"][0] == {"name": "Their packages", "group": "train-cpu", "size": 40 * MB, "pull": 12 * MB,
                                  "before": 30 * MB, "change": 10 * MB}  # fmt: skip
    assert value["limits"]["pull"] == {"budget": 20 * 2**20, "place": "matrix.yaml:3:14"}


def test_a_step_that_came_or_went_is_compared_with_nothing() -> None:
    came = compare("t", NOW, Measured("", NOW.layers[:1]), limits=[], names={}, against="old").layers
    assert [(one.name, one.before) for one in came] == [("RUN pip b", 0), ("RUN apt", 20 * MB), ("COPY /x", 0)]
    went = compare("t", Measured("", NOW.layers[:1]), NOW, limits=[], names={}, against="old").layers
    assert [(one.name, one.size, one.change) for one in went] == [
        ("RUN apt", 20 * MB, 0), ("RUN pip b", 0, -40 * MB), ("COPY /x", 0, -1 * MB)
    ]  # fmt: skip


def test_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show(compare("train-cpu", NOW, BEFORE, limits=LIMITS, names=NAMES, against="0.9.0"), 2)
    assert (
        capsys.readouterr().out
        == """\
train-cpu
  size    61 MB, 21 MB to pull
  budget  60m (63 MB): 1.9 MB left, matrix.yaml:3:9
  budget  20m (21 MB) to pull: 28.5 kB over, matrix.yaml:3:14
  change  +6.0 MB, +2.0 MB to pull since 0.9.0

  LAYER           OF           MB  TO PULL  CHANGE
  Their packages  train-cpu  40.0     12.0   +10.0
  The system      base-cpu   20.0      8.0       =
  1 more                      1.0      1.0    -4.0

  PACKAGE  KIND      MB
  torch    Python  35.0
  libc6    system  10.0
  2 more            3.0

  CHANGED PACKAGE  KIND      MB  CHANGE
  torch            Python  35.0   +10.0
  six              Python   0.0    -3.0
  1 more                    2.0    +2.0

  10 MB system (1 package) + 37 MB Python (2 packages) + 1.0 MB no package + 13 MB in no file (the layers' own format, \
and what later layers replace)
"""
    )


def test_what_is_not_known_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    here = Measured("", (layer("RUN /bin/a/" + "long" * 30, 20), layer("RUN b", None)))
    show(compare("t", here, None, limits=LIMITS, names={}, against="", notes=["a note"]), 5)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:5] == [
        "  size    unknown",
        "  budget  60m (63 MB): not known yet, matrix.yaml:3:9",
        "  budget  20m (21 MB) to pull: not known yet, matrix.yaml:3:14",
        "  a note",
    ]
    assert lines[6].split() == ["LAYER", "OF", "MB"]
    assert lines[7].strip().startswith("RUN /bin/a/long")
    assert "…" in lines[7]
    assert lines[8].split() == ["RUN", "b", "-", "?"]


# --- the check, run on this machine -------------------------------------------------------------------


def test_the_check_gives_each_file_to_its_package(tmp_path: Path) -> None:
    """A root of its own: packages of dpkg's, a distribution with bytecode, and files of nobody."""
    top = tmp_path / "root"
    site = top / "opt/site"
    files = {
        top / "usr/bin/tool": 100, top / "usr/share/doc/tool/readme": 50, site / "demo/__init__.py": 30,
        site / "demo/__pycache__/__init__.cpython-311.pyc": 40, site / "demo-1.0.dist-info/RECORD": 0,
        site / "stray.py": 7, top / "var/lib/big/one/two.bin": 1_500_000, top / "var/lib/big/one/small": 5,
        top / "smoke/checks/check.py": 999,
    }  # fmt: skip
    for path, size in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    (top / "usr/bin/alias").symlink_to("tool")
    os.link(top / "usr/bin/tool", top / "usr/bin/hard")
    (site / "demo-1.0.dist-info/METADATA").write_text("Name: De_mo\nVersion: 1.0\n")
    record = "demo/__init__.py,sha256=x,30\ndemo-1.0.dist-info/METADATA,,\ndemo-1.0.dist-info/RECORD,,\n"
    (site / "demo-1.0.dist-info/RECORD").write_text(record)
    (tmp_path / "info").mkdir()
    listing = "\n".join(
        str(path) for path in (top / "usr", top / "usr/bin/tool", top / "usr/bin/hard", *files) if "usr" in str(path)
    )
    (tmp_path / "info/tool:amd64.list").write_text(f"{listing}\n")
    source = (ROOT / "images/common/smoke/05-sizes.py").read_text()
    source = source.replace('TOP = "/"', f'TOP = "{top}"').replace("/var/lib/dpkg/info", str(tmp_path / "info"))
    source = source.replace("DEPTH = 3", f"DEPTH = {len(top.parts) - 1 + 3}")
    environment = {"SMOKE_DIR": str(top / "smoke"), "PYTHONPATH": f"{ROOT / 'images/common/smoke'}:{site}", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-SBc", source], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = Contents.model_validate_json((top / "smoke/out/sizes.json").read_bytes())
    assert found.os == {"tool": 150}
    assert found.python == {"de-mo": 70 + len(record) + (site / "demo-1.0.dist-info/METADATA").stat().st_size}
    assert found.files == {f"{site}/stray.py": 7, f"{top}/var/lib/big/one/two.bin": 1_500_000, f"{top}/var/lib/big": 5}
