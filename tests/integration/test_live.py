"""Working in the images for real: a notebook, TensorBoard and SSH on loopback, a shell, and no container left."""

from __future__ import annotations

import http.client
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuild.engine.podman import Podman
from imagebuild.engine.service import find_socket, owner_of
from imagebuild.run import launch, servers
from imagebuild.run.live import live
from tests.integration.tiny import Demo

PATIENCE = 120.0  # seconds


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the user of the Podman service may write to, wherever pytest keeps its own."""
    path = Path(tempfile.mkdtemp(prefix="buildkit-live-"))
    if user := owner_of(find_socket(os.environ.get("BUILDKIT_PODMAN"))):
        os.chown(path, user.pw_uid, user.pw_gid)
    yield path
    shutil.rmtree(path)


def test_run_works_in_the_folder_as_its_owner(demo: Demo, folder: Path) -> None:
    done = demo("run", "--workspace", str(folder), "train-cpu", "--", "sh", "-c", "id -un; touch made; exit 5")
    assert (done.code, done.out) == (5, "worker\n"), done.err
    assert (folder / "made").stat().st_uid == folder.stat().st_uid


def test_what_is_printed_runs(demo: Demo, folder: Path) -> None:
    environment = {**demo.environment, "SECRET": "of mine"}
    command = ["run", "--print", "--workspace", str(folder), "--env", "SECRET", "--env", "B=a 'b'", "train-cpu", "--",
               "sh", "-c", 'echo "$SECRET $B"; df --output=size -m /dev/shm | tail -1']  # fmt: skip
    printed = replace(demo, environment=environment)(*command)
    assert printed.code == 0, printed.err
    assert "of mine" not in printed.out
    done = subprocess.run(printed.out, shell=True, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["of", "mine", "a", "'b'", "8192"]


def test_what_is_printed_of_a_server_runs_with_a_token_of_its_own(demo: Demo, folder: Path, podman: Podman) -> None:
    name, port = f"test-{folder.name}", str(servers.choose_port(None, 0))
    printed = demo("tensorboard", "--print", "--workspace", str(folder), "--name", name, "--port", port, "train-cpu")
    assert printed.code == 0, printed.err
    process = subprocess.Popen(["sh", "-c", printed.out], stdout=subprocess.PIPE, text=True, env=demo.environment)
    assert process.stdout is not None
    try:
        path = re.fullmatch(rf"http://127\.0\.0\.1:{port}(/\w{{48}}/)\n", process.stdout.readline())[1]  # type: ignore[index]
        assert "TensorBoard shows" in process.stdout.readline()
        assert [get(int(port), one) for one in (path, "/")] == [200, 404]
    finally:
        podman.request("delete", f"/containers/{name}", params={"force": "true", "timeout": "0"}, doing="end")
        process.communicate(timeout=PATIENCE)


def test_a_policys_container_can_write_nowhere_and_reach_nobody(demo: Demo, folder: Path) -> None:
    (folder / "policy.onnx").write_text("a policy")
    (folder / "policy.onnx").chmod(0o644)
    code = (
        "import os, socket, pathlib as p\n"
        "print(p.Path('/policy/policy.onnx').read_text(), os.getuid(), [i[1] for i in socket.if_nameindex()])\n"
        "p.Path('/run/policy/state').write_text('here')\n"
        "for path in ('/policy/policy.onnx', '/usr/x', '/opt/x'):\n"
        "    try: p.Path(path).write_text('x')\n"
        "    except OSError as error: print(error.strerror)\n"
    )
    (exchange := folder / "exchange").mkdir()
    os.chown(exchange, folder.stat().st_uid, folder.stat().st_gid)
    serve = ("run", "--policy", str(folder / "policy.onnx"))
    done = demo(*serve, "--exchange", str(exchange), "inference-cpu", "--", "python3", "-c", code)
    assert done.out.splitlines() == ["a policy 1000 ['lo']", *["Read-only file system"] * 3], done.err
    assert (exchange / "state").read_text() == "here"
    alone = demo(*serve, "inference-cpu", "--", "python3", "-c", code)
    assert alone.out.splitlines() == done.out.splitlines(), alone.err


def test_a_notebook_answers_who_knows_its_token(demo: Demo, folder: Path, podman: Podman) -> None:
    with Serving(demo, "notebook", "--workspace", str(folder), "train-cpu") as notebook:
        token = notebook.address.partition("token=")[2]
        assert len(token) == 48
        assert get(notebook.port, "/api/status", {"Authorization": f"token {token}"}) == 200
        assert get(notebook.port, "/api/status") == 403
        assert get(notebook.port, "/api/status", {"Authorization": f"token {token}", "Host": "evil.example"}) == 403
        assert listening(notebook.port) == {"127.0.0.1"}
        assert not any(token in line for line in command_lines())
        assert token not in notebook.log
        assert notebook.end(signal.SIGINT) == 0
    assert "stopped" in notebook.log
    assert podman.request("get", f"/containers/{notebook.name}/json", doing="look", missing_ok=True) is None


def test_tensorboard_is_below_a_secret_path(demo: Demo, folder: Path, podman: Podman) -> None:
    options = ("--workspace", str(folder), "--logdir", ".", "--port", str(servers.choose_port(None, 0)))
    started = demo("tensorboard", "--detach", *options, "train-cpu")
    assert started.code == 0, started.err
    name = re.search(r"is ready in (\S+);", started.err)[1]  # type: ignore[index]
    try:
        # Standard output is no terminal here: the address is in a file.
        note = demo.folder / ".buildkit" / "live" / name
        assert str(note) in started.out
        assert note.stat().st_mode & 0o777 == 0o600
        _, port, token = re.fullmatch(r"http://([\d.]+):(\d+)/(\w+)/\n", note.read_text()).groups()  # type: ignore[union-attr]
        assert token not in started.out + started.err
        paths = ("/", "/data/runs", f"/{token}/", f"/{token}/data/runs")
        assert [get(int(port), path) for path in paths] == [404, 404, 200, 200]
        assert listening(int(port)) == {"127.0.0.1"}
        assert not any(token in line for line in command_lines())
        taken = demo("tensorboard", "--name", name, "--workspace", str(folder), "train-cpu")
        assert (taken.code, f"there is a container {name} already" in taken.err) == (1, True)
        assert get(int(port), f"/{token}/") == 200
    finally:
        podman.request("delete", f"/containers/{name}", params={"force": "true", "timeout": "0"}, doing="end")


def test_without_a_network_of_its_own_a_server_listens_on_loopback_only(demo: Demo) -> None:
    """Where the machine has no /dev/net/tun, the container shares its network."""
    door = launch.Door(servers.choose_port(None, 0), own_network=False)
    server = servers.tensorboard(door, "/tmp")
    name = f"buildkit-test-{door.port}"
    settings = launch.Launch(
        demo.image("train"), server.command, name=name, door=door, environment=tuple(server.variables)
    )
    with live(launch.podman_words(find_socket(os.environ.get("BUILDKIT_PODMAN"))), settings, server):
        assert listening(door.port) == {"127.0.0.1"}
    assert listening(door.port) == set()


def test_ssh_lets_in_who_has_the_key(demo: Demo, folder: Path, tmp_path: Path) -> None:
    assert shutil.which("ssh"), "no ssh here: scripts/setup --test installs it"
    for name in ("mine", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    start = ("ssh", "--key", str(tmp_path / "mine.pub"), "--workspace", str(folder), "--config", "train-cpu")
    with Serving(demo, *start) as served:
        (config := tmp_path / "config").write_text(served.address)
        assert "taking diag-tools-cpu" in served.log
        assert listening(served.port) == {"127.0.0.1"}

        def login(key: str, *words: str) -> subprocess.CompletedProcess[str]:
            options = ["-F", str(config), "-i", str(tmp_path / key), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"]
            return subprocess.run(["ssh", *options, served.name, *words], capture_output=True, text=True, check=False)

        into = login("mine", "id -un; which python; echo $MUJOCO_GL; touch /workspace/made")
        assert into.stdout.split() == ["worker", "/opt/venv/bin/python", "osmesa"], into.stderr
        assert (folder / "made").stat().st_uid == folder.stat().st_uid
        assert login("mine", "bash -lc 'which python'").stdout.strip() == "/opt/venv/bin/python"
        assert "Permission denied (publickey)" in login("other", "true").stderr
        assert "Permission denied (publickey)" in login("mine", "-l", "root", "true").stderr
        assert served.end(signal.SIGTERM) == 0


def test_a_shell_names_its_target_and_remembers(demo: Demo, folder: Path) -> None:
    said = shell(demo, folder, f"echo {folder.name}", "exit 3")
    assert "worker@base-cpu:/workspace$" in said
    assert "exit code 3" in said
    assert f"echo {folder.name}" in shell(demo, folder, "history | tail -5", "exit")


# --- helpers --------------------------------------------------------------------------------------


def shell(demo: Demo, folder: Path, *lines: str) -> str:
    """What a terminal shows of a shell in which lines are typed."""
    parent, child = pty.openpty()
    process = subprocess.Popen(demo.command("shell", "--workspace", str(folder), "base-cpu"), env=demo.environment,
                               stdin=child, stdout=child, stderr=child, start_new_session=True)  # fmt: skip
    os.close(child)
    said = ""
    for line in lines:
        said += until(parent, "$ ")
        os.write(parent, f"{line}\n".encode())
    said += until(parent, None)
    return f"{said}\nexit code {process.wait(timeout=PATIENCE)}"


def until(terminal: int, mark: str | None) -> str:
    """Read a terminal until it shows a mark, or to its end."""
    said = ""
    while mark is None or mark not in said:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # how Linux says that the other side is closed
            break
        if not more:
            break
        said += more.decode(errors="replace")
    return said


class Serving:
    """A server that buildkit runs on a terminal of its own: `address` is what it shows there."""

    def __init__(self, demo: Demo, *arguments: str) -> None:
        self._file = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._terminal, child = pty.openpty()
        self._process = subprocess.Popen(
            demo.command(*arguments), env=demo.environment, stdin=subprocess.DEVNULL, stdout=child, stderr=self._file,
            start_new_session=True,
        )  # fmt: skip
        os.close(child)

    def __enter__(self) -> Serving:
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(r"is ready in (\S+-(\d+));", self.log)):
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.1)
        self.name, self.port = found[1], int(found[2])
        self.address = os.read(self._terminal, 65536).decode().replace("\r", "").rstrip("\n")
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGTERM)

    @property
    def log(self) -> str:
        self._file.seek(0)
        return self._file.read()

    def end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        return self._process.wait(timeout=PATIENCE)


def get(port: int, path: str, headers: dict[str, str] | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", path, headers=headers or {})
    return connection.getresponse().status


def listening(port: int) -> set[str]:
    """The addresses of this machine on which somebody listens at a port."""
    addresses = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state = line.split()[:4]
            address, _, number = local.partition(":")
            if state == "0A" and int(number, 16) == port:
                words = bytes.fromhex(address)
                addresses.add(
                    socket.inet_ntop(family, b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4)))
                )
    return addresses


def command_lines() -> Iterator[str]:
    """What any user of this machine can read of its processes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().decode(errors="replace")
        except OSError:
            continue
