"""The commands around the images: a registry to try things with, the host's health, GitLab, the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from imagebuild.cli.session import Session, json_option, print_json, targets_argument, with_session
from imagebuild.errors import InputError, RegistryError, WorkError

if TYPE_CHECKING:
    from imagebuild.engine.local_registry import LocalRegistry


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
