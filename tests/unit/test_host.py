"""The host's package settings: both formats of apt, pip's configuration, and secrets that stay out of logs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from imagebuild.engine import host
from imagebuild.engine.host import PythonSettings
from imagebuild.engine.interrupt import run_command
from imagebuild.errors import InputError
from imagebuild.events import Event, Kind
from imagebuild.run.watch import Watch
from imagebuild.spec import site
from imagebuild.spec.site import Site

DEB822 = """\
# the archive
Types: deb deb-src
URIs: http://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: sid
Components: main
"""
ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/other.gpg] https://other.example/tool stable main
deb http://mirror.example/debian bookworm main contrib
deb-src http://mirror.example/debian bookworm main
deb http://mirror.example/debian-security bookworm-security main
"""


@pytest.mark.parametrize(("name", "text"), [("debian.sources", DEB822), ("debian.list", ONE_LINE)])
def test_apt_sources_follow_the_hosts_own(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / name).write_text(text)
    monkeypatch.setattr(host, "_APT", tmp_path)
    # The host may run another release: only the archive is its own, the suite is the row's.
    assert host.apt_sources(Site(), "debian13", "trixie") == (
        "deb http://mirror.example/debian trixie main\n"
        "deb http://mirror.example/debian trixie-updates main\n"
        "deb http://mirror.example/debian-security trixie-security main\n"
    )
    with pytest.raises(InputError, match="no ubuntu archive"):
        host.apt_sources(Site(), "ubuntu22.04", "jammy")


def test_a_sites_mirror_wins() -> None:
    mirrors = Site(apt_mirror="http://m/debian", apt_security_mirror="http://m/security")
    assert "deb http://m/debian bookworm main\n" in host.apt_sources(mirrors, "debian12", "bookworm")
    assert "deb http://m/security bookworm-security main\n" in host.apt_sources(mirrors, "debian12", "bookworm")


def test_the_release_files_of_a_snapshot_may_be_old() -> None:
    snapshot = Site(apt_mirror="http://m/20260101T000000Z", apt_security_mirror="http://m/s", apt_snapshot=True)
    lines = host.apt_sources(snapshot, "debian12", "bookworm").splitlines()
    assert lines[0] == "deb [check-valid-until=no] http://m/20260101T000000Z bookworm main"
    assert all(line.startswith("deb [check-valid-until=no] http://m/") for line in lines)


def test_python_settings_of_a_site(tmp_path: Path) -> None:
    (tmp_path / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").touch()
    settings = host.python_settings(
        Site(python_index="https://me:pass@mirror.example/simple", python_find_links=(str(tmp_path),))
    )
    assert [wheel.name for wheel in settings.wheels()] == ["torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl"]
    assert settings.secrets == ("pass",)
    toml = settings.uv_toml("https://wheels.example/cpu")
    assert 'index-url = "https://me:pass@mirror.example/simple"' in toml
    assert 'extra-index-url = ["https://wheels.example/cpu"]' in toml
    assert 'find-links = ["/run/buildkit/wheels"]' in toml
    assert "pass" not in repr(settings)
    with pytest.raises(InputError, match="no folder"):
        host.python_settings(Site(python_find_links=("/no/such/folder",)))


def test_python_settings_of_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_pip_config", lambda: {
        "index-url": "https://a.example/simple", "extra-index-url": "file:///srv/x\nhttps://b.example/simple",
        "find-links": f"{tmp_path} https://c.example/links /no/such/folder",
    })  # fmt: skip
    settings = host.python_settings(Site())
    assert settings.indexes == ("https://a.example/simple", "https://b.example/simple")
    assert settings.folders == (tmp_path,)
    assert settings.remote_links == ("https://c.example/links",)


def test_no_log_line_shows_a_secret() -> None:
    events: list[Event] = []
    log = io.StringIO()
    watch = Watch("train-cpu", "build", events.append, log, PythonSettings(secrets=("hunter2",)).secrets)
    watch.line("STEP 2/3: RUN pip install --index-url https://u:hunter2@mirror/simple x")
    watch.line("error: https://u:hunter2@mirror/simple answered 401")
    assert "hunter2" not in log.getvalue() + watch.tail + str(events)
    assert log.getvalue().count("****") == 2
    assert events[0].kind is Kind.TASK_STEP
    assert events[0].data == {"step": 2, "steps": 3}


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("STEP 3/9: RUN --mount=type=secret,id=ca apt-get   update", "apt-get update"),
        ("STEP 3/9: RUN echo --mount=x", "echo --mount=x"),
        ("STEP 3/9: COPY a b", None),
        ("Get:1 http://mirror RUN x", None),
    ],
)
def test_the_command_of_a_step(line: str, command: str | None) -> None:
    assert run_command(line) == command


def test_site_settings_and_their_faults(tmp_path: Path) -> None:
    assert site.load(tmp_path, {}) == Site()
    (tmp_path / "site.yaml").write_text("registry: reg.example:5000\ndrivers: [535, 470.82.01]\nallow_rootful: true\n")
    read = site.load(tmp_path, {"BUILDKIT_REGISTRY": "127.0.0.1:7", "BUILDKIT_DEBUG": "1", "OTHER": "x"})
    assert (read.registry, read.drivers, read.allow_rootful) == ("127.0.0.1:7", ("535", "470.82.01"), True)
    for text, said in (
        ("registri: x", "did you mean registry"),
        ("registry: https://a/b", "not a registry host"),
        ("gpu: maybe", "auto, require, off"),
        ("pytorch_index: https://x", "{variant}"),
        ("- a", "should be a mapping"),
    ):
        (tmp_path / "site.yaml").write_text(text)
        with pytest.raises(InputError) as caught:
            site.load(tmp_path, {})
        assert said in "".join(f"{one} {one.hint}" for one in caught.value.problems)
    (tmp_path / "site.yaml").unlink()
    with pytest.raises(InputError) as caught:
        site.load(tmp_path, {"BUILDKIT_GPU": "maybe"})
    assert str(caught.value.problems[0].location) == "$BUILDKIT_GPU"
