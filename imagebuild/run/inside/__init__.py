"""Programs for the inside of containers: handed to the image's own Python as text, they take any from 3.8 on."""

from __future__ import annotations

from importlib import resources


def program(name: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs one of the programs here, by the name of its file."""
    text = resources.files(__name__).joinpath(f"{name}.py").read_text(encoding="utf-8")
    return ("python3", "-c", text, *arguments)
