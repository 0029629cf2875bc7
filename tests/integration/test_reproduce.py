"""Two builds of the same inputs, in real stores: the same bytes, or the file that differs; and nothing stays behind."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

import buildkit
from imagebuild.engine.archive import ImageArchive
from imagebuild.engine.container import Container, ContainerSettings
from imagebuild.engine.podman import Image, Podman
from imagebuild.engine.private import PrivateService
from imagebuild.engine.registry import Registry
from imagebuild.run import ship
from imagebuild.spec.reference import Repository
from tests.projects import project
from tests.registry_server import RegistryServer

PAUSE = Path(shutil.which("catatonit") or "/usr/bin/catatonit")  # static, and does nothing for ever
PARENT, CHILD = "localhost/tests/parent:1", "localhost/tests/child:1"
TINY = "FROM scratch\nCOPY pause /pause\n"


def build(podman: Podman, name: str, containerfile: str) -> Image:
    """Build a Containerfile whose context has the program `pause`."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        entry = tarfile.TarInfo("Containerfile")
        entry.size = len(containerfile)
        tar.addfile(entry, io.BytesIO(containerfile.encode()))
        tar.add(PAUSE, "pause")
    context.seek(0)
    podman.build(context, name, secrets=(), timestamp=0, cache=False, network="host", on_line=print)
    image = podman.image(name)
    assert image
    return image


def processes_of(folder: Path) -> list[str]:
    """The command lines that name a folder."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if str(folder) in line]


def stores() -> set[Path]:
    return set(Path(os.environ.get("TMPDIR", "/var/tmp")).glob("buildkit-store-*"))


def test_a_digest_says_nothing_of_how_the_parent_came_here(registry_server: RegistryServer, tmp_path: Path) -> None:
    """A parent that was pulled has another manifest digest than one built here: neither may reach its children."""
    repository = Repository(registry_server.host, "tests/reproduce")
    with PrivateService() as service, Registry(registry_server.host) as registry:
        podman = Podman(service.address)

        def push_child(tag: str) -> str:
            image = build(podman, CHILD, f"FROM {PARENT}\nCOPY pause /other\n")
            assert not image.labels  # Podman's version neither
            return ship.push(podman, registry, CHILD, image.id, repository.tagged(tag))

        parent = build(podman, PARENT, TINY)
        ship.push(podman, registry, PARENT, parent.id, repository.tagged("parent"))
        built_here = push_child("built-here")
        podman.save(CHILD, tmp_path / "child.oci.tar")
        with ImageArchive(tmp_path / "child.oci.tar") as saved:
            assert saved.manifest.digest == built_here
        for name in (CHILD, PARENT):
            podman.untag_or_remove(name)
        assert podman.image(parent.id) is None
        ship.pull(podman, registry, repository.tagged("parent"), PARENT)
        assert push_child("pulled") == built_here


def test_a_private_service_takes_everything_along() -> None:
    before = stores()
    with pytest.raises(KeyboardInterrupt), PrivateService() as service:  # noqa: PT012
        podman = Podman(service.address)
        assert podman.images("io.buildkit.inputs-digest") == []  # nothing of the user's other store
        image = build(podman, PARENT, TINY)
        settings = ContainerSettings(image=image.id, command=["/pause", "-P"], shm_bytes=1 << 20)
        Container(podman, settings).__enter__()
        folder = service.folder
        assert processes_of(folder)
        raise KeyboardInterrupt
    assert processes_of(folder) == []
    assert stores() == before


# --- the command ----------------------------------------------------------------------------------

NOT_REPRODUCIBLE = """\
FROM {{ parents["base"] }}
USER 0:0
RUN head -c 100 /etc/passwd > /opt/key && head -c 8 /dev/urandom >> /opt/key && date +%N > /opt/moment
RUN install -m 0755 /dev/null /opt/always
"""
TINY_ROWS = """\
version: 1.0.0
epoch: 2026-11-30
project: tests
rows:
  tiny: {{os: debian12, base: "{base}", python: "3.11", variant: cpu, torch: 2.13.0, sb3: 2.9.2, sb3_contrib: 2.9.2,
         gymnasium: 1.4.0, mujoco: 4.0.0, numpy: 2.4.6, onnx: 1.23.2, onnxruntime: 1.32.0, stages: [base, train]}}
"""


def reproduce(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, buildkit.__file__, "-C", str(folder), "reproduce", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_base_cpu_is_reproducible_and_a_random_file_is_named(tmp_path: Path) -> None:
    before = stores()
    project(tmp_path / "project", TINY_ROWS.format(base="bootstrap"))
    (tmp_path / "project/templates/train.Containerfile.j2").write_text(NOT_REPRODUCIBLE)
    process = reproduce(tmp_path / "project", "--json", "--keep", str(tmp_path / "kept"), "train-tiny")
    out, err = process.communicate(timeout=900)
    assert process.returncode == 1, err
    base, train = json.loads(out)
    assert (base["target"], base["same"], base["differences"]) == ("base-tiny", True, [])
    assert base["image_ids"][0] == base["image_ids"][1]
    assert base["manifest_digests"][0] == base["manifest_digests"][1]

    assert (train["target"], train["same"]) == ("train-tiny", False)
    found = {(one["file"], one["what"]) for one in train["differences"]}
    assert ("opt/key", "bytes from offset 100 on") in found
    assert "opt/moment" in {file for file, _ in found}
    assert {file for file, _ in found} == {"opt/key", "opt/moment"}
    assert all("head -c 100 /etc/passwd" in one["place"] for one in train["differences"])

    for name in ("first", "second"):
        with ImageArchive(tmp_path / f"kept/{name}/train-tiny.oci.tar") as archive:
            assert archive.manifest.config_digest in train["image_ids"]
    assert stores() == before
    assert not list((tmp_path / "project/.buildkit/reproduce").glob("*/rootfs"))


@pytest.fixture
def base_image(registry_server: RegistryServer) -> str:
    """An image in the registry that has nothing but a program that waits for ever."""
    repository = Repository(registry_server.host, "tests/pause")
    with PrivateService() as service, Registry(registry_server.host) as registry:
        podman = Podman(service.address)
        image = build(podman, PARENT, TINY)
        ship.push(podman, registry, PARENT, image.id, repository.tagged("1"))
    return str(repository.tagged("1"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_call_leaves_nothing_behind(tmp_path: Path, base_image: str, number: signal.Signals) -> None:
    before = stores()
    project(tmp_path, TINY_ROWS.format(base=base_image))
    waits = 'FROM {{ base_image }}\nRUN ["/pause", "-P"]\n'
    (tmp_path / "templates/base.Containerfile.j2").write_text(waits)
    process = reproduce(tmp_path, "base-tiny")
    assert process.stderr
    for line in process.stderr:
        print(line, end="")
        if "RUN" in line:
            break
    time.sleep(1)
    (folder,) = stores() - before
    assert processes_of(folder)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert processes_of(folder) == []
    assert stores() == before
