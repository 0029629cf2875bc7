"""The page: probe, print, and say by the exit code whether something is to be mended."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from diagnose import gpu, gpu_lines, machine, why
from diagnose.inputs import Inputs, Line

_ROW = Path(__file__).with_name("row.json")
_EPILOG = """\
Examples:
  buildkit diagnose
  buildkit diagnose --json | python -m json.tool

Exit codes: 0 nothing is wrong, 1 something is, 2 bad usage."""


@dataclass(frozen=True)
class Page:
    """Everything that was found, and why the GPU is not used."""

    lines: tuple[Line, ...]
    verdict: why.Diagnosis

    @property
    def is_fine(self) -> bool:
        """Whether nothing is wrong."""
        return self.verdict.is_fine and all(line.state != "wrong" for line in self.lines)

    def as_json(self) -> str:
        """Return the page for programs."""
        found = {"fine": self.is_fine, "verdict": asdict(self.verdict), "lines": [asdict(line) for line in self.lines]}
        return json.dumps(found, indent=1)

    def as_text(self) -> str:
        """Return the page for people: what is worth a look has a mark, and its remedy below it."""
        text, section = [], ""
        for line in self.lines:
            if line.section != section:
                section = line.section
                text.append(section)
            mark = {"ok": " ", "note": "*", "wrong": "!"}[line.state]
            text.append(f" {mark} {line.name:<14} {line.value}")
            text += [f"   {'':<14} -> {line.remedy}"] if line.remedy else []
        title = "GPU" if self.verdict.is_fine else "why the GPU is not used"
        text += ["", f"{title}: {self.verdict.what}"]
        return "\n".join([*text, *([f"  -> {self.verdict.remedy}"] if self.verdict.remedy else [])])


def examine(inputs: Inputs) -> Page:
    """Probe everything."""
    facts = gpu.probe(inputs)
    about_gpu = gpu_lines.lines(inputs, facts, gpu.smi(inputs))
    threads = facts.torch.get("threads")
    return Page((*machine.lines(inputs, threads), *about_gpu), why.diagnose(facts))


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="buildkit", formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description="Look at this container from inside.")  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    diagnose = commands.add_parser(
        "diagnose", help="one page: GPU, memory, CPUs, limits, and why the GPU is not used", epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    diagnose.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    options = parser.parse_args(arguments)
    promised = json.loads(_ROW.read_text(encoding="utf-8"))
    page = examine(Inputs(promised=promised))
    print(page.as_json() if options.as_json else page.as_text())
    return 0 if page.is_fine else 1
