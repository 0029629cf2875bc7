#!/usr/bin/env python3
"""The command line: parse, call, print, exit. Each command's module is loaded when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

# name -> (module, what `buildkit --help` says), in the order of the help. A test compares it with the commands.
COMMANDS = {
    "list": ("look", "Show targets, groups and where each image is."),
    "check": ("look", "Check matrix.yaml: its form, and that each row's versions go together."),
    "graph": ("look", "Show what is built from what."),
    "render": ("look", "Print the Containerfile of targets."),
    "explain": ("look", "Show what decides a target's inputs digest, where it is written, and what changed."),
    "facts": ("look", "Print the compatibility facts with their sources."),
    "suggest": ("look", "Propose rows that work on given drivers and GPUs."),
    "schema": ("look", "Print the JSON Schema of matrix.yaml, for editors."),
    "lock": ("lock", "Pin images by digest and Python packages by hash, in locks/."),
    "build": ("make", "Build targets and what they are built from."),
    "smoke": ("make", "Run the smoke checks inside built images."),
    "push": ("make", "Push images, their tags and their smoke results."),
    "summary": ("make", "Show size, times, smoke results, tags and digest of targets."),
    "reproduce": ("compare", "Build targets twice from nothing and compare the images, bit for bit."),
    "diff": ("compare", "Show which packages changed between two images of a target, of the system and of Python."),
    "size": ("size", "Show where an image's bytes are, by layer and package, and against the last release."),
    "promote": ("release", "Point a channel at a tested image."),
    "rollback": ("release", "Point a channel at an earlier release again."),
    "history": ("release", "Show who promoted what, when, and from where."),
    "run": ("live", "Run a command in a container of a target, with what its row promises."),
    "shell": ("live", "Open a shell in a container of a target."),
    "notebook": ("serve", "Serve JupyterLab from a train container, on loopback and behind a token."),
    "tensorboard": ("serve", "Serve TensorBoard from a train container, on loopback and below a secret path."),
    "ssh": ("serve", "Serve SSH from a diag-tools container, for editors that work over it."),
    "diagnose": ("diagnose", "Say what a container gets of this machine, and why its GPU is not used."),
    "registry": ("use", "Start or stop a registry on this machine."),
    "doctor": ("use", "Say what this host lacks, and how to mend it."),
    "ci": ("use", "Generate the GitLab child pipeline."),
    "completion": ("use", "Print the shell's completion script."),
}

EPILOG = """\b
Examples:
  buildkit check                         is the matrix right?
  buildkit build train-cu118             build one target and its parents
  buildkit build --smoke --push cpu      build, test and push a whole row
  buildkit promote train-cpu             make the tested image the prod one

Exit codes: 0 done, 1 work failed, 2 bad input, 3 a release gate refused, 130 interrupted."""


class Commands(click.Group):
    """Knows its commands by name, and loads one only to run it or to show its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load one command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"imagebuild.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list in the help, without loading anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command where there is none of that name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.option("-C", "--project", "folder", default=".", metavar="DIR", envvar="BUILDKIT_PROJECT",
              help="The folder with matrix.yaml (default: the current one).")  # fmt: skip
@click.version_option("0.1.0", prog_name="buildkit")
def cli(folder: str) -> None:  # the commands read it from the root context
    """Build, test and release container images for GPU reinforcement learning, from one matrix.yaml."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: `buildkit` and `./buildkit.py` both come here."""
    try:
        answer = cli.main(
            args=None if arguments is None else list(arguments), prog_name="buildkit", standalone_mode=False
        )
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as wrong:
        wrong.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except BrokenPipeError:
        # The reader has what it wanted (`| head`); nothing is left to say, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001  (whatever it is, a person reads it)
        from imagebuild.cli.failure import show

        return show(error)
    return answer if isinstance(answer, int) else 0


if __name__ == "__main__":
    sys.exit(main())
