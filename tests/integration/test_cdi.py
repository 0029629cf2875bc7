"""GPUs by CDI, with a specification made here: its device, file and variable arrive in a real rootless container."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from imagebuild.engine import cdi
from imagebuild.engine.container import Container, ContainerSettings
from imagebuild.engine.podman import Podman
from imagebuild.errors import EngineError
from imagebuild.run import launch
from imagebuild.spec import matrix
from tests.integration.tiny import Demo, Tiny

FOLDER = Path("/etc/cdi")  # one of the two that Podman reads; there is no setting for it before 5.5
ZERO = os.makedev(1, 5)  # what /dev/zero is: harmless under any name
LOOK = """
import os, subprocess
print("device", os.read(os.open("{node}", os.O_RDWR), 4))
print("file", subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.strip())
print("variable", b"NVIDIA_TEST=arrived" in open("/proc/1/environ", "rb").read().split(bytes(1)))
"""
ARRIVED = "device b'\\x00\\x00\\x00\\x00'\nfile GPU 0: made by a test\nvariable True\n"


@dataclass(frozen=True)
class FakeGpu:
    """A device node of this host and the specification that offers it; `device` is what --device wants."""

    node: Path
    device: str
    kind: str


Offer = Callable[..., FakeGpu]


@pytest.fixture
def offer() -> Iterator[Offer]:
    """Make a fake GPU and write a specification that offers it; all of it is removed afterwards."""
    name, made = f"buildkit-test-{uuid.uuid4().hex[:8]}", list[Path]()
    program = Path(tempfile.mkdtemp(dir="/var/tmp")) / "nvidia-smi"
    node, is_new = Path("/dev") / name, not FOLDER.exists()

    def make(kind: str = f"buildkit.test/{name}", mode: int = 0o666, nodes: Sequence[str] = ()) -> FakeGpu:
        try:
            FOLDER.mkdir(mode=0o755, exist_ok=True)
            os.mknod(node, stat.S_IFCHR, ZERO)
            made.append(node)
            node.chmod(mode)
            made.append(FOLDER / f"{name}.yaml")
            made[-1].write_text(yaml.safe_dump(_specification(kind, [str(node), *nodes], program)))
        except OSError as error:
            pytest.skip(
                f"NOTHING of the way of GPUs into containers is tested: {error} (be root, with a /dev of one's own)"
            )
        program.parent.chmod(0o755)
        program.write_text("#!/bin/sh\necho GPU 0: made by a test\n")
        program.chmod(0o755)
        return FakeGpu(node, f"{kind}=all", kind)

    yield make
    for path in (*made, program):
        path.unlink(missing_ok=True)
    program.parent.rmdir()
    if is_new and FOLDER.exists() and not any(FOLDER.iterdir()):
        FOLDER.rmdir()


def _specification(kind: str, nodes: Sequence[str], program: Path) -> dict[str, object]:
    """As nvidia-ctk writes it: nodes in the device, files and variables for all of them."""
    mount = {
        "hostPath": str(program),
        "containerPath": "/usr/local/bin/nvidia-smi",
        "options": ["ro", "nosuid", "bind"],
    }
    device = {"name": "all", "containerEdits": {"deviceNodes": [{"path": node} for node in nodes]}}
    edits = {"env": ["NVIDIA_TEST=arrived"], "mounts": [mount]}
    return {"cdiVersion": "0.3.0", "kind": kind, "devices": [device], "containerEdits": edits}


def settings(demo: Demo, device: str) -> ContainerSettings:
    return ContainerSettings(demo.image("base"), ["sleep", "infinity"], 2**26, devices=[device], owner="test-cdi")


def test_a_device_its_file_and_its_variable_arrive(demo: Demo, podman: Podman, offer: Offer) -> None:
    gpu = offer()
    with Container(podman, settings(demo, gpu.device)) as container:
        answer = container.run(["python3", "-c", LOOK.format(node=gpu.node)], timeout=60)
    assert answer.output == ARRIVED


def test_they_arrive_in_what_buildkit_run_starts(
    demo: Demo, podman: Podman, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = offer()
    monkeypatch.setattr(launch, "GPU_DEVICE", gpu.device)
    monkeypatch.setattr(launch, "has_cdi_gpu", lambda: True)
    monkeypatch.setattr(launch, "gpu_obstacles", lambda *_: [])  # those of NVIDIA's own kind
    flags = launch._gpu("auto", matrix.load(demo.folder / "matrix.yaml").rows["cu128"], podman.address)
    command = [*launch.podman_words(podman.address), "run", "--rm", *flags, demo.image("base"), "python3", "-c"]
    done = subprocess.run([*command, LOOK.format(node=gpu.node)], capture_output=True, text=True, check=False)
    assert done.stdout == ARRIVED, done.stderr


def test_a_node_that_this_user_may_not_open_is_refused_in_the_container_too(
    demo: Demo, podman: Podman, offer: Offer
) -> None:
    """It is errno 13 by which `buildkit diagnose` knows rootless permissions; a device cgroup would say 1."""
    gpu = offer(mode=0o600)
    program = f"import os\ntry: os.open('{gpu.node}', os.O_RDWR)\nexcept OSError as error: print(error.errno)"
    with Container(podman, settings(demo, gpu.device)) as container:
        assert container.run(["python3", "-c", program], timeout=60).output == "13\n"


def test_podmans_refusals_say_what_to_do(demo: Demo, podman: Podman, offer: Offer) -> None:
    gpu = offer(nodes=["/dev/nvidia-that-is-gone"])
    with (
        pytest.raises(EngineError, match="nvidia-that-is-gone") as caught,
        Container(podman, settings(demo, gpu.device)),
    ):
        pass
    assert "names /dev/nvidia-that-is-gone, which is not there" in caught.value.hint
    unknown = settings(demo, f"{gpu.kind}=other")
    with pytest.raises(EngineError, match="unresolvable") as caught, Container(podman, unknown):
        pass
    assert "nvidia-ctk cdi generate" in caught.value.hint


def test_a_required_gpu_reaches_the_gpu_checks(tiny: Tiny, offer: Offer) -> None:
    """The whole way, as NVIDIA's own kind: only where the host has no GPU that this could be taken for."""
    if cdi.has_cdi_gpu():
        pytest.skip("this host has GPUs of its own: the whole way is tested by its GPU checks")
    gpu = offer(kind=cdi.KIND)
    tiny.add_cuda_row()
    look = f"{LOOK.format(node=gpu.node)}\nimport json\nassert json.load(open('/smoke/expect.json'))['gpu_present']\n"
    tiny.check("base", "60-gpu-there.py", look)
    done = tiny("build", "--smoke", "--gpu", "require", "base-cu128")
    assert done.code == 0, done.err
    assert "2 passed" in done.err
    log = (tiny.folder / ".buildkit/logs/base-cu128.smoke.log").read_text()
    assert ARRIVED in log
