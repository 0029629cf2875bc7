"""The commands around the images: run them, a registry to try things with, the host's health, GitLab, the shell."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from imagebuild.cli.session import Session, complete_targets, json_option, print_json, targets_argument, with_session
from imagebuild.errors import InputError, RegistryError, WorkError

if TYPE_CHECKING:
    from imagebuild.engine.local_registry import LocalRegistry
    from imagebuild.plan.plan import PlannedTarget


@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--print", "only_print", is_flag=True, help="Print the podman command line instead of running it.")
@click.option("--gpu", type=click.Choice(["auto", "require", "off"]), default=None, help="Give it the GPUs (by CDI).")
@click.option("--workspace", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
              help="A folder to mount at /workspace.")  # fmt: skip
@click.argument("target", shell_complete=complete_targets)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@with_session
def run_command(session: Session, target: str, command: tuple[str, ...], *, only_print: bool, gpu: str | None,
                workspace: Path | None) -> int:  # fmt: skip
    """Run a command in a container of a target, with what its row promises: /dev/shm, GPUs, your own user.

    \b
    Examples:
      buildkit run train-cpu -- python -c 'import torch; print(torch.__version__)'
      buildkit run --workspace . train-cu128 -- python train.py
      buildkit run --print train-cpu -- bash
    """
    from imagebuild.cli.release import one_target
    from imagebuild.engine.service import find_socket
    from imagebuild.run.launch import command_line

    planned = one_target(session, target)
    words = command[1:] if command[:1] == ("--",) else command
    arguments = command_line(
        find_socket(session.site.podman), planned, words, gpu=gpu or session.site.gpu, workspace=workspace,
        interactive=sys.stdin.isatty() and sys.stdout.isatty(),
    )  # fmt: skip
    if only_print:
        click.echo(shlex.join(arguments))
        return 0
    _have_image(session, planned)
    sys.stdout.flush()
    try:
        os.execvp(arguments[0], arguments)
    except OSError as error:
        raise WorkError(f"cannot run {arguments[0]}: {error.strerror}", hint="run scripts/setup") from None


def _have_image(session: Session, planned: PlannedTarget) -> None:
    """The image in Podman's store, pulled from the registry where it is only there."""
    from imagebuild.run.decide import address
    from imagebuild.run.ship import pull

    podman = session.podman()
    if podman.image(planned.local_name):
        return
    reference = address(planned, session.registry.host)
    try:
        found = session.registry.head(reference)
    except RegistryError:
        found = None
    if found is None:
        raise WorkError(f"{planned.name} is not built yet", hint=f"buildkit build {planned.name}")
    pull(podman, session.registry, reference, planned.local_name)


@click.group("registry")
def registry_command() -> None:
    """Start or stop a registry on this machine.

    It is for trying things out: on loopback only, without login, its data in .buildkit/registry.

    \b
    Examples:
      buildkit registry up
      buildkit registry down
    """


@registry_command.command("up")
@with_session
def registry_up(session: Session) -> None:
    """Start the registry, unless one answers already."""
    if (registry := _local(session)) is None:
        click.echo(f"registry {session.site.registry} is not on this machine: nothing to start")
        return
    started = registry.up(lambda: _answers(session))
    click.echo(f"registry {registry.address} {'started' if started else 'is up already'}")


@registry_command.command("down")
@with_session
def registry_down(session: Session) -> None:
    """Stop the registry that `registry up` started."""
    if (registry := _local(session)) is None:
        click.echo(f"registry {session.site.registry} is not on this machine: nothing to stop")
        return
    click.echo(f"registry {registry.address} {'stopped' if registry.down() else 'was not started from this folder'}")


def _local(session: Session) -> LocalRegistry | None:
    """The registry of this machine, if the site's registry is one."""
    from imagebuild.engine.auth import is_loopback
    from imagebuild.engine.local_registry import LocalRegistry

    if not is_loopback(session.site.registry):
        return None
    return LocalRegistry(session.site.registry, session.state.folder / "registry")


def _answers(session: Session) -> bool:
    try:
        session.registry.ping()
    except RegistryError:
        return False
    return True


@click.command("doctor")
@json_option
@with_session
def doctor_command(session: Session, *, as_json: bool) -> int:
    """Say what this host lacks, and how to mend it.

    \b
    Example:
      buildkit doctor
    """
    from imagebuild.views.doctor import examine

    try:
        rows = tuple(session.matrix.rows.values())
    except InputError:  # `buildkit check` says what is wrong with it
        rows = ()
    findings = examine(session.site, session.podman, session.registry, rows)
    if as_json:
        print_json(findings)
    for finding in () if as_json else findings:
        colour = {"ok": "green", "missing": "red"}.get(finding.state, "yellow")
        click.echo(f"{click.style(f'{finding.state:<8}', fg=colour)} {finding.name}: {finding.detail}")
        if finding.remedy:
            click.echo(f"         {finding.remedy}")
    return 1 if any(finding.state == "missing" for finding in findings) else 0


@click.group("ci")
def ci_command() -> None:
    """Generate the GitLab child pipeline.

    \b
    Example:
      buildkit ci generate > child-pipeline.yml
    """


@ci_command.command("generate")
@targets_argument()
@click.option("--gpu-tag", "gpu_tags", multiple=True, help="Runner tag of machines with a GPU; may be repeated.")
@with_session
def ci_generate(session: Session, targets: tuple[str, ...], *, gpu_tags: tuple[str, ...]) -> None:
    """Print one job a target, each waiting for its parents' jobs.

    Without TARGETS: all of them.

    \b
    Example:
      buildkit ci generate --gpu-tag gpu cpu '*-cu128' > child-pipeline.yml
    """
    from imagebuild.views.gitlab import TargetView, child_pipeline

    known = session.plan.targets
    views = [
        TargetView(name, known[name].stage, known[name].row.name, known[name].parents, known[name].row.is_cuda)
        for name in session.select(targets)
    ]
    click.echo(child_pipeline(views, gpu_tags=gpu_tags, project=session.matrix.header.project), nl=False)


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print the shell's completion script.

    \b
    Example:
      eval "$(buildkit completion bash)"
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root()
    kind = get_completion_class(shell)
    if kind is None:
        raise WorkError(f"no completion for {shell}")
    click.echo(kind(root.command, {}, "buildkit", "_BUILDKIT_COMPLETE").source())
