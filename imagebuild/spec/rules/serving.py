"""Where onnxruntime-gpu finds its CUDA and cuDNN: it carries none, so the image or torch's wheels must have them."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import Version

from imagebuild.spec import values
from imagebuild.spec.facts_stack import OrtLine
from imagebuild.spec.rules.book import Context, Findings, rule
from imagebuild.spec.rules.inference import gpu_line
from imagebuild.spec.values import Base, Variant

_RULE = "ort-image"


@dataclass(frozen=True)
class _Need:
    """What one onnxruntime-gpu looks for."""

    release: Version
    line: OrtLine
    cuda: Version

    def __str__(self) -> str:
        return f"onnxruntime-gpu {self.release} needs CUDA {self.cuda.major} and cuDNN {self.line.cudnn}"


@rule
def ort_libraries(
    ctx: Context,
    onnxruntime: Version,
    base: Base,
    inference_base: Base | None = None,
    variant: Variant | None = None,
    torch: Version | None = None,
) -> Findings:
    """The slim image has the CUDA and cuDNN majors that ONNX Runtime is built for.

    Without an `inference_base` the slim stage takes its files out of the train image, torch's CUDA libraries included.
    """
    line = gpu_line(ctx, onnxruntime, variant, base)
    if not line or not line.cuda:
        return
    need = _Need(onnxruntime, line, line.cuda)
    image, field = (inference_base, "inference_base") if inference_base else (base, "base")
    carried = not inference_base and _carried_by_torch(ctx, need, torch, variant)
    if image.cuda:
        yield from _in_image(ctx, need, image, image.cuda, field, carried=carried)
    elif image.is_bootstrap and not carried:
        message = f"{need}, and neither the bootstrapped base nor the wheel torch {torch} {variant} brings both"
        yield ctx.error(_RULE, message, ("onnxruntime", "variant", "torch", "base"), "onnxruntime")
    elif not carried and not image.unreadable:
        yield ctx.unknown(f"{need}; whether {image.reference} has them is not in the facts", (field,), "onnxruntime")


def _carried_by_torch(ctx: Context, need: _Need, torch: Version | None, variant: Variant | None) -> bool:
    """Whether torch's wheel brings the libraries: same CUDA major, same cuDNN major."""
    entry = ctx.facts.torch.by_version.get(torch) if torch else None
    if not entry or not variant or not variant.cuda or variant.name not in entry.variants:
        return False
    cudnn = entry.variants[variant.name][0]
    # Where the facts have no cuDNN version, it is of CUDA 12.9 or later: cuDNN 9.
    return variant.cuda.major == need.cuda.major and (cudnn.major if cudnn else 9) == need.line.cudnn


def _in_image(ctx: Context, need: _Need, image: Base, cuda: Version, field: str, *, carried: bool) -> Findings:
    fields = (field, "onnxruntime")
    optional = values.minor_of(need.release) >= ctx.facts.onnxruntime.cudnn_optional_from
    if cuda.major != need.cuda.major:
        symptom = ctx.facts.onnxruntime.symptom(need.release)
        message = f"{need}, and nvidia/cuda:{image.tag} has CUDA {cuda.major}: {symptom}"
        yield ctx.error(_RULE, message, fields, "onnxruntime")
        return
    if values.minor_of(cuda) < need.cuda:
        message = f"onnxruntime-gpu {need.release} is built for CUDA {need.cuda}; the image's {cuda} is older"
        yield ctx.warning(_RULE, message, fields, "onnxruntime")
    cudnn = _cudnn_major(ctx, image, cuda)
    if image.cudnn and cudnn != need.line.cudnn:
        message = f"{need}, and nvidia/cuda:{image.tag} has cuDNN {cudnn}"
        if carried:
            yield ctx.warning(_RULE, f"{message}; that of torch's wheel is used", fields, "onnxruntime")
        else:
            yield ctx.error(_RULE, message, fields, "onnxruntime")
    elif carried or image.cudnn:
        return
    elif image.flavour == "base":
        message = f"{need}; a base image has neither cuBLAS nor cuDNN: a -cudnn-runtime tag has"
        yield ctx.error(_RULE, message, fields, "onnxruntime")
    elif optional:
        message = (
            f"nvidia/cuda:{image.tag} has no cuDNN, without which onnxruntime-gpu {need.release} runs some models only"
        )
        yield ctx.warning(_RULE, message, fields, "onnxruntime")
    else:
        yield ctx.error(_RULE, f"{need}, and nvidia/cuda:{image.tag} has no cuDNN", fields, "onnxruntime")


def _cudnn_major(ctx: Context, image: Base, cuda: Version) -> int:
    """The cuDNN major of an image with cuDNN: from the list, from the tag's word, else today's."""
    release = ctx.facts.image.by_version.get(cuda)
    if release and release.cudnn_v:
        return release.cudnn_v.major
    digits = (image.cudnn or "").removeprefix("cudnn")
    return int(digits) if digits else 9
