"""/dev/shm is as large as the row promises, and several processes really move more than 64 MB through it."""

import os
import queue as queues

import smokelib

PROCESSES = 4
FLOATS = 10_000_000  # 40 MB a process: more than the 64 MB that containers get by default, together

promised = int(smokelib.expect()["shm_bytes"])
todo = f"start the container with --shm-size={smokelib.row()['shm_size']} (buildkit run does)"
shm = os.statvfs("/dev/shm")
smokelib.require(
    shm.f_frsize * shm.f_blocks >= promised, f"/dev/shm holds {shm.f_frsize * shm.f_blocks} bytes, not {promised}", todo
)

needed = PROCESSES * FLOATS * 4
smokelib.require(
    promised > needed,
    f"the row promises {promised} bytes of /dev/shm, and {PROCESSES} processes that share tensors need {needed}",
    "raise `shm_size:` in matrix.yaml; 8g is usual",
)

import torch  # noqa: E402  the cheap answer comes first
from torch import multiprocessing  # noqa: E402


def fill(number: int, queue: "multiprocessing.Queue[torch.Tensor]", taken: "multiprocessing.Event") -> None:
    """Send one tensor, and stay alive until it is taken."""
    queue.put(torch.full((FLOATS,), float(number)))
    taken.wait()


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    queue, taken = context.Queue(), context.Event()
    workers = [context.Process(target=fill, args=(number, queue, taken), daemon=True) for number in range(PROCESSES)]
    for worker in workers:
        worker.start()
    try:
        tensors = [queue.get(timeout=60) for _ in workers]
    except (queues.Empty, OSError, EOFError, RuntimeError) as error:
        smokelib.fail(f"a tensor of {4 * FLOATS} bytes did not arrive through /dev/shm ({type(error).__name__})", todo)
    used = shm.f_bfree - os.statvfs("/dev/shm").f_bfree
    sums = sorted(float(tensor.double().sum()) for tensor in tensors)
    taken.set()
    for worker in workers:
        worker.join(timeout=30)
    print(f"{PROCESSES} processes, {used * shm.f_frsize / 1e6:.0f} MB of {promised / 1e6:.0f} MB in use at once")
    smokelib.equal("sums", sums, [float(FLOATS * number) for number in range(PROCESSES)], "shared memory is corrupt")
    smokelib.require(
        used * shm.f_frsize >= needed,
        "the tensors did not go through /dev/shm",
        "check torch's sharing strategy",
    )
