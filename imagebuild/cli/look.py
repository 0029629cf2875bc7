"""The commands that only look: at the matrix, the plan and the facts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imagebuild.cli.session import (
    Session,
    json_option,
    print_json,
    print_table,
    targets_argument,
    verdict,
    with_session,
)
from imagebuild.errors import EXIT_BAD_INPUT, EXIT_DONE, EXIT_WORK_FAILED, InputError, Problem

if TYPE_CHECKING:
    from imagebuild.plan.plan import PlannedTarget
    from imagebuild.run.decide import Presence


@click.command("list")
@targets_argument()
@click.option("--status", is_flag=True, help="Ask the registry and Podman where each image is.")
@json_option
@with_session
def list_command(session: Session, targets: tuple[str, ...], status: bool, as_json: bool) -> None:
    """Show targets, groups and where each image is.

    \b
    Examples:
      buildkit list
      buildkit list --status 'train-*'
      buildkit list --json cpu
    """
    planned = [session.plan[name] for name in session.select(targets)]
    present = _presences(session, planned) if status else {}
    if as_json:
        groups = {name: session.matrix.selection().select([name]) for name in session.matrix.header.groups}
        print_json({"targets": [_described(one, present.get(one.name)) for one in planned], "groups": groups,
                    "aliases": session.matrix.header.aliases})  # fmt: skip
        return
    head = ["TARGET", "STAGE", "PYTHON", "TORCH", "BASE", "ADDRESS", *(["WHERE"] if status else [])]
    rows = [
        [one.name, one.target.stage, one.target.row.python, f"{one.target.row.torch} {one.target.row.variant}",
         one.target.row.os, one.tag, *([_where(present[one.name])] if status else [])]
        for one in planned
    ]  # fmt: skip
    print_table(rows, head)
    for name, words in session.matrix.header.groups.items():
        click.echo(f"group {name}: {', '.join(words)}")
    for name, target in session.matrix.header.aliases.items():
        click.echo(f"alias {name}: {target}")


def _presences(session: Session, planned: list[PlannedTarget]) -> dict[str, Presence]:
    from imagebuild.run.decide import presences
    from imagebuild.views.console import warn

    return presences(planned, session.registry, session.podman, warn)


def _where(presence: Presence) -> str:
    return "registry" if presence.in_registry else "local" if presence.in_store else "-"


def _described(one: PlannedTarget, presence: Presence | None) -> dict[str, Any]:
    described = {
        "name": one.name, "stage": one.target.stage, "row": one.target.row.model_dump(mode="json"),
        "parents": list(one.target.parents), "digest": one.digest, "repository": one.repository, "address": one.tag,
    }  # fmt: skip
    if presence is not None:
        described |= {"manifest_digest": presence.in_registry, "local_image_id": presence.in_store}
    return described


@click.command("check")
@targets_argument()
@click.option("--strict", is_flag=True, help="What the facts do not know is an error.")
@click.option("--format", "form", type=click.Choice(["text", "json", "codequality", "junit"]), default="text",
              show_default=True, help="codequality is GitLab's.")  # fmt: skip
@json_option
@with_session
def check_command(session: Session, targets: tuple[str, ...], *, strict: bool, form: str, as_json: bool) -> int:
    """Check matrix.yaml: its form, and that each row's versions go together.

    Rows are checked against the facts (`buildkit facts`) and the fleet that site.yaml declares (`drivers:`, `gpus:`).

    \b
    Examples:
      buildkit check
      buildkit check --strict cpu
      buildkit check --format codequality > gl-code-quality-report.json
    """
    from imagebuild.cli.failure import show_problem
    from imagebuild.spec.check import check, errors, once
    from imagebuild.views.problems import as_codequality, as_json_values, as_junit

    form = "json" if as_json else form
    rows = list(dict.fromkeys(session.plan.targets[name].row.name for name in session.select(targets)))
    problems: list[Problem] = []
    try:
        problems = check(session.matrix, session.site, rows=rows, strict=strict)
        session.plan.try_templates(session.select(targets))
    except InputError as error:
        problems += error.problems
    refused = errors(problems if form != "text" else once(problems))
    if form == "text":
        for problem in once(problems):
            show_problem(problem)
        click.echo(verdict(len(rows), len(refused), len(once(problems)) - len(refused)))
    elif form == "junit":
        click.echo(as_junit(rows, problems))
    else:
        print_json(as_json_values(problems) if form == "json" else as_codequality(problems))
    return EXIT_BAD_INPUT if refused else EXIT_DONE


@click.command("graph")
@targets_argument()
@click.option("--dot", is_flag=True, help="Print Graphviz's language.")
@json_option
@with_session
def graph_command(session: Session, targets: tuple[str, ...], dot: bool, as_json: bool) -> None:
    """Show what is built from what.

    \b
    Examples:
      buildkit graph cpu
      buildkit graph --dot | dot -Tsvg > graph.svg
    """
    from imagebuild.plan.targets import with_ancestors

    known = session.plan.targets
    names = with_ancestors(known, session.select(targets))
    edges = {name: list(known[name].parents) for name in names}
    if as_json:
        print_json(edges)
    elif dot:
        lines = [f'  "{parent}" -> "{name}";' for name, parents in edges.items() for parent in parents]
        click.echo("\n".join(["digraph targets {", "  rankdir=LR;", *(f'  "{name}";' for name in names), *lines, "}"]))
    else:
        for name in (name for name in names if not edges[name]):
            _tree(name, edges, "")


def _tree(name: str, edges: dict[str, list[str]], indent: str) -> None:
    """Print a target and, below it, those whose nearest parent it is."""
    also = ", ".join(edges[name][:-1])
    click.echo(f"{indent}{name}{f'  (also from {also})' if also else ''}")
    for child, parents in edges.items():
        if parents and parents[-1] == name:
            _tree(child, edges, indent + "  ")


@click.command("render")
@targets_argument(required=True)
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Write <target>.Containerfile files there instead of printing.")  # fmt: skip
@with_session
def render_command(session: Session, targets: tuple[str, ...], output: Path | None) -> None:
    """Print the Containerfile of targets.

    \b
    Examples:
      buildkit render train-cpu
      buildkit render -o rendered '*-cu118'
    """
    planned = [session.plan[name] for name in session.select(targets)]
    if output is None:
        click.echo("\n".join(one.containerfile for one in planned), nl=False)
        return
    output.mkdir(parents=True, exist_ok=True)
    for one in planned:
        path = output / f"{one.name}.Containerfile"
        path.write_text(one.containerfile, encoding="utf-8")
        click.echo(str(path))


@click.command("explain")
@targets_argument(required=True)
@json_option
@with_session
def explain_command(session: Session, targets: tuple[str, ...], as_json: bool) -> None:
    """Show what decides a target's inputs digest, where it is written, and what changed.

    \b
    Examples:
      buildkit explain train-cpu
      buildkit explain --json inference-cpu
    """
    from imagebuild.run.decide import differences, why

    planned = [session.plan[name] for name in session.select(targets)]
    if as_json:
        print_json([
            {"name": one.name, "digest": one.digest, "parts": one.parts, "values": one.values,
             "changed": differences(one, session.state)}
            for one in planned
        ])  # fmt: skip
        return
    for one in planned:
        last = session.state.last_build(one.name)
        same = last is not None and last.digest == one.digest
        click.echo(f"{one.name}  {one.digest}")
        click.echo(f"  address: {one.repository}:{one.tag}")
        click.echo(f"  since the last build here: {'nothing changed' if same else why(one, session.state)}")
        print_table([[f"  {part.name}", part.value, part.origin] for part in one.parts], ["  PART", "VALUE", "FROM"])
        print_table([[f"  {part.name}", part.value, part.origin] for part in one.values],
                    ["  ROW VALUE", "VALUE", "FROM"])  # fmt: skip


@click.command("facts")
@click.argument("subject", required=False)
@json_option
def facts_command(subject: str | None, *, as_json: bool) -> None:
    """Print the compatibility facts with their sources.

    \b
    Examples:
      buildkit facts
      buildkit facts torch
    """
    from imagebuild.spec.facts_table import SUBJECTS, facts_table
    from imagebuild.spec.strict import closest

    if subject is not None and subject not in SUBJECTS:
        raise InputError(Problem(f"no facts about {subject!r}", hint=closest(subject, SUBJECTS)))
    lines = facts_table(subject)
    if as_json:
        print_json(lines)
    else:
        print_table([[line.subject, line.name, line.text, line.source] for line in lines],
                    ["SUBJECT", "NAME", "FACT", "SOURCE"])  # fmt: skip


@click.command("suggest")
@click.option("--driver", "drivers", multiple=True, help="NVIDIA driver version or branch; may be repeated.")
@click.option("--gpu", "gpus", multiple=True, help="GPU model or compute capability; may be repeated.")
@click.option("--this-host", is_flag=True, help="Take drivers and GPUs from this host.")
@click.option("--python", help="Python, major.minor.")
@click.option("--torch", help="A range, like '>=2.4,<2.8'.")
@click.option("--variant", help="The torch variant, like cu126.")
@click.option("--os", "os_name", help="The operating system of the images, like rockylinux8.")
@json_option
@with_session
def suggest_command(session: Session, *, drivers: tuple[str, ...], gpus: tuple[str, ...], this_host: bool,
                    python: str | None, torch: str | None, variant: str | None, os_name: str | None,
                    as_json: bool) -> int:  # fmt: skip
    """Propose rows that work on given drivers and GPUs, best first, ready to paste into matrix.yaml.

    Without --driver and --gpu: on the fleet that site.yaml declares.

    \b
    Examples:
      buildkit suggest --driver 535 --gpu V100 --python 3.11
      buildkit suggest --this-host --torch '>=2.4'
    """
    from imagebuild.engine.nvidia import this_hosts_gpus
    from imagebuild.spec import suggest as proposals

    if this_host:
        host = this_hosts_gpus()
        drivers, gpus = (*drivers, *host.drivers), (*gpus, *host.gpus)
    elif not drivers and not gpus:
        drivers, gpus = session.site.drivers, session.site.gpus
    found = proposals.suggest(drivers, gpus, python=python, torch=torch, variant=variant, os=os_name)
    if as_json:
        print_json([{"name": one.name, "fields": one.fields, "reasons": one.reasons} for one in found])
    elif found:
        click.echo("\n".join(proposals.as_yaml(one) for one in found))
    else:
        click.echo("no row would work there:", err=True)
        for obstacle in proposals.obstacles(drivers, gpus, python=python, torch=torch, variant=variant):
            click.echo(f"  {obstacle}", err=True)
    return EXIT_DONE if found else EXIT_WORK_FAILED


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of matrix.yaml, for editors.

    \b
    Example:
      buildkit schema > matrix.schema.json
    """
    from imagebuild.spec.schema import matrix_schema

    print_json(matrix_schema())
