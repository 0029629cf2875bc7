"""NCCL adds tensors up across two GPUs, from two processes."""

import os
import tempfile

import gpulib
import smokelib

PROCESSES = 2
REMEDY = "NCCL_DEBUG=INFO says where it stops: often /dev/shm (--shm-size) or peer access (try NCCL_P2P_DISABLE=1)"


def work(rank: int, meeting_point: str) -> None:
    """Be one of the processes: add up what both have, and compare."""
    import torch
    from torch import distributed

    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method=f"file://{meeting_point}", rank=rank, world_size=PROCESSES)
    tensor = torch.full((1 << 20,), float(rank + 1), device="cuda")
    distributed.all_reduce(tensor)
    torch.cuda.synchronize()
    wrong = not bool((tensor == float(sum(range(1, PROCESSES + 1)))).all())
    distributed.destroy_process_group()
    if wrong:
        raise ValueError(f"process {rank} has another sum")


def main() -> None:
    """Start the processes, and wait for them as long as they may take."""
    gpulib.gpu()
    import torch
    from torch import multiprocessing

    count = torch.cuda.device_count()
    if count < PROCESSES:
        smokelib.skip(f"NCCL needs two GPUs, and here is {count}")
    smokelib.require(torch.distributed.is_nccl_available(), "this torch has no NCCL", "it is no release wheel for CUDA")
    print("NCCL", ".".join(map(str, torch.cuda.nccl.version())))
    meeting_point = os.path.join(tempfile.mkdtemp(), "nccl")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(rank, meeting_point), daemon=True) for rank in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=180)
    hanging = [worker.pid for worker in workers if worker.is_alive()]
    for worker in workers:
        worker.kill()
    smokelib.require(not hanging, f"processes {hanging} still wait for each other after 180 s", REMEDY)
    codes = [worker.exitcode for worker in workers]
    smokelib.require(codes == [0] * PROCESSES, f"all_reduce ended with {codes}: see above", REMEDY)


if __name__ == "__main__":
    main()
