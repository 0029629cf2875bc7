"""torch and torchvision: which releases and wheel variants exist, and where a wheel runs."""

from __future__ import annotations

from packaging.version import Version

from imagebuild.spec import values
from imagebuild.spec.facts_gpu import TorchRelease
from imagebuild.spec.rules.book import YANKED, Context, Findings, listing, release_findings, rule
from imagebuild.spec.rules.host import os_of
from imagebuild.spec.values import Base, Variant


def _entry(ctx: Context, torch: Version) -> TorchRelease | None:
    return ctx.facts.torch.by_version.get(torch)


def _alternatives(entry: TorchRelease, torch: Version) -> str:
    return listing(["cpu", *entry.variants_of(torch)])


@rule
def torch_release(ctx: Context, torch: Version) -> Findings:
    """The release exists, and is written without the variant."""
    if torch.local:
        message = f"torch {torch} names its variant itself: write torch {torch.public} and the variant in `variant`"
        yield ctx.error("version", message, ("torch", "variant"), "torch")
        return
    known = ctx.facts.torch.by_version
    yield from release_findings(ctx, "torch", "torch", torch, known, complete=True, section="torch")


@rule
def torch_variant(ctx: Context, variant: Variant, torch: Version | None = None) -> Findings:
    """The release has a wheel of this variant."""
    facts, name = ctx.facts.torch, variant.name
    if variant.cuda is None:
        return
    entry = _entry(ctx, torch) if torch else None
    ceiling = facts.ceilings.get(name)
    ended = f"; {name} ended with torch {ceiling}" if ceiling and torch and torch > ceiling else ""
    floor = facts.floors.get(name)
    begins = f"; {name} begins with torch {floor}" if floor and torch and torch < floor else ""
    if name in facts.never_published:
        has = f"; torch {torch} has {_alternatives(entry, torch)}" if entry and torch else ""
        yield ctx.error("torch-variant", f"no torch was ever published as {name}{has}", ("variant", "torch"), "torch")
    elif entry and torch:
        if name in entry.variants_of(torch):
            return
        if facts.unconfirmed.get(name) == torch:
            yield ctx.unknown(f"whether torch {torch} has a {name} wheel is not confirmed", ("variant",), "torch")
            return
        message = f"torch {torch} has no {name} wheel ({_alternatives(entry, torch)} exist){ended}{begins}"
        yield ctx.error("torch-variant", message, ("torch", "variant"), "torch")
    elif ended or begins:
        yield ctx.error(
            "torch-variant", f"torch {torch} has no {name} wheel{ended}{begins}", ("torch", "variant"), "torch"
        )
    elif floor is None:
        yield ctx.unknown(f"the facts do not know the wheel variant {name}", ("variant",), "torch")


@rule
def wheels_from_pypi(ctx: Context, torch: Version, variant: Variant, wheels: str) -> Findings:
    """The Python package index has only one variant of each release."""
    entry = _entry(ctx, torch)
    if wheels == "pypi" and entry and variant.name != entry.default:
        message = (
            f"`wheels: pypi` gives torch {torch} as {entry.default}, not as {variant}: "
            "the Python package index has only each release's default"
        )
        yield ctx.error("wheels-pypi", message, ("variant", "torch", "wheels"), "torch")


@rule
def torch_python(ctx: Context, torch: Version, python: Version) -> Findings:
    """The release has wheels for this Python, and triton for torch.compile."""
    entry = _entry(ctx, torch)
    if not entry:
        return
    if not entry.py.holds(python):
        message = f"torch {torch} has wheels for Python {entry.py}, not for {python}"
        yield ctx.error("python", message, ("python", "torch"), "torch")
    first = entry.no_triton.get(values.minor_of(python))
    if first and torch >= first:
        message = f"torch {torch} gets no triton on Python {python}: torch.compile does not work"
        yield ctx.warning("triton", message, ("torch", "python"), "torch")


@rule
def torch_glibc(
    ctx: Context, torch: Version, variant: Variant | None = None, os: str | None = None, base: Base | None = None
) -> Findings:
    """The image's C library is new enough for the wheel."""
    system, field = os_of(ctx, os, base)
    entry = _entry(ctx, torch)
    if not system or not entry:
        return
    floor = entry.glibc_override.get(variant.name, entry.glibc) if variant else entry.glibc
    glibc = ctx.facts.os[system].glibc
    if glibc < floor:
        message = f"torch {torch} needs glibc {floor}, and {system} has {glibc}"
        yield ctx.error("glibc", message, (field, "torch", "variant"), "torch")


@rule
def torch_gpus(ctx: Context, variant: Variant, torch: Version | None = None) -> Findings:
    """The wheel has code for every GPU of the fleet."""
    if variant.cuda is None:
        return
    entry = _entry(ctx, torch) if torch else None
    if not entry or variant.name not in entry.variants:
        toolkit = ctx.facts.cuda.first_of_minor.get(variant.cuda)
        for gpu in ctx.gpus:
            if toolkit and not toolkit.cc[0] <= gpu.cc and variant.name not in ctx.facts.torch.never_published:
                message = f"{gpu} is too old for CUDA {variant.cuda}, which begins with {toolkit.cc[0]}"
                yield ctx.error("sm", message, ("variant",), "cuda")
        return
    archs = ctx.facts.torch.sm_sets[entry.variants[variant.name][1]]
    for gpu in ctx.gpus:
        if not any(arch.runs_on(gpu.cc) for arch in archs):
            message = f"{gpu} cannot run torch {torch} {variant}, which is built for {listing(archs)}"
            yield ctx.error("sm", message, ("variant", "torch"), "torch")


@rule
def torch_cudnn(ctx: Context, torch: Version, variant: Variant) -> Findings:
    """The cuDNN in the wheel serves the GPUs that its kernels are built for."""
    entry = _entry(ctx, torch)
    if variant.cuda is None or not entry or variant.name not in entry.variants:
        return
    cudnn, archs = entry.variants[variant.name]
    drops = ctx.facts.gpu.cudnn_drops
    for gpu in ctx.gpus:
        if gpu.cc >= drops.below_cc or not any(arch.runs_on(gpu.cc) for arch in ctx.facts.torch.sm_sets[archs]):
            continue
        if cudnn is None:
            message = (
                f"which cuDNN torch {torch} {variant} carries is not known; from {drops.from_} on it fails on {gpu}"
            )
            yield ctx.unknown(message, ("variant", "torch"), "gpu")
        elif cudnn >= drops.from_:
            message = f"torch {torch} {variant} carries cuDNN {cudnn}, and from {drops.from_} on it fails on {gpu}"
            yield ctx.error("cudnn", message, ("variant", "torch"), "gpu")


@rule
def torch_driver(ctx: Context, variant: Variant) -> Findings:
    """Every driver of the fleet can run the wheel's CUDA."""
    if variant.cuda is None:
        return
    cuda = ctx.facts.cuda
    floor = cuda.minor_compat_driver.get(variant.cuda.major)
    toolkit = cuda.first_of_minor.get(variant.cuda)
    for driver in ctx.drivers:
        if floor and not driver.reaches(floor):
            message = f"the {variant} wheel needs driver {floor} or newer, and the fleet has {driver}"
            yield ctx.error("driver", message, ("variant", "torch"), "cuda")
        elif ctx.strict and toolkit and not driver.reaches(toolkit.driver):
            message = (
                f"driver {driver} runs {variant} only by minor-version compatibility: "
                f"CUDA {variant.cuda} was made for {toolkit.driver} (--strict)"
            )
            yield ctx.error("driver", message, ("variant", "torch"), "cuda")


@rule
def torch_extensions(
    ctx: Context, torch: Version, base: Base, variant: Variant | None = None, os: str | None = None
) -> Findings:
    """A devel image is there to compile extensions: its nvcc and compiler must fit the wheel."""
    if base.flavour != "devel" or not base.cuda:
        return
    if variant and variant.cuda and variant.cuda.major != base.cuda.major:
        message = (
            f"extensions compiled with the image's CUDA {base.cuda} do not load into torch {variant}: "
            "their CUDA majors differ (a base or runtime image is enough to run the wheel)"
        )
        yield ctx.warning("torch-extension", message, ("base", "variant"), "torch")
    system, _ = os_of(ctx, os, base)
    if system in {"rockylinux8", "ubi8"} and torch >= ctx.facts.torch.cxx20_headers_from:
        message = (
            f"the gcc 8.5 of {system} cannot compile extensions for torch {torch} (C++20 headers): use gcc-toolset"
        )
        yield ctx.warning("torch-extension", message, ("torch", "base"), "torch")


@rule
def torchvision_release(ctx: Context, torchvision: Version) -> Findings:
    """The release exists and was not withdrawn."""
    facts = ctx.facts.torch
    public = values.version(torchvision.public)
    if public in facts.torchvision_yanked:
        yield ctx.error(YANKED, f"torchvision {public} was withdrawn (yanked)", ("torchvision",), "torch")
        return
    yield from release_findings(
        ctx, "torchvision", "torchvision", public, facts.torchvisions, complete=True, section="torch"
    )


@rule
def torchvision_torch(ctx: Context, torchvision: Version, torch: Version) -> Findings:
    """torchvision is the one made for this torch."""
    facts, entry = ctx.facts.torch, _entry(ctx, torch)
    free = facts.torchvision_free.get(torchvision)
    if free is not None:
        if not values.admits(free, torch):
            message = f"torchvision {torchvision} needs torch {values.spelled(free)}, not {torch}"
            yield ctx.error("torchvision", message, ("torchvision", "torch"), "torch")
    elif entry and torchvision not in facts.torchvision_yanked:
        fitting = entry.torchvision_of(torch)
        if torchvision != fitting and torchvision <= max(facts.torchvisions):
            made_for = [
                release for release, other in facts.by_version.items() if other.torchvision_of(release) == torchvision
            ]
            wants = f" (it wants exactly torch {made_for[0]})" if made_for else ""
            message = f"torch {torch} goes with torchvision {fitting}, not {torchvision}{wants}"
            yield ctx.error("torchvision", message, ("torchvision", "torch"), "torch")


@rule
def torchvision_python(ctx: Context, torchvision: Version, python: Version) -> Findings:
    """One Python patch release is refused by a range of torchvisions."""
    ban = ctx.facts.torch.torchvision_not_on
    if python == ban.python and values.admits(ban.torchvision, torchvision):
        message = f"torchvision {torchvision} refuses Python {python}; any other patch release will do"
        yield ctx.error("python", message, ("python", "torchvision"), "torch")
