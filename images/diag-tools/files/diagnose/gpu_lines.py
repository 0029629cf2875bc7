"""The page's lines about the GPU: what each layer says, and whether they agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnose.gpu import GpuFacts
from diagnose.inputs import Inputs, Line
from diagnose.machine import size
from diagnose.why import numbers


def lines(inputs: Inputs, facts: GpuFacts, listed: Sequence[str]) -> Iterator[Line]:
    """Yield them; ``listed`` is what nvidia-smi says."""
    yield _driver(facts)
    yield Line("GPU", "nvidia-smi", "; ".join(listed) or "lists nothing")
    torch = facts.torch
    if "version" not in torch:
        yield Line("GPU", "torch", str(torch.get("error") or "no answer in time"), "wrong", "see the verdict below")
        return
    yield from _torch(inputs, facts)
    for index, device in enumerate(torch.get("devices", [])):
        used = device["total"] - device["free"]
        full = used > 0.5 * device["total"]
        remedy = "other processes hold half of it already: `nvidia-smi` on the host lists them" if full else ""
        said = f"{device['name']}, capability {device['capability']}, {size(used)} of {size(device['total'])} in use"
        yield Line("GPU", f"device {index}", said, "note" if full else "ok", remedy)


def _driver(facts: GpuFacts) -> Line:
    if facts.driver is None:
        return Line("GPU", "driver", f"none loaded ({facts.cards} NVIDIA GPUs on the bus)")
    said = f"{facts.driver}, libcuda {facts.library or 'not in this container'}"
    if facts.minimum is None:
        return Line("GPU", "driver", said)
    enough = numbers(facts.driver) >= numbers(facts.minimum)
    return Line(
        "GPU", "driver", f"{said}; CUDA {facts.cuda} needs {facts.minimum}: {'enough' if enough else 'too old'}"
    )


def _torch(inputs: Inputs, facts: GpuFacts) -> Iterator[Line]:
    """Compare what is installed with what the row says and the facts know."""
    torch, promised = facts.torch, inputs.promised
    cudnn, known = _cudnn(torch.get("cudnn")), inputs.fact("cudnn")
    said = f"{torch['version']}, CUDA {torch.get('cuda') or 'none'}, cuDNN {cudnn or 'none'}"
    wrong = []
    if promised.get("torch") and str(torch["version"]).partition("+")[0] != promised["torch"]:
        wrong.append(f"torch {promised['torch']}")
    if (torch.get("cuda") or None) != promised.get("cuda"):
        wrong.append(f"CUDA {promised.get('cuda') or 'none'}")
    if cudnn and known and numbers(known)[:3] != numbers(cudnn):
        wrong.append(f"cuDNN {known}")
    remedy = "something was installed over the image's packages: pip list; start from the image again" if wrong else ""
    verdict = f"the row has {', '.join(wrong)}" if wrong else "as the row says"
    yield Line("GPU", "torch", f"{said}: {verdict}", "wrong" if wrong else "ok", remedy)
    if torch.get("architectures"):
        yield Line("GPU", "kernels for", " ".join(torch["architectures"]))


def _cudnn(packed: int | None) -> str:
    """Return cuDNN's number as a version; since 9 the minor version has two digits."""
    if not packed:
        return ""
    thousand = 10000 if packed >= 90000 else 1000
    return f"{packed // thousand}.{packed % thousand // 100}.{packed % 100}"
