"""The command line of the server."""

from __future__ import annotations

import sys

from policy_server import health, supervise
from policy_server.errors import ServerError
from policy_server.options import parse


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        return health.check(options) if options.command == "health" else supervise.serve(options)
    except ServerError as error:
        print(f"policy-server: {error}", file=sys.stderr)
        return error.exit_code
