"""The commands that serve something from a container: notebook, tensorboard, ssh."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from imagebuild.cli.containers import (
    container_options,
    have_image,
    launch_as,
    planned_of,
    target_argument,
    wishes_of,
)
from imagebuild.cli.session import Session, with_session
from imagebuild.errors import InputError, Problem

if TYPE_CHECKING:
    from imagebuild.plan.plan import PlannedTarget
    from imagebuild.run.launch import Door, Launch
    from imagebuild.run.live import Live
    from imagebuild.run.servers import Server

Function = TypeVar("Function", bound=Callable[..., Any])


def server_options(function: Function) -> Function:
    """What can be asked for of a server besides."""
    for option in (
        click.option("--detach", is_flag=True, help="Leave it running; `podman rm -f NAME` ends it."),
        click.option("--port", type=click.IntRange(1024, 65535), help="Its port on 127.0.0.1. Default: a free one."),
    ):
        function = option(function)
    return container_options(function)


@click.command("notebook")
@server_options
@target_argument
@with_session
def notebook_command(session: Session, target: str, **options: Any) -> int:
    """Serve JupyterLab from a train container, on loopback and behind a token, until Ctrl-C.

    It sees the current folder (or --workspace). The address with its token is for the terminal: where standard output
    is none, it is in a file that only you can read.

    \b
    Examples:
      buildkit notebook train-cpu
      buildkit notebook --workspace ~/project --port 8888 train-cu128
    """
    from imagebuild.run import servers

    planned = _stage_with(session, target, "JupyterLab", ("train", "diag-tools"))
    return _serve(session, planned, servers.notebook(_door(options, 8888)), "notebook", options)


@click.command("tensorboard")
@click.option("--logdir", default="/workspace/runs", show_default=True, metavar="DIR",
              help="The folder of the runs, as the container sees it; a relative one is in /workspace.")  # fmt: skip
@server_options
@target_argument
@with_session
def tensorboard_command(session: Session, target: str, *, logdir: str, **options: Any) -> int:
    """Serve TensorBoard from a train container, on loopback and below a secret path, until Ctrl-C.

    TensorBoard knows no login: whoever does not know the path gets 404.

    \b
    Examples:
      buildkit tensorboard train-cpu
      buildkit tensorboard --workspace ~/project --logdir logs train-cu128
    """
    from imagebuild.run import servers

    planned = _stage_with(session, target, "TensorBoard", ("train", "diag-tools"))
    return _serve(session, planned, servers.tensorboard(_door(options, 6006), logdir), "tensorboard", options)


@click.command("ssh")
@click.option("--key", "keys", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
              metavar="FILE", help="A public key that may log in. Default: ~/.ssh/id_*.pub or the agent's")  # fmt: skip
@click.option("--config", is_flag=True, help="Print a stanza for ~/.ssh/config: VS Code and PyCharm read it.")
@server_options
@target_argument
@with_session
def ssh_command(session: Session, target: str, *, keys: tuple[Path, ...], config: bool, **options: Any) -> int:
    """Serve SSH from a diag-tools container, for editors that work over it, until Ctrl-C.

    On loopback only, for public keys only, and as the user `worker`. The host key is a new one each time; what it is
    comes from the container itself, so that the first login trusts nobody blindly.

    \b
    Examples:
      buildkit ssh diag-tools-cu128
      buildkit ssh --detach --config diag-tools-cpu >> ~/.ssh/config
    """
    from imagebuild.run import servers
    from imagebuild.run.keys import public_keys

    planned = _diag_tools(session, planned_of(session, target))
    door, (text, in_shell) = _door(options, 2222), public_keys(keys, Path.home() / ".ssh")
    return _serve(session, planned, servers.ssh(door, text, in_shell), "ssh", options, config=config)


def _stage_with(session: Session, target: str, what: str, stages: Sequence[str]) -> PlannedTarget:
    planned = planned_of(session, target)
    if planned.target.stage not in stages:
        row = planned.target.row.name
        raise InputError(Problem(f"{planned.name} has no {what}", hint=f"{stages[0]}-{row} has"))
    return planned


def _diag_tools(session: Session, planned: PlannedTarget) -> PlannedTarget:
    """The row's diag-tools, where train is meant: it is train and the SSH server."""
    name = f"diag-tools-{planned.target.row.name}"
    if planned.target.stage == "diag-tools":
        return planned
    if planned.target.stage != "train" or name not in session.plan.targets:
        hint = f"{name} has" if name in session.plan.targets else "the row's diag-tools would have: see its `stages:`"
        raise InputError(Problem(f"{planned.name} has no SSH server", hint=hint))
    click.echo(f"{planned.name} has no SSH server: taking {name}, which is the same and has one", err=True)
    return session.plan[name]


def _door(options: dict[str, Any], usual: int) -> Door:
    from imagebuild.engine.host import has_tun
    from imagebuild.run.launch import Door
    from imagebuild.run.servers import choose_port

    return Door(choose_port(options["port"], usual), own_network=has_tun())


def _serve(session: Session, planned: PlannedTarget, server: Server, kind: str, options: dict[str, Any],
           *, config: bool = False) -> int:  # fmt: skip
    """Serve until Ctrl-C, or until the server ends; or leave it running. The exit code is 0 for the former."""
    from imagebuild.engine.service import find_socket
    from imagebuild.run.launch import podman_words
    from imagebuild.run.live import live

    wishes = wishes_of(session, options, default=True)
    wishes = replace(wishes, name=wishes.name or f"buildkit-{kind}-{planned.name}-{server.door.port}",
                     environment=("SHELL=/bin/bash", *wishes.environment, *server.variables))  # fmt: skip
    launch = launch_as(session, planned, wishes, server.command, only_print=options["only_print"], interactive=False)
    launch = replace(launch, door=server.door, hostname=planned.name, detach=options["detach"])
    podman = podman_words(find_socket(session.site.podman))
    if options["only_print"]:
        _print(podman, launch, server)
        return 0
    have_image(session, planned)
    note = session.state.path("live", launch.name)
    ready = False
    try:
        with live(podman, launch, server) as container:
            ready = True
            click.echo(_login(container, server, note, config=config) if server.host_key else _address(server, note))
            ends = f"`podman rm -f {launch.name}`" if launch.detach else "Ctrl-C"
            click.echo(f"{kind} is ready in {launch.name}; {ends} ends it", err=True)
            return 0 if launch.detach else container.wait()
    except KeyboardInterrupt:
        if not ready:
            raise
        click.echo(f"{launch.name} stopped", err=True)
        return 0
    finally:
        if ready and not launch.detach:
            note.unlink(missing_ok=True)


def _print(podman: Sequence[str], launch: Launch, server: Server) -> None:
    """The lines for a shell that do the same; they make a new token, and hold none."""
    for name, value in server.assignments.items():
        click.echo(f"export {name}={value}")
    click.echo(f'echo "{server.place_in_shell}"')
    click.echo(shlex.join([*podman, *launch.arguments()]))


def _address(server: Server, note: Path) -> str:
    """The address, for a terminal. Standard output that is none may be anybody's log: a file of one's own then."""
    if sys.stdout.isatty():
        return server.place
    note.unlink(missing_ok=True)
    with open(note, "x", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(server.place + "\n")
    return f"the address and its token are in {note}"


def _login(container: Live, server: Server, known_hosts: Path, *, config: bool) -> str:
    """How to log in, and to whom: the host key is the one that the container itself shows."""
    key, port = container.output_of("cat", server.host_key).strip(), server.door.port
    known_hosts.write_text(f"[127.0.0.1]:{port} {key}\n", encoding="utf-8")
    if not config:
        return shlex.join(["ssh", "-p", str(port), "-o", f"UserKnownHostsFile={known_hosts}", "worker@127.0.0.1"])
    lines = ("HostName 127.0.0.1", f"Port {port}", "User worker", f'UserKnownHostsFile "{known_hosts}"',
             "StrictHostKeyChecking yes")  # fmt: skip
    return "\n  ".join((f"Host {known_hosts.name}", *lines))
