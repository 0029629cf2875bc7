"""The edges of the engine: what is refused before anything is asked of it, and how its answers are read."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from imagebuild.engine import service
from imagebuild.engine.container import _frames
from imagebuild.engine.local_registry import LocalRegistry
from imagebuild.engine.podman import Image, Podman
from imagebuild.errors import EngineError, WorkError
from imagebuild.run import ship
from imagebuild.run.build import _PASSING
from imagebuild.spec.site import Site


def info(*, rootless: bool) -> dict[str, Any]:
    return {
        "store": {"graphRoot": "/no/such/folder", "graphDriverName": "overlay"},
        "host": {"security": {"rootless": rootless}},
        "version": {"Version": "4.3.1"},
    }


def test_a_rootful_engine_is_refused_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Podman, "json", lambda *_, **__: info(rootless=False))
    with pytest.raises(EngineError, match="runs as root") as caught:
        Podman("unix:///x")
    assert "allow_rootful" in caught.value.hint
    assert Podman("unix:///x", allow_rootful=True).info.free_bytes is None
    monkeypatch.setattr(Podman, "json", lambda *_, **__: info(rootless=True))
    assert Podman("unix:///x").info.rootless


def test_what_the_machine_can_do_is_read_from_what_podman_says(monkeypatch: pytest.MonkeyPatch) -> None:
    said = info(rootless=True)
    monkeypatch.setattr(Podman, "json", lambda *_, **__: said)
    assert (plain := Podman("unix:///x").info).controllers == frozenset()
    assert (plain.selinux, plain.memory_bytes) == (False, 0)
    said["host"] |= {"cgroupVersion": "v1", "cgroupControllers": ["memory", "pids"], "memTotal": 2**34,
                     "security": {"rootless": True, "selinuxEnabled": True}}  # fmt: skip
    able = Podman("unix:///x").info
    assert able.controllers == {"memory", "pids"}
    assert (able.cgroup_version, able.memory_bytes) == ("1", 2**34)
    assert able.selinux


class Stream(Podman):
    """A Podman whose streams say what a test wants."""

    def __init__(self, *messages: dict[str, Any], image: Image | None = None) -> None:
        self.messages, self.found = messages, image

    def _stream(self, *_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        yield from self.messages

    def image(self, name: str) -> Image | None:
        return self.found


def build(podman: Podman) -> str:
    return podman.build(None, "n", secrets=(), timestamp=0, cache=True, network="host", on_line=print)  # type: ignore[arg-type]


def test_an_error_inside_a_stream_that_began_well_is_a_failure() -> None:
    """The API answers 200 before it knows how things end."""
    with pytest.raises(EngineError, match="no space left"):
        build(Stream({"stream": "STEP 1/2: FROM x\n"}, {"errorDetail": {"message": "no space left"}}))
    with pytest.raises(EngineError, match="denied"):
        Stream({"stream": "copying"}, {"error": "denied"}).push("n", "r/n:t")
    with pytest.raises(EngineError, match="unknown"):
        Stream({"error": "manifest unknown"}).pull("r/n:t")


def test_a_stream_without_a_result_is_a_failure() -> None:
    with pytest.raises(EngineError, match="ended without an image"):
        build(Stream({"stream": "STEP 1/2: FROM x\n"}))
    with pytest.raises(EngineError, match="ended without an image"):
        build(Stream({"stream": "0" * 64 + "\n"}))
    with pytest.raises(EngineError, match="has no such image"):
        Stream({"stream": "pulling"}).pull("r/n:t")


def test_attached_output_is_whole_however_it_is_cut() -> None:
    data = b"".join(
        bytes([kind, 0, 0, 0]) + len(text).to_bytes(4, "big") + text for kind, text in ((1, b"one\n"), (2, b"two"))
    )
    for size in range(1, len(data)):
        chunks = (data[start : start + size] for start in range(0, len(data), size))
        assert b"".join(_frames(chunks)) == b"one\ntwo"


@pytest.mark.parametrize(
    ("said", "passing"),
    [("layer not known", True), ("database is locked", True), ("Temporary failure resolving 'x'", True),
     ("no such package: tourch", False), ("exit status 1", False)],
)  # fmt: skip
def test_which_failures_another_try_may_cure(said: str, passing: bool) -> None:
    assert bool(_PASSING.search(said)) == passing


def test_the_socket_of_the_user_is_found_and_a_dead_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONTAINER_HOST", raising=False)
    monkeypatch.setattr("imagebuild.engine.service.os.geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("imagebuild.engine.service.shutil.which", lambda _: None)
    with pytest.raises(EngineError, match="no Podman service answers"):
        service.find_socket()
    path = tmp_path / "podman" / "podman.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        assert service.find_socket() == f"unix://{path}"
    with pytest.raises(EngineError):
        service.find_socket()  # the file is still there
    assert service.find_socket("unix:///mine") == "unix:///mine"
    monkeypatch.setenv("CONTAINER_HOST", "unix:///theirs")
    assert service.find_socket() == "unix:///theirs"


def test_a_base_comes_through_the_sites_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        ship, "pull", lambda _podman, registry, source, _name: asked.append(f"{registry.host} {source}")
    )
    reference = "docker.io/nvidia/cuda:12.8.1-base-rockylinux8"
    podman = Stream()
    ship.pull_base(podman, reference, Site(mirrors={"docker.io": "mirror.example:5000/hub"}))
    ship.pull_base(podman, reference, Site())
    assert asked == [
        "mirror.example:5000 mirror.example:5000/hub/nvidia/cuda:12.8.1-base-rockylinux8",
        "docker.io docker.io/nvidia/cuda:12.8.1-base-rockylinux8",
    ]


def test_a_registry_program_that_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkError, match="docker-registry is not installed"):
        LocalRegistry("127.0.0.1:1", tmp_path / "registry").up(lambda: False)
    assert not LocalRegistry("127.0.0.1:1", tmp_path / "registry").down()


def test_another_process_with_the_registrys_number_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text("1")
    assert not LocalRegistry("127.0.0.1:1", tmp_path).down()
    assert Path("/proc/1").exists()
