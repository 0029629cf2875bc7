"""How the server ends early: one line, and an exit code."""

from __future__ import annotations


class ServerError(Exception):
    """The outside world is not as it must be (exit code 1); the text says what to do."""

    exit_code = 1


class InputError(ServerError):
    """The policy file or an option is wrong (exit code 2)."""

    exit_code = 2
