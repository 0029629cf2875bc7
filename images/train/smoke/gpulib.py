"""What the GPU checks share: a GPU that torch really uses, and remedies for what CUDA says where it does not."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from typing import NoReturn

import smokelib

_LOOK = "`buildkit doctor` looks from outside, `buildkit diagnose` from inside: driver, CDI, device permissions"
# Words of CUDA, what they mean, and what to do; `buildkit diagnose` knows more of them.
_SAYINGS = (
    ("driver version is insufficient|driver on your system is too old|forward compatibility",
     "the host's driver is too old", "update it, or choose a row with an older CUDA"),
    ("no kernel image", "this wheel has no code for this GPU", "choose a row whose `variant:` covers it"),
    ("out of memory", "the GPU's memory is full", "end what holds it: `nvidia-smi` on the host lists it"),
)  # fmt: skip


def gpu() -> str:
    """Return the first GPU's name, or end as failed with the reason why torch does not use it."""
    try:
        import torch
    except ImportError as error:
        smokelib.fail(f"torch cannot be imported ({error})", "run the GPU checks with the Python that has torch")
    if torch.version.cuda is None:
        todo = "a row for GPUs needs its CUDA wheel: build the image again; what was installed over torch?"
        smokelib.fail(f"torch {torch.__version__} is a CPU build, so everything falls back to the CPU", todo)
    with explained(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if not torch.cuda.is_available():
            with contextlib.suppress(AssertionError):
                torch.cuda.init()  # raises, and says why
            explain(" ".join(str(one.message) for one in caught) or "not a word of why")
        torch.ones(1, device="cuda").item()  # a context of one's own: a full or broken GPU shows here
        return str(torch.cuda.get_device_name(0))


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn what CUDA raises into one line that says what to do."""
    try:
        yield
    except RuntimeError as error:
        explain(str(error))


def explain(said: str) -> NoReturn:
    """End as failed, with what CUDA said and what to do about it."""
    print(said)
    first = (said.strip().splitlines() or [""])[0]
    for words, meaning, todo in _SAYINGS:
        if re.search(words, said, re.IGNORECASE):
            minimum = smokelib.fact("driver") if "driver" in meaning else None
            needs = f": CUDA {smokelib.cuda()} needs {minimum} or newer" if minimum else ""
            smokelib.fail(f"{meaning} ({first}){needs}", todo)
    smokelib.fail(f"a GPU is promised, and torch does not use it ({first})", _LOOK)
