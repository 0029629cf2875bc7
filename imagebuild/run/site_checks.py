"""A site's own smoke checks: a folder with the stages' names in it, whose scripts join the stages' suites.

<folder>/train/20-licences.py     a check of train: named site/20-licences in reports
<folder>/common/sitelib.py        what the checks share: `import sitelib`
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from imagebuild.errors import Location, ProblemList
from imagebuild.spec.models import STAGES

PREFIX = "site/"
CHECK = re.compile(r"\d\d-[a-z0-9-]+\.py")
_MODULE = re.compile(r"[a-z_][a-z0-9_]*\.py")
_COMMON = "common"
_RULE_OF_CHECKS = "a check is named like 20-licences.py: two digits, a dash, small letters, digits and dashes"
_RULE_OF_MODULES = "what checks share is named like sitelib.py; a check belongs in the folder of its stage"


def load(folder: Path, stage: str, taken: Collection[str]) -> dict[str, Path]:
    """The files that a site adds to a stage's suite, by their path in it.

    Args:
        folder: the site's `checks:`.
        stage: of the images to test.
        taken: the file names of buildkit's own suite, which stay its own.

    Raises:
        InputError: there is no such folder, or something in it would never run, or has a name of buildkit's own.
    """
    problems = ProblemList()
    if not folder.is_dir():
        problems.add(f"there is no folder {folder} with the site's checks", hint="`checks:` in site.yaml names it")
        problems.raise_any()
    for path in _seen(folder):
        if path.name not in (*STAGES, _COMMON) or not path.is_dir():
            hint = f"checks are in folders named {', '.join(STAGES)}; what they share is in {_COMMON}"
            problems.add("this is no stage, and would never run", Location(str(path)), hint=hint)
    files: dict[str, Path] = {}
    for name, pattern, rule in ((_COMMON, _MODULE, _RULE_OF_MODULES), (stage, CHECK, _RULE_OF_CHECKS)):
        for path in _seen(folder / name):
            if not pattern.fullmatch(path.name):
                problems.add(f"{path.name} would never run", Location(str(path)), hint=rule)
            elif path.name in taken:
                problems.add(f"buildkit has a {path.name} in {stage} already", Location(str(path)), hint="rename it")
            else:
                files[PREFIX + path.name] = path
    problems.raise_any()
    return files


def _seen(folder: Path) -> Iterator[Path]:
    """What is in a folder, without what tools leave and what people read."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (path.name.startswith((".", "README", "__pycache__"))):
            yield path
