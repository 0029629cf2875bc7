"""What the commands that start a container share: what can be asked for, and how it is started."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from imagebuild.cli.session import Session, complete_targets
from imagebuild.errors import EngineError, RegistryError, WorkError

if TYPE_CHECKING:
    from imagebuild.engine.podman import EngineInfo
    from imagebuild.plan.plan import PlannedTarget
    from imagebuild.run.launch import Launch, Wishes

Function = TypeVar("Function", bound=Callable[..., Any])

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(=.*)?", re.DOTALL)
_SIZE = re.compile(r"\d+[bkmg]?")


def _variables(_ctx: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    for one in given:
        if not _VARIABLE.fullmatch(one):
            raise click.BadParameter(f"{one!r} is not KEY or KEY=VALUE")
        if "=" not in one and one not in os.environ:
            raise click.BadParameter(f"{one} is not set here: export it, or give a value, {one}=...")
    return given


def _volumes(_ctx: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Podman's volumes; the service resolves no paths, so that is done here."""
    volumes = []
    for one in given:
        source, _, rest = one.partition(":")
        if not source or not rest.startswith("/"):
            raise click.BadParameter(f"{one!r} is not SOURCE:/PATH/IN/THE/CONTAINER[:OPTIONS]")
        path = Path(source).expanduser()
        if source[0] not in "./~":
            volumes.append(one)  # a named volume
        elif path.exists():
            volumes.append(f"{path.resolve()}:{rest}")
        else:
            raise click.BadParameter(f"there is no {source}")
    return tuple(volumes)


def _size(_ctx: click.Context, _parameter: click.Parameter, given: str) -> str:
    if given and not _SIZE.fullmatch(given.lower()):
        raise click.BadParameter(f"{given!r} is not a size, like 16g or 500m")
    return given.lower()


existing_folder = click.Path(exists=True, file_okay=False, path_type=Path)


def container_options(function: Function) -> Function:
    """What can be asked for of every container."""
    for option in reversed((
        click.option("--gpu", type=click.Choice(["auto", "require", "off"]), default=None,
                     help="Give it the GPUs, by CDI: where there are some, or else fail, or never."),
        click.option("--workspace", type=existing_folder, metavar="DIR", help="The folder to mount at /workspace."),
        click.option("--volume", "volumes", multiple=True, callback=_volumes, metavar="SOURCE:PATH",
                     help="One more folder to mount, as podman takes it; may be repeated."),
        click.option("--env", "environment", multiple=True, callback=_variables, metavar="KEY[=VALUE]",
                     help="A variable; without VALUE (so that no list of processes shows it) passed on from here."),
        click.option("--memory", default="", callback=_size, metavar="SIZE",
                     help="Most memory, like 16g; 0: no limit. Default: nine tenths of the machine's."),
        click.option("--cpus", type=click.FloatRange(0.01), metavar="N", help="Most processors."),
        click.option("--name", default="", help="The container's name."),
        click.option("--print", "only_print", is_flag=True, help="Print the command line instead of running it."),
    )):  # fmt: skip
        function = option(function)
    return function


target_argument = click.argument("target", shell_complete=complete_targets)


def wishes_of(session: Session, options: dict[str, Any], *, default: bool) -> Wishes:
    """The options of `container_options`; the current folder is the workspace where one is due."""
    from imagebuild.engine.service import find_socket
    from imagebuild.run.launch import Wishes
    from imagebuild.run.workspace import check_access, default_workspace

    folder = options["workspace"] or (default_workspace(Path.cwd(), Path.home()) if default else None)
    if folder is not None:
        check_access(folder, find_socket(session.site.podman))
    return Wishes(
        gpu=options["gpu"] or session.site.gpu, workspace=folder, volumes=options["volumes"],
        environment=options["environment"], memory=options["memory"], cpus=options["cpus"] or 0.0, name=options["name"],
    )  # fmt: skip


def planned_of(session: Session, target: str) -> PlannedTarget:
    """The one target that is named."""
    from imagebuild.cli.release import one_target

    return one_target(session, target)


def _engine(session: Session, *, only_print: bool) -> EngineInfo | None:
    """What the service's machine can do; None where none answers and only a command line is wanted."""
    try:
        return session.podman().info
    except EngineError:
        if only_print:
            return None
        raise


def launch_as(session: Session, planned: PlannedTarget, wishes: Wishes, command: Sequence[str], *, only_print: bool,
            interactive: bool = True) -> Launch:  # fmt: skip
    """What the container gets. A limit that cannot be set here is said, and left out."""
    from imagebuild.engine.service import find_socket
    from imagebuild.run.launch import launch_of, unmet

    engine = _engine(session, only_print=only_print)
    for limit in unmet(wishes, engine) if engine else ():
        click.echo(f"warning: {limit}", err=True)
    at_terminal = interactive and sys.stdin.isatty() and sys.stdout.isatty()
    service = find_socket(session.site.podman)
    return launch_of(planned, wishes, command, interactive=at_terminal, engine=engine, service=service)


def become(session: Session, planned: PlannedTarget, launch: Launch, *, only_print: bool) -> None:
    """Become podman: its exit code is the command's, and Ctrl-C reaches it."""
    from imagebuild.engine.service import find_socket
    from imagebuild.run.launch import podman_words

    arguments = [*podman_words(find_socket(session.site.podman)), *launch.arguments()]
    if only_print:
        click.echo(shlex.join(arguments))
        return
    have_image(session, planned)
    sys.stdout.flush()
    try:
        os.execvp(arguments[0], arguments)
    except OSError as error:
        raise WorkError(f"cannot run {arguments[0]}: {error.strerror}", hint="run scripts/setup") from None


def have_image(session: Session, planned: PlannedTarget) -> None:
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
