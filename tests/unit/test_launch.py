"""What `run` and its sisters tell podman, flag by flag, and what they refuse before anything starts."""

from __future__ import annotations

import os
import pwd
import shlex
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import buildkit
from imagebuild.engine import host
from imagebuild.engine.podman import EngineInfo
from imagebuild.errors import InputError, WorkError
from imagebuild.plan.plan import PlannedTarget
from imagebuild.run import launch, servers, workspace
from imagebuild.run.keys import public_keys
from imagebuild.run.launch import Door, Launch, Wishes, launch_of, podman_words, unmet
from tests.projects import plan, project

KEEP_ID = "--userns=keep-id:uid=1000,gid=1000"


def engine(version: str = "5.4.2", *controllers: str, selinux: bool = False, memory: int = 2**34) -> EngineInfo:
    return EngineInfo(
        version, True, "overlay", None, "2" if controllers else "1", frozenset(controllers), selinux, memory
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project(tmp_path_factory.mktemp("launch"))


@pytest.fixture
def train(folder: Path) -> PlannedTarget:
    return plan(folder)["train-cpu"]


@pytest.fixture
def call(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call buildkit in a folder, against a Podman that is not there."""
    monkeypatch.setenv("BUILDKIT_PODMAN", "unix:///no/such/socket")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(host, "has_tun", lambda: True)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(buildkit.cli, ["-C", str(folder), *arguments])

    return run


def test_the_least_that_a_container_gets(train: PlannedTarget) -> None:
    assert launch_of(train, Wishes()).arguments() == ["run", "--rm", "--shm-size=8g", train.local_name]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"interactive": True}, ["--interactive", "--tty"]),
        ({"detach": True, "interactive": True}, ["--detach"]),
        ({"name": "n"}, ["--name=n"]),
        ({"hostname": "h"}, ["--hostname=h"]),
        ({"gpu": ("--device=nvidia.com/gpu=all", "--security-opt=label=disable"), "unconfined": True},
         ["--device=nvidia.com/gpu=all", "--security-opt=label=disable"]),
        ({"unconfined": True}, ["--security-opt=label=disable"]),
        ({"mounts": (launch.Mount(Path("/a"), "/b"), launch.Mount(Path("/c"), "/d", read_only=True))},
         [KEEP_ID, "--volume=/a:/b", "--volume=/c:/d:ro"]),
        ({"volumes": ("v:/w",)}, [KEEP_ID, "--volume=v:/w"]),
        ({"environment": ("A", "B=c")}, ["--env=A", "--env=B=c"]),
        ({"memory": "16g", "cpus": 1.5}, ["--memory=16g", "--cpus=1.5"]),
        ({"door": Door(8888)}, ["--publish=127.0.0.1:8888:8888"]),
        ({"door": Door(8888, own_network=False)}, ["--network=host"]),
        ({"network": "none", "sealed": True, "tmpfs": ("/t",)},
         ["--network=none", "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--tmpfs=/t"]),
        ({"health": ("a", "b c")}, ['--health-cmd=["a", "b c"]', "--health-interval=10s"]),
    ],
)  # fmt: skip
def test_each_thing_that_it_may_get(given: dict[str, Any], words: list[str]) -> None:
    expected = ["run", "--rm", "--shm-size=64m", *words, "image", "do", "it"]
    assert Launch("image", ("do", "it"), **given).arguments() == expected


def test_a_server_listens_where_nobody_else_reaches_it() -> None:
    """In a network of its own the container's whole network is behind one published port of loopback."""
    assert (Door(1, own_network=True).listen, Door(1, own_network=False).listen) == ("0.0.0.0", "127.0.0.1")


def test_limits_are_set_where_control_groups_can(train: PlannedTarget) -> None:
    able, unable = engine("5.0", "memory", "cpu"), engine("4.3.1")
    wishes = Wishes(memory="1g", cpus=2.0)
    assert (got := launch_of(train, wishes, engine=able)).memory == "1g"
    assert got.cpus == 2.0
    assert unmet(wishes, able) == []
    got = launch_of(train, wishes, engine=unable)
    assert (got.memory, got.cpus) == ("", 0.0)
    assert unmet(wishes, unable) == [
        "memory limit not set: rootless cgroup v1 has no memory controller here",
        "cpu limit not set: rootless cgroup v1 has no cpu controller here",
    ]


def test_a_container_takes_nine_tenths_of_the_memory_at_most(train: PlannedTarget) -> None:
    able = engine("5.0", "memory", memory=10 * 2**30)
    assert launch_of(train, Wishes(), engine=able).memory == "9216m"
    assert launch_of(train, Wishes(memory="0"), engine=able).memory == ""
    assert launch_of(train, Wishes(), engine=engine()).memory == ""
    assert unmet(Wishes(memory="0"), engine()) == unmet(Wishes(), engine()) == []


def test_selinux_is_told_nothing_about_somebodys_folder(train: PlannedTarget, tmp_path: Path) -> None:
    """No `:z`: a label on the folder would outlast the container."""
    confining = engine(selinux=True)
    words = launch_of(train, Wishes(workspace=tmp_path), engine=confining).arguments()
    assert "--security-opt=label=disable" in words
    assert f"--volume={tmp_path}:/workspace" in words
    assert not launch_of(train, Wishes(), engine=confining).unconfined
    assert not launch_of(train, Wishes(workspace=tmp_path), engine=engine()).unconfined


def test_a_podman_that_is_too_old_for_mounts_is_said(train: PlannedTarget, tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="cannot mount a folder as your own user"):
        launch_of(train, Wishes(workspace=tmp_path), engine=engine("4.2.0"))
    assert launch_of(train, Wishes(), engine=engine("4.2.0")).image
    assert launch_of(train, Wishes(workspace=tmp_path), engine=engine("4.9.4-rhel")).mounts


def test_a_path_that_podman_would_cut_is_refused(tmp_path: Path) -> None:
    (odd := tmp_path / "a:b").mkdir()
    with pytest.raises(InputError, match="colon"):
        launch.mount(odd, "/workspace")


def test_the_users_own_podman_needs_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert podman_words("unix:///run/user/7/podman/podman.sock") == ["podman"]
    assert podman_words("unix:///other") == ["podman", "--remote", "--url", "unix:///other"]


def test_tools_that_look_into_others_get_what_they_need(folder: Path) -> None:
    words = launch_of(plan(folder)["diag-tools-cpu"], Wishes()).arguments()
    assert {"--cap-add=SYS_PTRACE", "--cap-add=NET_RAW", "--security-opt=seccomp=unconfined"} <= set(words)
    assert not {one for one in launch_of(plan(folder)["train-cpu"], Wishes()).arguments() if "seccomp" in one}


def test_a_gpu_comes_by_cdi(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = plan(folder)["train-cu128"]
    monkeypatch.setattr(launch, "has_cdi_gpu", lambda: True)
    monkeypatch.setattr(launch, "gpu_obstacles", lambda *_: [])
    assert "--device=nvidia.com/gpu=all" in launch_of(cuda, Wishes()).arguments()
    assert "--device=nvidia.com/gpu=all" not in launch_of(cuda, Wishes(gpu="off")).arguments()
    monkeypatch.setattr(launch, "has_cdi_gpu", lambda: False)
    assert launch_of(cuda, Wishes()).gpu == ()


# --- the commands ---------------------------------------------------------------------------------


def test_a_shell_remembers_and_its_prompt_names_the_target(call: Any, tmp_path: Path) -> None:
    words = shlex.split(call("shell", "--print", "diag-tools-cpu").output)
    assert {"--interactive", "--tty", "--hostname=diag-tools-cpu", f"--volume={tmp_path}:/workspace"} <= set(words)
    assert "--volume=buildkit-history:/home/worker/.history" in words
    assert words[-1] == "bash"
    without = call("shell", "--print", "inference-cpu")
    assert "has no shell" in without.stderr
    assert shlex.split(without.stdout)[-1] == "python3"
    assert "a shell needs a terminal" in str(call("shell", "train-cpu").exception)


@pytest.mark.parametrize("kind", ["notebook", "tensorboard"])
def test_a_printed_server_has_a_token_of_its_own_and_shows_none(call: Any, kind: str) -> None:
    first, second = (call(kind, "--print", "--port", "4711", "train-cpu").output for _ in range(2))
    assert first == second
    assert "--publish=127.0.0.1:4711:4711" in first
    variable = {"notebook": "JUPYTER_TOKEN", "tensorboard": "BUILDKIT_TOKEN"}[kind]
    assert f'export {variable}="$(head -c 24 /dev/urandom' in first
    assert f"--env={variable} " in first


def test_no_token_is_in_a_command(tmp_path: Path) -> None:
    for server in (servers.notebook(Door(1)), servers.tensorboard(Door(1), "runs")):
        (token,) = server.variables.values()
        assert len(token) == 48
        assert token in server.place
        assert not any(token in word for word in server.command)
        assert servers.notebook(Door(1)).variables["JUPYTER_TOKEN"] != token


def test_what_a_stage_does_not_have_is_named_where_it_is(call: Any) -> None:
    for kind, target, hint in (
        ("notebook", "inference-cpu", "train-cpu has"), ("tensorboard", "base-cpu", "train-cpu has"),
        ("ssh", "inference-cpu", "diag-tools-cpu has"),
    ):  # fmt: skip
        error = call(kind, target).exception
        assert isinstance(error, InputError)
        assert hint in error.problems[0].hint


def test_ssh_takes_the_diag_tools_of_the_row(call: Any, tmp_path: Path) -> None:
    (tmp_path / "k.pub").write_text("ssh-ed25519 AAAA me\n")
    printed = call("ssh", "--print", "--key", "k.pub", "train-cpu")
    assert "taking diag-tools-cpu" in printed.stderr
    assert "/diag-tools:" in printed.stdout
    assert f'export BUILDKIT_AUTHORIZED_KEYS="$(cat {tmp_path}/k.pub)"' in printed.stdout
    assert "AAAA" not in printed.stdout


def test_an_inference_image_is_told_what_to_serve(call: Any, tmp_path: Path) -> None:
    refused = call("run", "inference-cpu").exception
    assert "none was given" in str(refused)
    assert "--policy FILE" in refused.problems[0].hint
    (tmp_path / "p.onnx").write_bytes(b"")
    (tmp_path / "x").mkdir()
    words = shlex.split(call("run", "--print", "--policy", "p.onnx", "--exchange", "x", "inference-cpu").output)
    assert {
        KEEP_ID, f"--volume={tmp_path}/p.onnx:/policy/policy.onnx:ro", f"--volume={tmp_path}/x:/run/policy",
        "--network=none", "--read-only", '--health-cmd=["policy-server", "health"]',
    } <= set(words)  # fmt: skip
    assert words[-1].startswith("localhost/drl/inference:")
    alone = call("run", "--print", "--policy", "p.onnx", "inference-cpu").output
    assert "--tmpfs=/run/policy" in alone
    assert "does not serve policies" in str(call("run", "--policy", "p.onnx", "train-cpu").exception)
    assert "--exchange is for" in str(call("run", "--exchange", "x", "inference-cpu").exception)


@pytest.mark.parametrize(
    "options",
    [["--env", "1A=x"], ["--env", "NOT_SET_ANYWHERE"], ["--memory", "much"], ["--volume", "x"], ["--volume", "./no:/x"],
     ["--cpus", "0"], ["--workspace", "nowhere"]],
)  # fmt: skip
def test_options_that_mean_nothing_are_refused(call: Any, options: list[str]) -> None:
    assert call("run", *options, "train-cpu", "--", "true").exit_code == 2


def test_volumes_are_found_from_here(call: Any, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    printed = call("run", "--print", "--volume", "./data:/data:ro", "--volume", "cache:/cache", "train-cpu").output
    assert f"--volume={tmp_path}/data:/data:ro --volume=cache:/cache" in printed


# --- folders, ports, keys -------------------------------------------------------------------------


def test_a_home_and_the_whole_machine_are_no_workspace_by_default(tmp_path: Path) -> None:
    home = tmp_path / "home" / "me"
    (home / "project").mkdir(parents=True)
    for refused in (home, home.parent, Path("/")):
        with pytest.raises(InputError, match="would be the workspace"):
            workspace.default_workspace(refused, home)
    assert workspace.default_workspace(home / "project", home) == home / "project"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as somebody else")
def test_a_folder_that_the_service_cannot_use_is_said_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = pwd.getpwnam("nobody")
    monkeypatch.setattr(workspace, "owner_of", lambda _: nobody)
    folder, file = Path("/tmp") / f"buildkit-test-{os.getpid()}", Path("/etc/hostname")
    folder.mkdir(mode=0o755)
    try:
        with pytest.raises(InputError, match="nobody, whose Podman runs the container, cannot write to") as refused:
            workspace.check_access(folder, "unix:///x")
        assert f"setfacl -m u:nobody:rwx {folder}" in refused.value.problems[0].hint
        workspace.check_access(folder, "unix:///x", write=False)
        workspace.check_access(file, "unix:///x", write=False)
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        workspace.check_access(folder, "unix:///x")
    finally:
        folder.rmdir()
    monkeypatch.setattr(workspace, "owner_of", lambda _: None)
    workspace.check_access(tmp_path, "tcp://elsewhere")


def test_the_usual_port_is_taken_if_it_is_free() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        assert servers.choose_port(None, taken) != taken
        with pytest.raises(InputError, match=f"port {taken} is taken"):
            servers.choose_port(taken, 1)
    assert servers.choose_port(taken, 1) == servers.choose_port(None, taken) == taken


def test_a_private_network_needs_the_tun_device(tmp_path: Path) -> None:
    assert not host.has_tun(tmp_path / "none")
    assert not host.has_tun(tmp_path)
    assert host.has_tun(Path("/dev/null"))  # any device that anyone may use


def test_only_public_keys_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = tmp_path / "id_a", tmp_path / "id_a.pub"
    private.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nx\n")
    public.write_text("ssh-ed25519 AAAA me\n\n")
    assert public_keys([], tmp_path) == ("ssh-ed25519 AAAA me\n", f'"$(cat {public})"')
    with pytest.raises(InputError, match="no public key") as refused:
        public_keys([private], tmp_path)
    assert f"{private}.pub" in refused.value.problems[0].hint
    public.unlink()
    monkeypatch.setenv("SSH_AUTH_SOCK", "/no/such/agent")
    with pytest.raises(InputError, match="no agent has one") as refused:
        public_keys([], tmp_path)
    assert "ssh-keygen" in refused.value.problems[0].hint
