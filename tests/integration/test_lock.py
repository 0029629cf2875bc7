"""Locks made with the real uv, the index that this host is configured with, and a real registry."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import uuid
from pathlib import Path

import pytest
import yaml

from imagebuild.engine.host import uv_binary
from imagebuild.engine.podman import Podman
from imagebuild.engine.registry import Registry
from imagebuild.spec import lock
from imagebuild.spec.reference import Repository, parse_reference
from tests.calls import call
from tests.projects import MATRIX, plan, project
from tests.registry_server import RegistryServer, free_port

ROW = "cu128"  # its torch comes from the ordinary index: no other is asked
REQUIREMENTS = """\
six==1.16.0
python-dateutil==2.8.2
tomli ; python_version < "3.11"
colorama ; sys_platform == "win32"
"""


@pytest.fixture
def folder(tmp_path: Path, registry_server: RegistryServer) -> Path:
    """A project whose requirements are small, at a site that has a mirror of docker.io."""
    made = project(tmp_path / "project", MATRIX)
    require(made, REQUIREMENTS)
    (made / "images" / "diag-tools" / "requirements.in.j2").write_text("six\n")
    site(made, mirrors={"docker.io": registry_server.host})
    return made


def site(folder: Path, **settings: object) -> None:
    nobody = {"pytorch_index": f"http://127.0.0.1:{free_port()}/{{variant}}"}
    (folder / "site.yaml").write_text(yaml.safe_dump(nobody | settings))


def require(folder: Path, requirements: str) -> None:
    (folder / "images" / "train" / "requirements.in.j2").write_text(requirements)


def relock(folder: Path, *arguments: str) -> tuple[int, str, str]:
    return call(folder, "lock", *arguments)


def pins(folder: Path, stage: str) -> dict[str, str]:
    text = (folder / "locks" / f"{ROW}-{stage}.txt").read_text()
    assert lock.foreign_lines(text) == []
    return {name: pin.version for name, pin in lock.pins_in(text).items()}


def publish(server: RegistryServer, tag: str, content: bytes) -> str:
    with Registry(server.host) as registry:
        files = {"layer": (content, "application/octet-stream")}
        return registry.push_artifact(Repository(server.host, "nvidia/cuda"), "test/image", files, tag=tag).digest


def test_packages_are_locked_for_the_row_and_agree_among_its_stages(folder: Path) -> None:
    code, out, err = relock(folder, ROW, "--json")
    assert code == 0, err
    assert json.loads(out)["rows"][0]["packages"] == {"train": 2, "diag-tools": 1}
    # What is only for other Pythons or platforms is not there, and the later stage has not a newer six.
    assert pins(folder, "train") == {"six": "1.16.0", "python-dateutil": "2.8.2"}
    assert pins(folder, "diag-tools") == {"six": "1.16.0"}
    assert all("://" not in path.read_text() for path in (folder / "locks").iterdir())
    assert relock(folder, "--check", ROW)[0] == 0
    # The lock is the whole closure: it installs as the image does it, and again from the cache alone.
    environment = {**os.environ, "UV_CACHE_DIR": str(folder / "cache")}
    for offline in ([], ["--offline"]):
        command = [
            str(uv_binary()), "pip", "install", *offline, "--quiet", "--python", sys.executable, "--target", "wheels",
            "--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirements", f"locks/{ROW}-train.txt",
        ]  # fmt: skip
        subprocess.run(command, cwd=folder, env=environment, check=True)


def test_a_moved_tag_moves_the_lock_in_an_upgrade_only(folder: Path, registry_server: RegistryServer) -> None:
    tag = "11.8.0-cudnn8-devel-rockylinux8"
    matrix = folder / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("torch: 2.0.1", "torch: 2.0.1, wheels: pypi"))
    first = publish(registry_server, tag, b"first")
    code, out, err = relock(folder, "cu118", "--json")
    assert code == 0, err
    image = json.loads(out)["rows"][0]["images"]["base"]
    assert image == f"docker.io/nvidia/cuda@{first}"
    second = publish(registry_server, tag, b"second")
    assert second != first
    assert json.loads(relock(folder, "cu118", "--json")[1])["rows"][0]["images"]["base"] == image
    code, out, _ = relock(folder, "cu118", "--upgrade")
    assert out.startswith(f"cu118/base: base docker.io/nvidia/cuda:{tag}: {first[:19]} -> {second[:19]}\n")


def test_what_cannot_be_reached_is_unresolved_and_what_does_not_exist_is_an_error(
    folder: Path, registry_server: RegistryServer
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    site(folder, mirrors={"docker.io": nobody}, python_find_links=[], python_index=f"http://{nobody}/simple")
    code, out, err = relock(folder, "cu118", ROW, "--json")
    assert code == 0, err
    assert [row["unresolved"] for row in json.loads(out)["rows"]] == [
        {"docker.io cannot be reached through the site's mirror": ["base"],
         "the index of torch builds cannot be reached": ["train", "diag-tools"]},
        {"the Python index cannot be reached": ["train", "diag-tools"]},
    ]  # fmt: skip
    assert all("127.0.0.1" not in path.read_text() for path in (folder / "locks").iterdir())
    assert relock(folder, ROW, "--strict")[0] == 1

    site(folder, mirrors={"docker.io": registry_server.host})
    matrix = folder / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("11.8.0-cudnn8-devel", "11.8.9-cudnn8-devel"))
    require(folder, "six==1.16.99\n")
    code, _, err = relock(folder, "cu118", ROW)
    assert code == 1
    assert "docker.io has no nvidia/cuda:11.8.9-cudnn8-devel-rockylinux8" in err
    assert f"row {ROW}: train: No solution found" in err


def test_one_package_is_upgraded_and_the_others_stay(folder: Path) -> None:
    require(folder, "six==1.16.0\ntoml==0.10.1\n")
    assert relock(folder, ROW)[0] == 0
    require(folder, "six\ntoml\n")
    assert relock(folder, ROW)[1] == f"{ROW}: nothing moved\n"
    code, out, _ = relock(folder, ROW, "--upgrade", "toml")
    assert (code, out) == (0, f"{ROW}/train: toml 0.10.1 -> 0.10.2\n")
    assert pins(folder, "train") == {"six": "1.16.0", "toml": "0.10.2"}


def test_a_base_is_built_on_by_digest_through_the_mirror_though_its_tag_moved(
    folder: Path, registry_server: RegistryServer, podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"lock-{uuid.uuid4().hex[:8]}/system"
    first = image_of(podman, f"{registry_server.host}/{name}:1", "LABEL release=first")
    (folder / "matrix.yaml").write_text(MATRIX[: MATRIX.index("  cu128")].replace("project: drl", f"project: {name}"))
    edit = (folder / "matrix.yaml").read_text().replace("base: bootstrap", f"base: docker.io/{name}:1")
    (folder / "matrix.yaml").write_text(edit.replace("{variant: cpu,", "{variant: cpu, stages: [base],"))
    (folder / "templates" / "base.Containerfile.j2").write_text("FROM {{ base_image }}\nLABEL mine=1\n")
    monkeypatch.setenv("BUILDKIT_REGISTRY", registry_server.host)
    code, _, err = relock(folder, "cpu")
    assert code == 0, err
    image_of(podman, f"{registry_server.host}/{name}:1", "LABEL release=second")
    code, _, err = call(folder, "build", "base-cpu")
    assert code == 0, err
    built = plan(folder)["base-cpu"]
    assert built.base_image == f"docker.io/{name}@{first}"
    image = podman.image(built.local_name)
    assert image is not None
    assert image.labels["release"] == "first"
    podman.untag_or_remove(built.local_name)
    podman.untag_or_remove(f"docker.io/{name}:locked-{first.removeprefix('sha256:')[:12]}")


def image_of(podman: Podman, reference: str, lines: str) -> str:
    """Build an image of nothing but labels, push it, and return its digest in the registry."""
    containerfile = f"FROM scratch\n{lines}\n".encode()
    with io.BytesIO() as context:
        with tarfile.open(fileobj=context, mode="w") as tar:
            entry = tarfile.TarInfo("Containerfile")
            entry.size = len(containerfile)
            tar.addfile(entry, io.BytesIO(containerfile))
        context.seek(0)
        podman.build(context, reference, secrets=(), timestamp=0, cache=False, network="private",
                     on_line=lambda _line: None)  # fmt: skip
    podman.push(reference, reference, tls_verify=False)
    podman.untag_or_remove(reference)
    parsed = parse_reference(reference)
    with Registry(parsed.repository.registry) as registry:
        return registry.get_manifest(parsed).digest
