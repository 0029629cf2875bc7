"""The values that a field of a row could have instead, the nearest first."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence

from packaging.version import Version

from imagebuild.spec import values
from imagebuild.spec.combo import Combo, text_of, value_of
from imagebuild.spec.facts import Facts
from imagebuild.spec.facts_gpu import ImageFacts
from imagebuild.spec.values import Base, TensorRT, Variant

_MOST_IMAGES = 60


def candidates(facts: Facts, combo: Combo, field: str) -> Iterator[str]:
    """Other values for a field, the nearest first; none for a field that the row leaves out."""
    current = text_of(combo, field)
    if current is None or field not in _TABLES:
        return
    for text in _TABLES[field](facts, combo, field):
        if text != current:
            yield text


def _versions(known: Callable[[Facts], Iterable[Version]]) -> Callable[[Facts, Combo, str], Iterable[str]]:
    """Candidates among the versions of a table."""

    def near(facts: Facts, combo: Combo, field: str) -> Iterable[str]:
        return _by_distance(tuple(known(facts)), value_of(combo, field))

    return near


@functools.lru_cache(maxsize=4096)
def _by_distance(known: tuple[Version, ...], current: Version | None) -> tuple[str, ...]:
    """Versions by their distance, in releases, from the current one, the newer of two equally near first.

    Without a current one, the newest comes first.
    """
    ordered = sorted(known)
    if current is None:
        return tuple(str(release) for release in reversed(ordered))
    at = sum(release < current for release in ordered)
    here = at if at < len(ordered) and ordered[at] == current else at - 0.5
    ranked = sorted(range(len(ordered)), key=lambda place: (abs(place - here), -place))
    return tuple(str(ordered[place]) for place in ranked)


def _variants(facts: Facts, combo: Combo, _field: str) -> Sequence[str]:
    """The variants of the row's torch, by their distance in CUDA releases; `cpu` is no way to mend a CUDA row."""
    torch = value_of(combo, "torch")
    entry = facts.torch.by_version.get(torch) if torch else None
    names = entry.variants_of(torch) if entry else list(facts.torch.floors)
    current: Variant | None = value_of(combo, "variant")
    here = current.cuda if current and current.cuda else None
    cuda = {values.variant(name).cuda: name for name in names}
    if current and current.cuda is None:
        return ["cpu"]
    return [cuda[values.version(text)] for text in _by_distance(tuple(key for key in cuda if key), here)]


def _images(facts: Facts, combo: Combo, field: str) -> Sequence[str]:
    """Images of nvidia/cuda, those that change the least first; any other image is nobody's guess."""
    current: Base | None = value_of(combo, field)
    if current is None or not (current.cuda or current.unreadable):
        return []
    return _near_images(facts.image, current)


@functools.lru_cache(maxsize=4096)
def _near_images(facts: ImageFacts, current: Base) -> Sequence[str]:
    def distance(other: Base) -> tuple[int, int, str]:
        system = 0 if other.os == current.os else 2 if _family(other.os) == _family(current.os) else 4
        kind = (bool(other.cudnn) != bool(current.cudnn)) + (other.flavour != current.flavour)
        steps = abs(order[other.cuda] - here)
        return system + 2 * kind + 2 * bool(steps), steps, other.tag

    cuda = [entry.v for entry in facts.releases]
    order: dict[Version | None, int] = {release: place for place, release in enumerate(cuda)}
    here = sum(release < current.cuda for release in cuda) if current.cuda else len(cuda) - 1
    return [current.with_tag(other.tag) for other in sorted(facts.published, key=distance)[:_MOST_IMAGES]]


def _family(system: str | None) -> str:
    return (system or "").rstrip("0123456789.").replace("ubi", "rockylinux")


def _pythons(facts: Facts, combo: Combo, _field: str) -> Iterable[str]:
    """The Pythons of the row's system first; then all that any torch ever had."""
    current: Version | None = value_of(combo, "python")
    base: Base | None = value_of(combo, "base")
    system = facts.os.get(text_of(combo, "os") or (base.os if base else None) or "")
    known = {entry.py.first for entry in facts.torch.releases} | {entry.py.last for entry in facts.torch.releases}
    here = values.minor_of(current) if current else None
    packaged = list(_by_distance(system.python, here)) if system else []
    return dict.fromkeys([*packaged, *_by_distance(tuple(known), here)])


def _torchvisions(facts: Facts, combo: Combo, field: str) -> Iterable[str]:
    """The one made for the row's torch first."""
    torch: Version | None = value_of(combo, "torch")
    entry = facts.torch.by_version.get(torch) if torch else None
    fitting = [str(entry.torchvision_of(torch))] if entry and torch else []
    return dict.fromkeys([*fitting, *_by_distance(facts.torch.torchvisions, value_of(combo, field))])


def _rays(facts: Facts, combo: Combo, field: str) -> Iterable[str]:
    """One release of each line; `2.60` is as good as `2.60.0`, which exists."""
    ends = {release for line in facts.ray.lines for release in (line.first, line.last)}
    current: Version | None = value_of(combo, field)
    return (f"{text}.0" for text in _by_distance(tuple(ends), values.minor_of(current) if current else None))


def _tensorrts(facts: Facts, combo: Combo, field: str) -> Iterable[str]:
    """Other releases of the same package, and of the packages for other CUDA majors if the row names one."""
    current: TensorRT | None = value_of(combo, field)
    release = current.version if current else None
    near = _by_distance(facts.tensorrt.releases, release)
    if current is None or not current.package:
        return near
    packages = sorted(
        (f"tensorrt-{name}" for name in facts.tensorrt.packages), key=lambda name: name != current.package
    )
    return [f"{package}=={text}" for text in (str(release), *near) for package in packages]


def _opsets(facts: Facts, combo: Combo, _field: str) -> Iterable[str]:
    """What the row's ONNX Runtime reads."""
    onnxruntime: Version | None = value_of(combo, "onnxruntime")
    line = facts.onnxruntime.lines.get(values.minor_of(onnxruntime)) if onnxruntime else None
    return [str(line.opset)] if line and line.opset else []


_TABLES: dict[str, Callable[[Facts, Combo, str], Iterable[str]]] = {
    "base": _images,
    "inference_base": _images,
    "os": lambda facts, _combo, _field: facts.os,
    "python": _pythons,
    "variant": _variants,
    "wheels": lambda _facts, _combo, _field: ("pytorch",),
    "torch": _versions(lambda facts: facts.torch.by_version),
    "torchvision": _torchvisions,
    "sb3": _versions(lambda facts: [known for known in facts.sb3.releases if known not in facts.sb3.yanked]),
    "sb3_contrib": _versions(lambda facts: facts.sb3_contrib.releases),
    "gymnasium": _versions(lambda facts: facts.gymnasium.releases),
    "mujoco": _versions(lambda facts: facts.mujoco.releases),
    "numpy": _versions(lambda facts: [line.newest for line in facts.numpy.lines.values()]),
    "onnxruntime": _versions(lambda facts: [line.newest for line in facts.onnxruntime.lines.values()]),
    "ray": _rays,
    "tensorrt": _tensorrts,
    "opset": _opsets,
}
