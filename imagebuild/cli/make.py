"""The commands that make images: build, smoke, push, and the summary of what there is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from imagebuild.cli.session import Session, json_option, print_json, print_table, targets_argument, with_session
from imagebuild.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_WORK_FAILED

if TYPE_CHECKING:
    from imagebuild.run.decide import Decision
    from imagebuild.run.factory import Options
    from imagebuild.run.schedule import Result

Function = TypeVar("Function", bound=Callable[..., Any])


def work_options(function: Function) -> Function:
    """The options of every command that does work."""
    for option in (
        click.option("-j", "--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Tasks at once."),
        click.option("-v", "--verbose", is_flag=True, help="Show every line of every log."),
        click.option("--dry-run", is_flag=True, help="Say what would be done, and why; do nothing."),
        click.option("--unlocked", is_flag=True, help="Leave the locks aside: take what matrix.yaml pins."),
        json_option,
    ):
        function = option(function)
    return function


_NOT_LOCKED = "built without locks: what matrix.yaml does not pin is whatever is newest now (`buildkit lock` pins it)"

gpu_option = click.option(
    "--gpu", type=click.Choice(["auto", "require", "off"]), default=None,
    help="GPU checks on CUDA rows: where there is a GPU, always, or never. Default: `gpu:` in site.yaml, or auto.",
)  # fmt: skip


@click.command("build")
@targets_argument(required=True)
@click.option("--smoke", is_flag=True, help="Smoke-test what was built or asked for.")
@click.option("--push", is_flag=True, help="Push it, once its smoke checks passed.")
@gpu_option
@click.option("--no-cache", is_flag=True, help="Use no layer of an earlier build.")
@click.option("--rebuild", is_flag=True, help="Build the targets even if their image exists.")
@work_options
@with_session
def build_command(
    session: Session,
    targets: tuple[str, ...],
    *,
    smoke: bool,
    push: bool,
    gpu: str | None,
    no_cache: bool,
    rebuild: bool,
    jobs: int,
    verbose: bool,
    dry_run: bool,
    unlocked: bool,
    as_json: bool,
) -> int:
    """Build targets and what they are built from.

    Nothing is built whose inputs digest is already in the registry or in Podman's store.

    \b
    Examples:
      buildkit build train-cpu
      buildkit build --dry-run '*-cu118'
      buildkit build --smoke --push --gpu require train-cu128
    """
    from imagebuild.run.factory import Options

    options = Options(smoke=smoke, push=push, gpu=gpu or session.site.gpu, cache=not no_cache,
                      rebuild=rebuild or no_cache, jobs=jobs)  # fmt: skip
    return _work(session, targets, options, verbose=verbose, dry_run=dry_run, unlocked=unlocked, as_json=as_json)


@click.command("smoke")
@targets_argument(required=True)
@gpu_option
@click.option("--again", is_flag=True, help="Run the checks even if this very image passed them.")
@click.option("--list", "only_list", is_flag=True, help="Print the checks that would run, and where each is from.")
@work_options
@with_session
def smoke_command(
    session: Session,
    targets: tuple[str, ...],
    *,
    gpu: str | None,
    again: bool,
    only_list: bool,
    jobs: int,
    verbose: bool,
    dry_run: bool,
    unlocked: bool,
    as_json: bool,
) -> int:
    """Run the smoke checks inside built images.

    The checks are the scripts in images/<stage>/smoke/, and in the site's own folder (`checks:` in site.yaml). Each is
    one case of the JUnit report in .buildkit/reports/.

    \b
    Examples:
      buildkit smoke train-cpu
      buildkit smoke --list train-cpu
      buildkit smoke --gpu require --again 'train-cu*'
    """
    from imagebuild.run.factory import Options

    if only_list:
        _list_checks(session, targets, as_json=as_json)
        return EXIT_DONE
    options = Options(build=False, smoke=True, gpu=gpu or session.site.gpu, rebuild=again, jobs=jobs)
    return _work(session, targets, options, verbose=verbose, dry_run=dry_run, unlocked=unlocked, as_json=as_json)


def _list_checks(session: Session, words: Sequence[str], *, as_json: bool) -> None:
    """The checks of targets, in the order in which they run."""
    from imagebuild.run.smoke import Suite

    lines = []
    for name in session.select(words):
        target, folder = session.plan.targets[name], session.folder
        suite = Suite.load(folder, target.stage, session.site.checks_folder(folder))
        for check in suite.checks(target.row):
            path = suite.origins[check]
            place = path.relative_to(folder) if path.is_relative_to(folder) else path
            lines.append({"target": name, "check": check.removesuffix(".py"), "from": str(place)})
    if as_json:
        print_json(lines)
    else:
        print_table([tuple(line.values()) for line in lines], ("TARGET", "CHECK", "FROM"))


@click.command("push")
@targets_argument(required=True)
@work_options
@with_session
def push_command(
    session: Session, targets: tuple[str, ...], *, jobs: int, verbose: bool, dry_run: bool, unlocked: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Push images, their tags and their smoke results.

    The digest is read back from the registry and compared. Only what passed its smoke checks can be promoted.

    \b
    Example:
      buildkit push train-cpu inference-cpu
    """
    from imagebuild.run.factory import Options

    return _work(session, targets, Options(build=False, push=True, jobs=jobs),
                 verbose=verbose, dry_run=dry_run, unlocked=unlocked, as_json=as_json)  # fmt: skip


def _work(session: Session, words: Sequence[str], options: Options, *, verbose: bool, dry_run: bool,
          unlocked: bool, as_json: bool) -> int:  # fmt: skip
    """Decide, show or carry out, and sum up."""
    from imagebuild.events import Event, Kind
    from imagebuild.run.schedule import Interrupted
    from imagebuild.views import console

    session.use_locks = not unlocked
    wanted = session.select(words)
    refuse_what_is_not_locked(session, wanted)
    if options.push and not dry_run:
        session.registry.ping()  # a registry that is down is better known before the work than after it
    with console.progress(verbose=verbose) as emit:
        if not session.plan.locks.used:
            emit(Event(Kind.WARNING, message=_NOT_LOCKED))
        factory = session.factory(emit)
        decisions = factory.decide(wanted, options)
        refuse_what_cannot_work(session, [one.planned.name for one in decisions if one.action == "build"])
        if dry_run:
            _show_decisions(decisions, as_json=as_json)
            return EXIT_DONE
        try:
            results, interrupted = factory.run(decisions, wanted, options), False
        except Interrupted as stopped:
            results, interrupted = dict(stopped.results), True
    _report(session, results)
    _sum_up(results, as_json=as_json)
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_WORK_FAILED if any(not _good(result) for result in results.values()) else EXIT_DONE


def refuse_what_cannot_work(session: Session, targets: Iterable[str]) -> None:
    """Start no build of a target whose row `buildkit check` refuses. With nothing to build, no fact is loaded."""
    rows = dict.fromkeys(session.plan.targets[name].row.name for name in targets)
    if not rows:
        return
    from imagebuild.errors import InputError
    from imagebuild.spec.check import check, errors, once

    if refused := errors(once(check(session.matrix, session.site, rows=rows))):
        raise InputError(refused)


def refuse_what_is_not_locked(session: Session, wanted: Sequence[str]) -> None:
    """In a project with locks, work on no row without one that fits: it would not be what the lock says."""
    from imagebuild.errors import InputError

    locks = session.plan.locks
    rows = dict.fromkeys(session.plan.targets[name].row.name for name in wanted)
    if refused := locks.problems(rows) if locks.used else []:
        raise InputError(refused)


def _good(result: Result) -> bool:
    return result.status.lets_children_run


def _show_decisions(decisions: Sequence[Decision], *, as_json: bool) -> None:
    if as_json:
        print_json([
            {"target": one.planned.name, "action": str(one.action), "reason": one.reason, "address": one.planned.tag}
            for one in decisions
        ])  # fmt: skip
        return
    for one in decisions:
        click.echo(f"{one.planned.name:<16} {one.action:<8} {one.reason}")


def _report(session: Session, results: Mapping[str, Result]) -> None:
    """Write a JUnit file for each target that was smoke-tested, now or before."""
    from imagebuild.run.results import SmokeResults
    from imagebuild.views.report import junit

    kept = SmokeResults(session.state, session.registry)
    for key, result in results.items():
        task, _, target = key.partition(":")
        image_id = str(result.data.get("image_id", ""))
        if task == "smoke" and image_id and (report := kept.local(image_id)):
            session.state.write(("reports", f"{target}.xml"), junit(report))


def _sum_up(results: Mapping[str, Result], *, as_json: bool) -> None:
    """Count each target's tasks once, and say again what failed: the end of the output is what people read."""
    if as_json:
        print_json([
            {"task": key.partition(":")[0], "target": key.partition(":")[2], "status": str(result.status),
             "message": result.message, "seconds": round(result.seconds, 3), **result.data}
            for key, result in results.items()
        ])  # fmt: skip
    counts: dict[str, int] = {}
    for result in results.values():
        counts[str(result.status)] = counts.get(str(result.status), 0) + 1
    failed = [(key, result) for key, result in results.items() if result.status == "failed"]
    for key, result in failed:
        task, _, target = key.partition(":")
        click.echo(f"\n{click.style(f'{task} {target} failed', fg='red', bold=True)}: {result.message}", err=True)
        if hint := result.data.get("hint"):
            click.echo(f"  hint: {hint}", err=True)
    click.echo(", ".join(f"{count} {status}" for status, count in counts.items()), err=True)
    sys.stderr.flush()


@click.command("summary")
@targets_argument()
@json_option
@with_session
def summary_command(session: Session, targets: tuple[str, ...], as_json: bool) -> None:
    """Show size, times, smoke results, tags and digest of targets.

    \b
    Example:
      buildkit summary cpu
    """
    from imagebuild.views.summary import show, summarise

    lines = summarise([session.plan[name] for name in session.select(targets)], session.registry, session.state)
    if as_json:
        print_json(lines)
    else:
        show(lines, session.site.registry)
