"""Calls of the command line within the test's own process, which starts ten times faster than one of its own."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import buildkit


def call(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run buildkit on a project: exit code, standard output, standard error."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = buildkit.main(["-C", str(folder), *arguments])
    assert "bug in buildkit" not in err.getvalue()
    return code, out.getvalue(), err.getvalue()
