"""What the server is told, by flag or by environment variable."""

from __future__ import annotations

import argparse
import os
from typing import Any, NamedTuple

PROVIDERS = ("cpu", "cuda", "tensorrt")

_DESCRIPTION = """\
Serve an exported policy two ways: a shared-memory exchange for one control loop (RUN/exchange) and a Unix socket for
the rest (RUN/policy.sock). Each option can also be given as the environment variable in brackets."""

_EXAMPLES = """\
Examples:
  policy-server                                          # /policy/policy.onnx, in /run/policy
  policy-server --policy /policy/walker.onnx --spin 200  # answers sooner, for some CPU
  policy-server --realtime 50                            # SCHED_FIFO and locked memory, where permitted
  policy-server health                                   # exit code 0: it serves

Exit codes: 0 stopped as asked, 1 something outside is in the way, 2 the policy or an option is wrong."""


class Options(NamedTuple):
    """The settings of one server. `spin` is in seconds, `realtime` a priority (0: none), `mode` permission bits."""

    policy: str
    run: str
    provider: str
    threads: int
    spin: float
    realtime: int
    mode: int
    max_message: int
    any_policy: bool
    command: str

    @property
    def socket(self) -> str:
        """The path of the Unix socket."""
        return os.path.join(self.run, "policy.sock")

    @property
    def exchange(self) -> str:
        """The path of the shared-memory exchange."""
        return os.path.join(self.run, "exchange")


def parse(arguments: list[str]) -> Options:
    """Read the command line; a wrong one ends the program with exit code 2, as argparse does."""
    parser = argparse.ArgumentParser(
        prog="policy-server", description=_DESCRIPTION, epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip

    def add(flag: str, variable: str, default: str, text: str, **more: Any) -> None:
        # argparse checks a default that is text as it would check the option, so a wrong variable is refused, too.
        more.setdefault("metavar", flag[2:].upper().replace("-", "_"))
        parser.add_argument(flag, default=os.environ.get(variable) or default, help=f"{text} [{variable}]", **more)

    parser.add_argument("command", nargs="?", choices=("serve", "health"), default="serve",
                        help="serve (the default), or ask the running server whether it serves")  # fmt: skip
    add("--policy", "POLICY_FILE", "/policy/policy.onnx", "the exported policy", metavar="FILE")
    add("--run", "POLICY_RUN_DIR", "/run/policy", "the folder of exchange and socket, on tmpfs", metavar="FOLDER")
    add("--provider", "POLICY_PROVIDER", "cpu", "cpu, cuda or tensorrt; never another one in silence",
        metavar="NAME", type=_provider)  # fmt: skip
    add("--threads", "POLICY_THREADS", "1", "threads within one decision", type=_whole(1, 256))
    add("--spin", "POLICY_SPIN_US", "0", "microseconds to look for a request before sleeping",
        metavar="MICROSECONDS", type=_whole(0, 1_000_000))  # fmt: skip
    add("--realtime", "POLICY_REALTIME", "0", "priority for SCHED_FIFO, with memory locked; 0 for neither",
        metavar="PRIORITY", type=_whole(0, 99))  # fmt: skip
    add("--mode", "POLICY_MODE", "660", "permissions of exchange and socket", metavar="OCTAL", type=_mode)
    add("--max-message", "POLICY_MAX_MESSAGE", str(2**20), "bytes of the longest message on the socket",
        metavar="BYTES", type=_whole(1024, 2**28))  # fmt: skip
    parser.add_argument("--any-policy", action="store_true", default=os.environ.get("POLICY_ANY") == "1",
                        help="take a policy whose file does not say what it is [POLICY_ANY=1]")  # fmt: skip
    found = vars(parser.parse_args(arguments))
    found["spin"] /= 1e6
    return Options(**found)


def _provider(text: str) -> str:
    if text not in PROVIDERS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(PROVIDERS)}")
    return text


def _whole(lowest: int, highest: int) -> Any:
    def convert(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not lowest <= int(text) <= highest:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {lowest} to {highest}")
        return int(text)

    return convert


def _mode(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise argparse.ArgumentTypeError(f"{text!r} is no file mode like 660")
    return mode
