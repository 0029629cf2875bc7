"""The commands that run something in a container: run and shell."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imagebuild.cli.containers import (
    become,
    container_options,
    existing_folder,
    launch_as,
    planned_of,
    target_argument,
    wishes_of,
)
from imagebuild.cli.session import Session, with_session
from imagebuild.errors import InputError, Problem

if TYPE_CHECKING:
    from imagebuild.plan.plan import PlannedTarget
    from imagebuild.run.launch import Launch


@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--policy", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="The policy.onnx that an inference image is to serve.")  # fmt: skip
@click.option("--exchange", type=existing_folder, metavar="DIR",
              help="The folder where the policy's server and its clients meet, best below /dev/shm.")  # fmt: skip
@click.option("--detach", is_flag=True, help="Leave it running, and print its ID.")
@container_options
@target_argument
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@with_session
def run_command(
    session: Session, target: str, command: tuple[str, ...], *, policy: Path | None, exchange: Path | None,
    detach: bool, **options: Any,
) -> None:  # fmt: skip
    """Run a command in a container of a target, with what its row promises: /dev/shm, GPUs, your own user.

    The exit code is the command's. A VALUE given with --env is in the list of processes, a KEY alone is not.
    An inference image serves a policy: without network, on a root filesystem that nobody can write to.

    \b
    Examples:
      buildkit run train-cpu -- python -c 'import torch; print(torch.__version__)'
      buildkit run --workspace . train-cu128 -- python train.py
      buildkit run --policy policy.onnx --exchange /dev/shm/robot inference-cpu
      buildkit run --print train-cpu -- bash
    """
    planned = planned_of(session, target)
    words = command[1:] if command[:1] == ("--",) else command
    _check_policy(planned, policy=policy is not None, exchange=exchange is not None, command=bool(words))
    wishes, only_print = wishes_of(session, options, default=False), options["only_print"]
    launch = launch_as(session, planned, wishes, words, only_print=only_print, interactive=not detach)
    if policy is not None:
        launch = _serving(session, launch, policy, exchange)
    become(session, planned, replace(launch, detach=detach), only_print=only_print)


@click.command("shell")
@container_options
@target_argument
@with_session
def shell_command(session: Session, target: str, **options: Any) -> None:
    """Open a shell in a container of a target, in the current folder (or --workspace).

    What you type is remembered from shell to shell, in Podman's volume buildkit-history.

    \b
    Examples:
      buildkit shell train-cpu
      buildkit shell --workspace ~/project --memory 16g diag-tools-cu128
    """
    planned, wishes = planned_of(session, target), wishes_of(session, options, default=True)
    if not (options["only_print"] or (sys.stdin.isatty() and sys.stdout.isatty())):
        raise InputError(Problem("a shell needs a terminal", hint=f"buildkit run {planned.name} -- sh -c '...'"))
    if planned.target.stage == "inference":
        click.echo(f"{planned.name} has no shell, only what a policy needs: this is python3", err=True)
        launch = launch_as(session, planned, wishes, ["python3"], only_print=options["only_print"])
    else:
        remembering = replace(
            wishes, volumes=(*wishes.volumes, "buildkit-history:/home/worker/.history"),
            environment=(*wishes.environment, "HISTFILE=/home/worker/.history/bash", "PROMPT_COMMAND=history -a"),
        )  # fmt: skip
        launch = launch_as(session, planned, remembering, ["bash"], only_print=options["only_print"])
    # The prompt names the host.
    launch = replace(launch, hostname=planned.name, interactive=True)
    become(session, planned, launch, only_print=options["only_print"])


def _check_policy(planned: PlannedTarget, *, policy: bool, exchange: bool, command: bool) -> None:
    """See that what is asked for goes together. Raises `InputError` otherwise."""
    if exchange and not policy:
        raise InputError(Problem("--exchange is for serving a policy", hint="add --policy FILE, or use --volume"))
    if planned.target.stage != "inference":
        if policy:
            hint = f"inference-{planned.target.row.name} does"
            raise InputError(Problem(f"{planned.name} does not serve policies", hint=hint))
    elif not (policy or command):
        hint = "add --policy FILE (the train image's example exports one), or a command: -- python3"
        raise InputError(Problem(f"{planned.name} serves a policy, and none was given", hint=hint))


def _serving(session: Session, launch: Launch, policy: Path, exchange: Path | None) -> Launch:
    """An inference container that serves a policy: no network, and nothing to write to but where clients meet it."""
    from imagebuild.engine.service import find_socket
    from imagebuild.run.launch import mount
    from imagebuild.run.workspace import check_access

    service = find_socket(session.site.podman)
    check_access(policy, service, write=False)
    mounts = [*launch.mounts, mount(policy, "/policy/policy.onnx", read_only=True)]
    if exchange is not None:
        check_access(exchange, service)
        mounts.append(mount(exchange, "/run/policy"))
    return replace(
        launch, mounts=tuple(mounts), tmpfs=() if exchange else ("/run/policy",), sealed=True, network="none",
        health=("policy-server", "health"),
    )  # fmt: skip
