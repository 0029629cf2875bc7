"""The images of docker.io/nvidia/cuda: which tags exist, and which drivers they start under."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from imagebuild.spec import values
from imagebuild.spec.facts_gpu import ImageRelease
from imagebuild.spec.rules.book import Context, Findings, listing, rule
from imagebuild.spec.values import Base, Driver, Variant

_RHEL = ("rockylinux", "ubi", "centos")
_EL8 = {"rockylinux8", "ubi8"}


@rule
def base_tag(ctx: Context, base: Base) -> Findings:
    """The base's tag was published."""
    yield from _tag(ctx, base, "base")


@rule
def inference_base_tag(ctx: Context, inference_base: Base) -> Findings:
    """The slim stage's tag was published."""
    yield from _tag(ctx, inference_base, "inference_base")


def _tag(ctx: Context, image: Base, field: str) -> Findings:
    if image.unreadable:
        what = f"nvidia/cuda has no tag {image.tag}" if image.tag else "nvidia/cuda has no `latest`: a tag is needed"
        message = f"{what}; a tag reads <cuda>-[cudnn-](base|runtime|devel)-<os>, like 12.8.1-cudnn-devel-rockylinux8"
        yield ctx.error("image", message, (field,), "image")
    if not image.cuda or not image.os or image.tag in ctx.facts.image.tags_seen:
        return
    reasons = [
        *_wrong_release(ctx, image.cuda),
        *_wrong_cudnn(ctx, image, image.cuda),
        *_wrong_system(ctx, image.os, image.cuda),
    ]
    for reason in reasons:
        yield ctx.error("image", f"there is no nvidia/cuda:{image.tag}: {reason}", (field,), "image")
    if not reasons and image.cuda not in ctx.facts.image.by_version:
        yield from _unproven(ctx, image, image.cuda, field)


def _wrong_release(ctx: Context, cuda: Version) -> Iterator[str]:
    """Why there is no such CUDA release. A patch release after the newest known one may exist."""
    minors, minor = ctx.facts.cuda.first_of_minor, values.minor_of(cuda)
    if minor in ctx.facts.cuda.not_released:
        yield f"CUDA {minor} was never released"
    elif min(minors) < minor < max(minors) and minor not in minors:
        yield f"there is no CUDA {minor}"
    elif len(cuda.release) < 3:
        yield f"a tag has the full CUDA release, like {minors[minor].v if minor in minors else '12.8.1'}"


def _wrong_cudnn(ctx: Context, image: Base, cuda: Version) -> Iterator[str]:
    """Why an image has no cuDNN, or not by that word."""
    facts = ctx.facts.image
    if not image.cudnn:
        return
    entry, word = facts.by_version.get(cuda), facts.cudnn_word(cuda)
    if image.flavour == "base":
        yield "base images never have cuDNN (runtime and devel do)"
    elif cuda in facts.no_cudnn or (entry and not entry.cudnn):
        yield f"CUDA {cuda} has no cuDNN images"
    elif image.cudnn != word:
        yield f"the cuDNN images of CUDA {cuda} say {word}, not {image.cudnn}"
    elif entry and image.os in entry.no_cudnn_on:
        yield f"CUDA {cuda} has no cuDNN images on {image.os}"


def _wrong_system(ctx: Context, system: str, cuda: Version) -> Iterator[str]:
    """Why a CUDA release has no images of an operating system."""
    facts = ctx.facts.image
    first, last = facts.os_first_cuda.get(system), facts.os_last_cuda.get(system)
    entry = facts.by_version.get(cuda)
    if system not in {known for group in facts.os_sets.values() for known in group}:
        yield f"NVIDIA publishes no images of {system}"
    elif first and cuda < first:
        yield f"{system} begins with CUDA {first}"
    elif last and cuda > last:
        yield f"{system} ended with CUDA {last}"
    elif entry and system not in facts.os_sets[entry.os]:
        yield f"CUDA {cuda} has images of {listing(facts.os_sets[entry.os])}"


def _unproven(ctx: Context, image: Base, cuda: Version, field: str) -> Findings:
    """A tag that fits the pattern, of a CUDA release whose tags the facts have not seen."""
    minor, proven = values.minor_of(cuda), ctx.facts.cuda.rhel8.proven_through
    later = [known for known in ctx.facts.image.by_version if values.minor_of(known) == minor and known > cuda]
    why = f"{later[0]} superseded it, and {ctx.facts.image.policy}" if later else "its CUDA release is not in the list"
    if image.os in _EL8 and minor > proven:
        why = f"CUDA on RHEL 8 is proven through {proven} only"
    yield ctx.unknown(f"whether nvidia/cuda:{image.tag} exists is not in the facts: {why}", (field,), "image")


@rule
def base_system(ctx: Context, base: Base, os: str) -> Findings:
    """The base image is of the row's operating system."""
    if base.os and base.os != os:
        yield ctx.error("base-os", f"the base image is {base.os}, and the row says {os}", ("base", "os"), "image")


@rule
def inference_base_system(ctx: Context, inference_base: Base, os: str) -> Findings:
    """The slim stage installs packages by the row's family, and its files come from the row's system."""
    if not inference_base.os or inference_base.os == os:
        return
    message = f"the inference base is {inference_base.os}, and the row says {os}"
    if inference_base.os.startswith(_RHEL) != os.startswith(_RHEL):
        yield ctx.error("base-os", f"{message}: another family of packages", ("inference_base", "os"), "image")
    else:
        yield ctx.warning("base-os", f"{message}: Python and libraries may differ", ("inference_base", "os"), "image")


@rule
def base_driver(ctx: Context, base: Base, variant: Variant | None = None) -> Findings:
    """Every driver of the fleet starts the base image."""
    if not variant or variant.cuda:
        yield from _driver(ctx, base, "base")


@rule
def inference_base_driver(ctx: Context, inference_base: Base, variant: Variant | None = None) -> Findings:
    """Every driver of the fleet starts the slim image."""
    if not variant or variant.cuda:
        yield from _driver(ctx, inference_base, "inference_base")


def _driver(ctx: Context, image: Base, field: str) -> Findings:
    if not image.cuda:
        return
    floor = ctx.facts.cuda.minor_compat_driver.get(image.cuda.major)
    toolkit = ctx.facts.cuda.by_version.get(image.cuda)
    entry = ctx.facts.image.by_version.get(image.cuda)
    for driver in ctx.drivers:
        admitted = _admitted(ctx, entry, driver)
        if floor and not driver.reaches(floor):
            if admitted:
                message = (
                    f"driver {driver} runs CUDA {image.cuda} only through the image's cuda-compat (data-centre GPUs)"
                )
                yield ctx.warning("driver", message, (field,), "image")
            else:
                message = f"the image's CUDA {image.cuda} needs driver {floor} or newer, and the fleet has {driver}"
                yield ctx.error("driver", message, (field,), "cuda")
        elif ctx.strict and toolkit and not admitted and not driver.reaches(toolkit.driver):
            message = (
                f"driver {driver} runs CUDA {image.cuda} only by minor-version compatibility: "
                f"it was made for {toolkit.driver} (--strict)"
            )
            yield ctx.error("driver", message, (field,), "cuda")


def _admitted(ctx: Context, entry: ImageRelease | None, driver: Driver) -> bool:
    """Whether the image admits this older branch: its cuda-compat libraries work on data-centre GPUs only."""
    consumer = any(gpu.datacentre is False for gpu in ctx.gpus)
    return entry is not None and not consumer and driver.branch in entry.old_branches


@rule
def cpu_row_on_cuda_image(ctx: Context, base: Base, variant: Variant) -> Findings:
    """A cpu wheel never uses the image's CUDA."""
    if base.cuda and variant.cuda is None:
        message = f"the row is cpu, and its base {base.tag} brings a CUDA {base.cuda} that torch will never use"
        yield ctx.warning("cpu-on-cuda", message, ("variant", "base"), "image")
