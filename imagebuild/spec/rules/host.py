"""The operating system of a row: whether it is known, still alive, and has the row's Python."""

from __future__ import annotations

from packaging.version import Version

from imagebuild.spec import values
from imagebuild.spec.rules.book import Context, Findings, listing, rule
from imagebuild.spec.values import Base


def os_of(ctx: Context, os: str | None, base: Base | None) -> tuple[str | None, str]:
    """The row's operating system, if the facts know it, and the field that names it."""
    if os is not None:
        return (os if os in ctx.facts.os else None), "os"
    system = base.os if base else None
    return (system if system in ctx.facts.os else None), "base"


@rule
def os_known(ctx: Context, os: str) -> Findings:
    """The facts know the operating system."""
    if os not in ctx.facts.os:
        yield ctx.unknown(f"the facts do not know the operating system {os}", ("os",), "os")


@rule
def os_alive(ctx: Context, os: str | None = None, base: Base | None = None) -> Findings:
    """The operating system still gets updates, on the day of the facts (the check has no clock)."""
    system, field = os_of(ctx, os, base)
    if system and ctx.facts.os[system].until < ctx.facts.as_of:
        message = f"{system} has had no updates since {ctx.facts.os[system].until}"
        yield ctx.warning("os-eol", message, (field,), "os")


@rule
def os_python(ctx: Context, python: Version, os: str | None = None, base: Base | None = None) -> Findings:
    """The operating system packages the Python. Images that are not plain ones may bring their own."""
    system, field = os_of(ctx, os, base)
    if not system or (base and not base.is_bootstrap and not base.cuda):
        return
    entry = ctx.facts.os[system]
    if values.minor_of(python) in entry.python:
        return
    message = f"{system} has no package of Python {python} (it has {listing(entry.python)})"
    # Only a complete list proves an absence, and only a row that states its OS says that Python comes from it.
    if entry.complete and os is not None:
        yield ctx.error("os-python", message, ("python", field), "os")
    else:
        yield ctx.warning("os-python", f"{message}, as far as the facts know", ("python", field), "os")
