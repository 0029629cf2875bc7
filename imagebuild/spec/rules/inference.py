"""What serves the policy: ONNX Runtime, TensorRT, the ONNX opset."""

from __future__ import annotations

from packaging.version import Version

from imagebuild.spec import values
from imagebuild.spec.facts_stack import OrtLine
from imagebuild.spec.rules.book import NOT_RELEASED, Context, Findings, release_findings, rule
from imagebuild.spec.rules.host import os_of
from imagebuild.spec.values import Base, TensorRT, Variant


def _line(ctx: Context, onnxruntime: Version) -> OrtLine | None:
    return ctx.facts.onnxruntime.lines.get(values.minor_of(onnxruntime))


def uses_gpu(variant: Variant | None, base: Base | None) -> bool:
    """Whether the row wants the GPU package: its variant says so, else its image."""
    return variant.cuda is not None if variant else bool(base and base.cuda)


def gpu_line(ctx: Context, onnxruntime: Version, variant: Variant | None, base: Base | None) -> OrtLine | None:
    """The line of onnxruntime-gpu, on rows that want it."""
    line = _line(ctx, onnxruntime)
    return line if line and line.cuda and uses_gpu(variant, base) else None


@rule
def ort_release(
    ctx: Context, onnxruntime: Version, variant: Variant | None = None, base: Base | None = None
) -> Findings:
    """The release exists, on a CUDA row as onnxruntime-gpu."""
    lines, line = ctx.facts.onnxruntime.lines, _line(ctx, onnxruntime)
    gpu = uses_gpu(variant, base)
    newest = max(known.newest for known in lines.values() if not (gpu and known.cpu_only))
    package = "onnxruntime-gpu" if gpu else "onnxruntime"
    if line and line.cpu_only and gpu:
        message = f"onnxruntime {onnxruntime} has no GPU package yet: onnxruntime-gpu ends with {newest}"
        yield ctx.error(NOT_RELEASED, message, ("onnxruntime", "variant"), "onnxruntime")
        return
    known = [min(lines), newest]
    if line is None or onnxruntime > newest:
        yield from release_findings(
            ctx, "onnxruntime", package, onnxruntime, known, complete=True, section="onnxruntime"
        )


@rule
def ort_python(ctx: Context, onnxruntime: Version, python: Version) -> Findings:
    """ONNX Runtime has wheels for this Python."""
    line = _line(ctx, onnxruntime)
    if line and not line.py.holds(python):
        message = f"onnxruntime {onnxruntime} has wheels for Python {line.py}, not for {python}"
        yield ctx.error("python", message, ("python", "onnxruntime"), "onnxruntime")


@rule
def ort_glibc(ctx: Context, onnxruntime: Version, os: str | None = None, base: Base | None = None) -> Findings:
    """The image's C library is new enough for ONNX Runtime's wheel."""
    system, field = os_of(ctx, os, base)
    line = _line(ctx, onnxruntime)
    if line and system and ctx.facts.os[system].glibc < line.glibc:
        message = f"onnxruntime {onnxruntime} needs glibc {line.glibc}, and {system} has {ctx.facts.os[system].glibc}"
        yield ctx.error("glibc", message, (field, "onnxruntime"), "onnxruntime")


@rule
def ort_numpy(ctx: Context, onnxruntime: Version, numpy: Version) -> Findings:
    """ONNX Runtime takes this NumPy."""
    line = _line(ctx, onnxruntime)
    if line and not values.admits(line.numpy, numpy):
        message = f"onnxruntime {onnxruntime} takes numpy {values.spelled(line.numpy)}, not {numpy} (1.19 does)"
        yield ctx.error("numpy", message, ("numpy", "onnxruntime"), "onnxruntime")


@rule
def ort_gpus(ctx: Context, onnxruntime: Version, variant: Variant | None = None, base: Base | None = None) -> Findings:
    """The GPU package runs on every GPU of the fleet."""
    line = gpu_line(ctx, onnxruntime, variant, base)
    floor = ctx.facts.onnxruntime.cuda13_min_cc
    if not line or not line.cuda or line.cuda.major < 13:
        return
    for gpu in ctx.gpus:
        if gpu.cc < floor:
            message = f"{gpu} cannot run onnxruntime-gpu {onnxruntime}: its CUDA {line.cuda.major} begins with {floor}"
            yield ctx.error("sm", message, ("onnxruntime", "base"), "onnxruntime")


@rule
def ort_image_knows_gpus(
    ctx: Context,
    onnxruntime: Version,
    base: Base,
    inference_base: Base | None = None,
    variant: Variant | None = None,
) -> Findings:
    """The CUDA libraries of the image, which ONNX Runtime uses, know the fleet's newest GPUs."""
    image, field = (inference_base, "inference_base") if inference_base else (base, "base")
    toolkit = ctx.facts.cuda.first_of_minor.get(values.minor_of(image.cuda)) if image.cuda else None
    if not toolkit or not gpu_line(ctx, onnxruntime, variant, base):
        return
    for gpu in ctx.gpus:
        if gpu.cc.major > toolkit.cc[1].major:
            message = f"{gpu} is too new for the libraries of nvidia/cuda:{image.tag}, which end with {toolkit.cc[1]}"
            yield ctx.error("sm", message, (field, "onnxruntime"), "cuda")


@rule
def ort_cudnn_on_old_gpus(
    ctx: Context,
    onnxruntime: Version,
    base: Base,
    inference_base: Base | None = None,
    variant: Variant | None = None,
) -> Findings:
    """The image's cuDNN, which ONNX Runtime uses, still serves the fleet's GPUs."""
    image, field = (inference_base, "inference_base") if inference_base else (base, "base")
    release = ctx.facts.image.by_version.get(image.cuda) if image.cuda else None
    drops = ctx.facts.gpu.cudnn_drops
    if not image.cudnn or not release or not release.cudnn_v or release.cudnn_v < drops.from_:
        return
    for gpu in ctx.gpus:
        if gpu.cc < drops.below_cc and gpu_line(ctx, onnxruntime, variant, base):
            message = (
                f"nvidia/cuda:{image.tag} brings cuDNN {release.cudnn_v}, and from {drops.from_} on it fails on {gpu}"
            )
            yield ctx.error("cudnn", message, (field, "onnxruntime"), "gpu")


@rule
def ort_driver(ctx: Context, onnxruntime: Version, variant: Variant, base: Base | None = None) -> Findings:
    """Every driver runs the CUDA of the GPU package. With an nvidia/cuda image it is the image's driver that counts."""
    line = gpu_line(ctx, onnxruntime, variant, base)
    if not line or not line.cuda or (base and base.cuda):
        return
    floor = ctx.facts.cuda.minor_compat_driver[line.cuda.major]
    for driver in ctx.drivers:
        if not driver.reaches(floor):
            message = (
                f"onnxruntime-gpu {onnxruntime} is built for CUDA {line.cuda}, which needs driver {floor} or newer, "
                f"and the fleet has {driver}"
            )
            yield ctx.error("driver", message, ("onnxruntime",), "cuda")


@rule
def opset_read(ctx: Context, onnxruntime: Version, opset: int) -> Findings:
    """ONNX Runtime reads the opset that the policy is exported with."""
    line = _line(ctx, onnxruntime)
    if line and line.opset and opset > line.opset:
        message = f"onnxruntime {onnxruntime} reads ONNX opsets up to {line.opset}, not {opset}"
        yield ctx.error("opset", message, ("opset", "onnxruntime"), "onnxruntime")


@rule
def onnx_release(ctx: Context, onnx: Version) -> Findings:
    """The release is not beyond the facts, which know the newest only."""
    newest = max(ctx.facts.onnxruntime.onnx_default_opset)
    if onnx > newest:
        message = f"onnx {onnx} is newer than the facts of {ctx.facts.as_of}, which end with {newest}"
        yield ctx.unknown(message, ("onnx",), "onnxruntime")


@rule
def onnx_default_opset(ctx: Context, onnx: Version, onnxruntime: Version, opset: int | None = None) -> Findings:
    """The onnx package writes its own default opset where nothing else is said."""
    facts, line = ctx.facts.onnxruntime, _line(ctx, onnxruntime)
    default = facts.onnx_default_opset.get(onnx)
    if opset is None and default and line and line.opset and default > line.opset:
        message = (
            f"models made with onnx {onnx} default to opset {default}, and onnxruntime {onnxruntime} reads up to "
            f"{line.opset}: set `opset: {line.opset}` or lower"
        )
        yield ctx.warning("opset", message, ("onnx", "onnxruntime", "opset"), "onnxruntime")


def cuda_of(ctx: Context, tensorrt: TensorRT, variant: Variant | None) -> int | None:
    """The CUDA major of the TensorRT package.

    It is the package's own; of a bare version the variant's, as the templates take it; else the metapackage's.
    """
    if tensorrt.cuda_major:
        return tensorrt.cuda_major
    if variant and not tensorrt.package:
        return variant.cuda.major if variant.cuda else None
    return 13 if tensorrt.version >= ctx.facts.tensorrt.metapackage["cu13_from"] else 12


def _newest_of(release: Version) -> Version:
    """A release, or the last that `10.13` may stand for: two numbers name a line."""
    return release if len(release.release) > 2 else values.version(f"{values.minor_of(release)}.9999")


@rule
def tensorrt_release(ctx: Context, tensorrt: TensorRT, variant: Variant | None = None) -> Findings:
    """The package for that CUDA has this release."""
    facts, major = ctx.facts.tensorrt, cuda_of(ctx, tensorrt, variant)
    if major is None:
        message = "a cpu row has no use for TensorRT, which needs CUDA"
        yield ctx.error("tensorrt", message, ("tensorrt", "variant"), "tensorrt")
        return
    name, release = f"tensorrt-cu{major}", tensorrt.version
    entry = facts.packages.get(f"cu{major}")
    if not entry:
        yield ctx.error("tensorrt", f"there is no package {name}", ("tensorrt", "variant"), "tensorrt")
    elif entry.first and _newest_of(release) < entry.first:
        message = f"{name} begins with {entry.first}, so {release} is not in it"
        yield ctx.error("tensorrt", message, ("tensorrt", "variant"), "tensorrt")
    elif entry.last and release > entry.last:
        message = f"{name} ended with {entry.last}, so {release} is not in it"
        yield ctx.error("tensorrt", message, ("tensorrt", "variant"), "tensorrt")
    elif entry.newest and release > entry.newest:
        message = f"{name} {release} is newer than the facts of {ctx.facts.as_of}, which end with {entry.newest}"
        yield ctx.unknown(message, ("tensorrt",), "tensorrt")


@rule
def tensorrt_ort(
    ctx: Context,
    tensorrt: TensorRT,
    onnxruntime: Version,
    variant: Variant | None = None,
    base: Base | None = None,
) -> Findings:
    """ONNX Runtime's TensorRT provider finds the TensorRT and the CUDA that it is built for."""
    line = gpu_line(ctx, onnxruntime, variant, base)
    if not line or not line.cuda:
        return
    minor = values.minor_of(onnxruntime)
    wanted = next(
        need.major for need in ctx.facts.tensorrt.onnxruntime_needs if need.through is None or minor <= need.through
    )
    if tensorrt.version.major != wanted:
        message = f"onnxruntime {onnxruntime} loads TensorRT {wanted} (libnvinfer.so.{wanted}), not {tensorrt.version}"
        yield ctx.error("tensorrt", message, ("tensorrt", "onnxruntime"), "tensorrt")
    cuda = cuda_of(ctx, tensorrt, variant)
    if cuda is not None and cuda != line.cuda.major:
        message = (
            f"TensorRT {tensorrt.version} would come as tensorrt-cu{cuda}, and onnxruntime {onnxruntime} is built "
            f"for CUDA {line.cuda.major}"
        )
        yield ctx.error("tensorrt", message, ("tensorrt", "onnxruntime", "variant"), "tensorrt")


@rule
def tensorrt_image(ctx: Context, tensorrt: TensorRT, base: Base, variant: Variant | None = None) -> Findings:
    """TensorRT is for the CUDA of the image."""
    cuda = cuda_of(ctx, tensorrt, variant)
    if base.cuda and cuda is not None and cuda != base.cuda.major:
        message = f"TensorRT {tensorrt.version} would come as tensorrt-cu{cuda}, and the image has CUDA {base.cuda}"
        yield ctx.warning("tensorrt", message, ("tensorrt", "base"), "tensorrt")


@rule
def tensorrt_hosts(ctx: Context, tensorrt: TensorRT, variant: Variant | None = None) -> Findings:
    """TensorRT runs on every GPU and driver of the fleet."""
    facts, cuda = ctx.facts.tensorrt, cuda_of(ctx, tensorrt, variant)
    floors = [cc for since, cc in facts.min_cc.items() if tensorrt.version >= since]
    for gpu in ctx.gpus:
        if floors and gpu.cc < floors[-1]:
            message = f"{gpu} cannot run TensorRT {tensorrt.version}, which begins with {floors[-1]}"
            yield ctx.error("sm", message, ("tensorrt",), "tensorrt")
    entry = facts.packages.get(f"cu{cuda}")
    for driver in ctx.drivers:
        if entry and entry.driver and not driver.reaches(entry.driver):
            message = f"TensorRT for CUDA {cuda} needs driver {entry.driver} or newer, and the fleet has {driver}"
            yield ctx.error("driver", message, ("tensorrt", "variant"), "tensorrt")
