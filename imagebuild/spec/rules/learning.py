"""The reinforcement-learning stack: Stable-Baselines3, sb3-contrib, Gymnasium, MuJoCo, Ray with RLlib, NumPy."""

from __future__ import annotations

from packaging.version import Version

from imagebuild.spec import values
from imagebuild.spec.rules.book import YANKED, Context, Findings, listing, release_findings, rule
from imagebuild.spec.rules.host import os_of
from imagebuild.spec.values import Base


@rule
def sb3_release(ctx: Context, sb3: Version) -> Findings:
    """The release exists and was not withdrawn."""
    facts = ctx.facts.sb3
    if sb3 in facts.yanked:
        yield ctx.error(YANKED, f"stable-baselines3 {sb3} was withdrawn (yanked)", ("sb3",), "sb3")
        return
    known = facts.releases.keys()
    yield from release_findings(ctx, "sb3", "stable-baselines3", sb3, known, complete=True, section="sb3")


@rule
def sb3_python(ctx: Context, sb3: Version, python: Version) -> Findings:
    """Stable-Baselines3 takes this Python."""
    entry = ctx.facts.sb3.releases.get(sb3)
    if entry and not values.admits(entry.py, python):
        message = f"stable-baselines3 {sb3} needs Python {values.spelled(entry.py)}, not {python}"
        yield ctx.error("python", message, ("python", "sb3"), "sb3")


@rule
def sb3_torch(ctx: Context, sb3: Version, torch: Version) -> Findings:
    """Stable-Baselines3 takes this torch."""
    entry = ctx.facts.sb3.releases.get(sb3)
    if not entry:
        return
    if not values.admits(entry.torch, values.version(torch.public)):
        message = f"stable-baselines3 {sb3} needs torch {values.spelled(entry.torch)}, not {torch}"
        yield ctx.error("sb3-torch", message, ("sb3", "torch"), "sb3")


@rule
def sb3_gymnasium(ctx: Context, sb3: Version, gymnasium: Version) -> Findings:
    """Stable-Baselines3 takes this Gymnasium; before 2.0 it took gym."""
    entry = ctx.facts.sb3.releases.get(sb3)
    if not entry:
        return
    if entry.gymnasium is None:
        message = f"stable-baselines3 {sb3} needs gym{entry.gym} and knows no gymnasium; 2.0.0 is the first that does"
        yield ctx.error("sb3-gymnasium", message, ("sb3", "gymnasium"), "sb3")
    elif not values.admits(entry.gymnasium, gymnasium):
        message = f"stable-baselines3 {sb3} needs gymnasium {values.spelled(entry.gymnasium)}, not {gymnasium}"
        yield ctx.error("sb3-gymnasium", message, ("gymnasium", "sb3"), "sb3")


@rule
def contrib_release(ctx: Context, sb3_contrib: Version) -> Findings:
    """The release exists."""
    known = ctx.facts.sb3_contrib.releases.keys()
    yield from release_findings(
        ctx, "sb3_contrib", "sb3-contrib", sb3_contrib, known, complete=True, section="sb3_contrib"
    )


@rule
def contrib_python(ctx: Context, sb3_contrib: Version, python: Version) -> Findings:
    """sb3-contrib takes this Python."""
    entry = ctx.facts.sb3_contrib.releases.get(sb3_contrib)
    if entry and not values.admits(entry.py, python):
        message = f"sb3-contrib {sb3_contrib} needs Python {values.spelled(entry.py)}, not {python}"
        yield ctx.error("python", message, ("python", "sb3_contrib"), "sb3_contrib")


@rule
def contrib_sb3(ctx: Context, sb3_contrib: Version, sb3: Version) -> Findings:
    """sb3-contrib takes this Stable-Baselines3."""
    entry = ctx.facts.sb3_contrib.releases.get(sb3_contrib)
    if entry and not values.admits(entry.sb3, sb3):
        message = f"sb3-contrib {sb3_contrib} needs stable-baselines3 {values.spelled(entry.sb3)}, not {sb3}"
        yield ctx.error("sb3-contrib", message, ("sb3_contrib", "sb3"), "sb3_contrib")


@rule
def gymnasium_release(ctx: Context, gymnasium: Version) -> Findings:
    """The release is known; the facts skip patch releases."""
    known = ctx.facts.gymnasium.releases.keys()
    yield from release_findings(ctx, "gymnasium", "gymnasium", gymnasium, known, complete=False, section="gymnasium")
    if min(known) < gymnasium < max(known) and not ctx.facts.gymnasium.at(gymnasium):
        yield ctx.unknown(f"the facts do not know gymnasium {gymnasium}", ("gymnasium",), "gymnasium")


@rule
def gymnasium_python(ctx: Context, gymnasium: Version, python: Version) -> Findings:
    """Gymnasium takes this Python."""
    entry = ctx.facts.gymnasium.at(gymnasium)
    if entry and not values.admits(entry.py, python):
        message = f"gymnasium {gymnasium} needs Python {values.spelled(entry.py)}, not {python}"
        yield ctx.error("python", message, ("python", "gymnasium"), "gymnasium")


@rule
def gymnasium_mujoco(ctx: Context, gymnasium: Version, mujoco: Version) -> Findings:
    """Gymnasium's MuJoCo environments work with this MuJoCo."""
    entry = ctx.facts.gymnasium.at(gymnasium)
    if not entry:
        return
    if not values.admits(entry.mujoco, mujoco):
        message = f"gymnasium {gymnasium} needs mujoco {values.spelled(entry.mujoco)}, not {mujoco}"
    elif not values.admits(entry.mujoco_max, mujoco):
        message = (
            f"the MuJoCo environments of gymnasium {gymnasium} break with mujoco {mujoco}: "
            f"they take {values.spelled(entry.mujoco_max)}, though its metadata does not say so"
        )
    else:
        measured = ctx.facts.gymnasium.mujoco4_measured_from
        if mujoco.major >= 4 and gymnasium < measured:
            message = f"mujoco {mujoco} was tried with gymnasium {measured} only, not with {gymnasium}"
            yield ctx.unknown(message, ("mujoco", "gymnasium"), "gymnasium")
        return
    yield ctx.error("gymnasium-mujoco", message, ("mujoco", "gymnasium"), "gymnasium")


@rule
def mujoco_release(ctx: Context, mujoco: Version) -> Findings:
    """The release is not beyond the facts, which are a sample."""
    known = ctx.facts.mujoco.releases.keys()
    yield from release_findings(ctx, "mujoco", "mujoco", mujoco, known, complete=False, section="mujoco")


@rule
def mujoco_python(ctx: Context, mujoco: Version, python: Version) -> Findings:
    """MuJoCo has a wheel for this Python; between two known releases only what neither has is wrong."""
    entries = ctx.facts.mujoco.around(mujoco)
    held = [entry.py.holds(python) for entry in entries]
    if entries and not any(held):
        ranges = listing(dict.fromkeys(entry.py for entry in entries))
        message = f"mujoco {mujoco} has wheels for Python {ranges}, not for {python}"
        yield ctx.error("python", message, ("python", "mujoco"), "mujoco")
    elif not all(held):
        message = f"whether mujoco {mujoco} has a wheel for Python {python} is not in the facts: its neighbours differ"
        yield ctx.unknown(message, ("mujoco", "python"), "mujoco")


@rule
def mujoco_glibc(ctx: Context, mujoco: Version, os: str | None = None, base: Base | None = None) -> Findings:
    """The image's C library is new enough for MuJoCo's wheel."""
    system, field = os_of(ctx, os, base)
    floors = [entry.glibc for entry in ctx.facts.mujoco.around(mujoco)]
    if system and floors and ctx.facts.os[system].glibc < min(floors):
        message = f"mujoco {mujoco} needs glibc {min(floors)}, and {system} has {ctx.facts.os[system].glibc}"
        yield ctx.error("glibc", message, (field, "mujoco"), "mujoco")


@rule
def ray_release(ctx: Context, ray: Version) -> Findings:
    """The release belongs to a line that the facts know."""
    facts = ctx.facts.ray
    if facts.at(ray):
        return
    known = [facts.lines[0].first, facts.newest]
    yield from release_findings(ctx, "ray", "ray", ray, known, complete=False, section="ray")


@rule
def ray_python(ctx: Context, ray: Version, python: Version) -> Findings:
    """Ray has wheels for this Python."""
    line = ctx.facts.ray.at(ray)
    if line and not line.py.holds(python):
        message = f"ray {ray} has wheels for Python {line.py}, not for {python}"
        yield ctx.error("python", message, ("python", "ray"), "ray")


@rule
def ray_gymnasium(ctx: Context, ray: Version, gymnasium: Version) -> Findings:
    """RLlib pins exactly one Gymnasium."""
    line = ctx.facts.ray.at(ray)
    if line and gymnasium != line.gymnasium:
        message = f"ray[rllib] {ray} pins gymnasium {line.gymnasium}, not {gymnasium}"
        yield ctx.error("ray-gymnasium", message, ("gymnasium", "ray"), "ray")


@rule
def numpy_release(ctx: Context, numpy: Version) -> Findings:
    """The release was not withdrawn; two numbers name a line (2.4 is not 2.4.0)."""
    facts = ctx.facts.numpy
    if len(numpy.release) > 2 and numpy in facts.yanked:
        yield ctx.error(YANKED, f"numpy {numpy} was withdrawn (yanked)", ("numpy",), "numpy")
    if values.minor_of(numpy) in facts.lines:
        return
    yield from release_findings(ctx, "numpy", "numpy", numpy, facts.lines.keys(), complete=True, section="numpy")


@rule
def numpy_python(ctx: Context, numpy: Version, python: Version) -> Findings:
    """NumPy has wheels for this Python."""
    line = ctx.facts.numpy.lines.get(values.minor_of(numpy))
    if line and not line.py.holds(python):
        message = f"numpy {numpy} has wheels for Python {line.py}, not for {python}"
        yield ctx.error("python", message, ("python", "numpy"), "numpy")


@rule
def numpy_torch(ctx: Context, numpy: Version, torch: Version) -> Findings:
    """torch takes NumPy 2 from a release on; older ones import, and fail at the first conversion."""
    first = ctx.facts.torch.numpy2_from
    if numpy.major >= 2 and torch < first:
        message = (
            f"torch {torch} was built against numpy 1 and breaks with {numpy}; numpy 2 needs torch {first} or newer"
        )
        yield ctx.error("numpy", message, ("numpy", "torch"), "numpy")


@rule
def numpy_sb3(ctx: Context, numpy: Version, sb3: Version) -> Findings:
    """Stable-Baselines3 takes this NumPy."""
    entry, first = ctx.facts.sb3.releases.get(sb3), ctx.facts.sb3.numpy2_from
    if numpy.major >= 2 and sb3 < first:
        message = f"stable-baselines3 {sb3} does not work with numpy {numpy}: numpy 2 needs {first} or newer"
    elif entry and not values.admits(entry.numpy, numpy):
        message = f"stable-baselines3 {sb3} needs numpy {values.spelled(entry.numpy)}, not {numpy}"
    else:
        return
    yield ctx.error("numpy", message, ("numpy", "sb3"), "sb3")


@rule
def numpy_gymnasium(ctx: Context, numpy: Version, gymnasium: Version) -> Findings:
    """Gymnasium takes this NumPy."""
    entry = ctx.facts.gymnasium.at(gymnasium)
    if entry and not values.admits(entry.numpy, numpy):
        message = f"gymnasium {gymnasium} needs numpy {values.spelled(entry.numpy)}, not {numpy}"
        yield ctx.error("numpy", message, ("numpy", "gymnasium"), "gymnasium")
