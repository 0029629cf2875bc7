"""Renders templates: sandboxed, strict, and with every failure traced to the template's line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import FileSystemLoader, StrictUndefined, TemplateNotFound, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from imagebuild.errors import InputError, Location, Problem
from imagebuild.spec.models import Row


@dataclass(frozen=True)
class ReadRow:
    """A row as templates see it: read-only, and it remembers which fields were read."""

    row: Row
    read: set[str] = field(default_factory=set)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or (name not in Row.model_fields and not _is_property(name)):
            raise AttributeError(f"a row has no {name!r}")
        self.read.update(_FIELDS_OF.get(name, (name,)))
        return getattr(self.row, name)


# What a property is made of, so that `explain` can name the lines in the matrix.
_FIELDS_OF: Mapping[str, tuple[str, ...]] = {
    "family": ("os",),
    "is_cuda": ("variant",),
    "cuda": ("variant",),
    "torch_requirement": ("torch", "variant", "wheels"),
    "shm_bytes": ("shm_size",),
}


def pin(release: str | None) -> str:
    """The requirement for a release: two numbers, as in 2.4, mean its newest patch, three just that one, None any."""
    if release is None:
        return ""
    return f"=={release}.*" if re.fullmatch(r"\d+\.\d+", release) else f"=={release}"


def _is_property(name: str) -> bool:
    return isinstance(getattr(Row, name, None), property)


class Renderer:
    """Renders the templates of one project folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = ImmutableSandboxedEnvironment(
            loader=FileSystemLoader([folder / "templates", folder / "images"]),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        self._environment.filters["sh"] = lambda value: shlex.quote(str(value))
        self._environment.filters["pin"] = pin

    def render(self, name: str, variables: Mapping[str, Any]) -> str:
        """Render the template `name`, a path under `templates/` or `images/`.

        Raises:
            InputError: the template is missing or wrong, or uses a name that does not exist.
        """
        try:
            return self._environment.get_template(name).render(variables)
        except TemplateNotFound as error:
            message = f"no such template{'' if error.name == name else f' (included from {name})'}"
            raise InputError(Problem(message, Location(f"templates/{error.name}"), rule="template")) from None
        except TemplateSyntaxError as error:
            place = Location(self._relative(error.filename or name), error.lineno, 1)
            raise InputError(Problem(str(error.message), place, "mend the template", rule="template")) from None
        except Exception as error:  # noqa: BLE001  (whatever a template raises is the template's fault)
            self._blame(error, name)

    def _blame(self, error: Exception, name: str) -> NoReturn:
        """Raise the failure of a template as a problem at the template's own line."""
        place = Location(f"templates/{name}")
        trace = error.__traceback__
        while trace:
            file = trace.tb_frame.f_code.co_filename
            if Path(file).is_relative_to(self._folder / "templates") or file.endswith(".j2"):
                place = Location(self._relative(file), trace.tb_lineno, 1)
            trace = trace.tb_next
        hint = "templates get row, stage, target, project, epoch, known, parents, base_image and locked"
        raise InputError(Problem(str(error) or type(error).__name__, place, hint, rule="template")) from None

    def _relative(self, file: str) -> str:
        path = Path(file)
        return str(path.relative_to(self._folder)) if path.is_relative_to(self._folder) else file
