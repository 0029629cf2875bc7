#!/usr/bin/env python3
"""How long buildkit takes to start, beside what it cannot be faster than: whole processes in turn, as ratios.

Run it from the project folder, with the images of the cpu row in the registry (`scripts/demo` puts them there):

    .venv/bin/python benchmarks/startup.py [RUNS]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

BIN = Path(sys.prefix) / "bin"
FLOOR = [str(BIN / "python"), "-c", "import click"]
CASES = {
    "buildkit --help": [str(BIN / "buildkit"), "--help"],
    "buildkit list": [str(BIN / "buildkit"), "list"],
    "buildkit build cpu (nothing to do)": [str(BIN / "buildkit"), "build", "cpu"],
}


def seconds(command: list[str]) -> float:
    """How long one run takes, by the clock on the wall."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    """Time each case in turn with the floor, and print medians and the median ratio."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    print(f"{'case':<36} {'median':>9} {'floor':>9} {'ratio':>7}   floor: python -c 'import click', {runs} runs each")
    for name, command in CASES.items():
        seconds(command)
        pairs = [(seconds(command), seconds(FLOOR)) for _ in range(runs)]
        ratio = statistics.median(a / b for a, b in pairs)
        case, floor = (statistics.median(side) for side in zip(*pairs, strict=True))
        print(f"{name:<36} {case * 1000:6.0f} ms {floor * 1000:6.0f} ms {ratio:7.2f}")


if __name__ == "__main__":
    main()
