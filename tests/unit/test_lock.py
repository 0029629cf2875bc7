"""The lock: its files, what they are compared with, what a change is called, and what is built from them."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from imagebuild.engine import resolve
from imagebuild.engine.host import PythonSettings
from imagebuild.engine.resolve import NO_UPGRADE, Resolver, UnreachableError, Upgrade
from imagebuild.errors import WorkError
from imagebuild.events import silent
from imagebuild.plan.plan import Plan
from imagebuild.plan.render import pin
from imagebuild.run import decide
from imagebuild.run.relock import Outcome, relock
from imagebuild.spec import lock, matrix
from imagebuild.spec.lockdiff import differences
from imagebuild.spec.models import Row
from imagebuild.spec.site import Site
from tests.calls import call
from tests.projects import ROOT, plan, project

TOP = "docker.io/nvidia/cuda"


def digest(word: str) -> str:
    return f"sha256:{hashlib.sha256(word.encode()).hexdigest()}"


def pins(*packages: str) -> str:
    """A locked requirements file of `name==version` words."""
    return "".join(f"{package} \\\n    --hash={digest(package)}\n" for package in packages)


class Shelf(Resolver):
    """Stands in for registries and indexes: every tag exists once, and requirements have no dependencies."""

    def __init__(self) -> None:
        self.moves = 0  # how often the tags have moved
        self.newest: dict[str, str] = {}
        self.failure: WorkError | None = None
        self.asked: list[str] = []
        self.constraints: dict[str, str] = {}

    def digest(self, reference: str) -> str:
        self._ask(reference)
        return digest(f"{reference} {self.moves}")

    def closure(
        self, row: Row, requirements: str, *, constraints: str = "", before: str = "", upgrade: Upgrade = NO_UPGRADE
    ) -> str:
        self._ask(f"{row.name} {requirements.splitlines()[0]}")
        self.constraints[requirements] = constraints
        old = {} if upgrade.everything else lock.pins_in(before)
        words = []
        for line in requirements.splitlines():
            name, _, version = line.partition("==")
            name = name.partition("[")[0]
            kept = old[name].version if name in old and name not in upgrade.packages else ""
            words.append(f"{name}=={version or kept or self.newest.get(name, '1.0')}")
        return pins(*sorted(words))

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.failure:
            raise self.failure


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return project(tmp_path)


def locked(folder: Path, shelf: Shelf, *rows: str, upgrade: Upgrade = NO_UPGRADE) -> list[Outcome]:
    made = plan(folder)
    return relock(made, rows or list(made.matrix.rows), shelf, silent, upgrade=upgrade)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def said(folder: Path, *rows: str, strict: bool = True) -> list[str]:
    made = plan(folder)
    return [str(one) for one in made.locks.problems(rows or made.matrix.rows, strict=strict)]


def changes(outcome: Outcome) -> list[str]:
    return [str(change) for change in outcome.changes]


# --- form -----------------------------------------------------------------------------------------


def test_what_is_written_is_what_is_read(folder: Path, shelf: Shelf) -> None:
    outcome = locked(folder, shelf, "cu118")[0]
    assert plan(folder).locks.read("cu118") == outcome.lock
    assert outcome.lock.image("base") == f"{TOP}@{digest(f'{TOP}:11.8.0-cudnn8-devel-rockylinux8 0')}"
    assert outcome.lock.pins("train")["stable-baselines3"].version == "2.3.2"
    assert sorted(path.name for path in (folder / "locks").iterdir()) == [
        "cu118-diag-tools.txt", "cu118-train.txt", "cu118.yaml",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "foo @ https://wheels.example/foo-1-py3-none-any.whl", "--index-url https://mirror.example/simple", "foo==1.0",
        "foo>=1", "--find-links /srv/wheels", "-e .", "foo==1.0 --hash=md5:00",
    ],
)  # fmt: skip
def test_nothing_but_pins_with_hashes_belongs_in_a_lock(line: str) -> None:
    assert lock.foreign_lines(f"# a comment\n{pins('bar==1')}{line}\n") == [line]
    assert lock.foreign_lines(f"# a comment\n\n{pins('bar==1', 'torch==2.13.0+cpu')}") == []


def test_the_committed_locks_are_whole_and_name_no_place() -> None:
    made = Plan(ROOT, matrix.load(ROOT / "matrix.yaml"))
    assert [one for one in made.locks.problems(made.matrix.rows, strict=False) if one.severity == "error"] == []
    assert made.locks.orphans() == []
    for path in (ROOT / "locks").iterdir():
        assert "://" not in path.read_text(), path
    for row in ("cpu", "cu128"):
        found = made.locks.of(row)
        assert found is not None, row
        assert not [text for text in found.files.values() if lock.foreign_lines(text)]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("<<<<<<< ours\nos: debian12\n", "not valid YAML"), ("- os\n", "should be a mapping"), ("os: a\n", "python"),
        ('os: a\npython: "3.11"\nimages: {base: {reference: x, digest: sha256:1}}\n', "digest"),
        ('os: a\npython: "3.11"\nindex: x\n', "unknown key"),
    ],
)  # fmt: skip
def test_a_lock_that_a_merge_spoiled_is_refused_at_its_line_and_can_be_made_anew(
    folder: Path, shelf: Shelf, text: str, what: str
) -> None:
    locked(folder, shelf, "cpu")
    (folder / "locks" / "cpu.yaml").write_text(text)
    problem = said(folder, "cpu")[0]
    assert problem.startswith("locks/cpu.yaml:")
    assert what in problem
    outcome = locked(folder, shelf, "cpu")[0]
    assert "replaced" in str(outcome.problems[0])
    assert said(folder, "cpu") == []


# --- fits, or not ---------------------------------------------------------------------------------


def test_a_fresh_lock_fits_and_comments_do_not_matter(folder: Path, shelf: Shelf) -> None:
    locked(folder, shelf)
    edit(folder / "matrix.yaml", "rows:\n", "# a comment\n\nrows:\n")
    edit(folder / "images" / "train" / "requirements.in.j2", "# While training", "# Meanwhile")
    assert said(folder) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("numpy: 2.3.5", "numpy: 2.3.4", "matrix.yaml:5:34: row cpu: moved since it was locked: train: "
         "numpy==2.3.5 -> numpy==2.3.4"),
        ("cpu: {variant: cpu, torch: 2.13.0}", "cpu: {variant: cpu, torch: 2.12.1}",
         "matrix.yaml:7:30: row cpu: moved since it was locked: train: torch==2.13.0+cpu -> torch==2.12.1+cpu"),
        ('python: "3.11"', 'python: "3.12"', "python 3.11 -> 3.12"),
        ("os: debian12", "os: debian13", "os debian12 -> debian13"),
        ("cpu: {variant: cpu,", 'cpu: {variant: cpu, ray: "2.50",', "train: ray[rllib]==2.50.* added"),
        ("cpu: {variant: cpu,", "cpu: {variant: cpu, stages: [base, train],", "diag-tools removed"),
        ("onnxruntime: 1.26.0", "onnxruntime: 1.25.0", "matrix.yaml:5:68: row cpu: moved since it was locked: "),
    ],
)  # fmt: skip
def test_what_moved_in_the_matrix_is_named_with_its_place(
    folder: Path, shelf: Shelf, old: str, new: str, message: str
) -> None:
    locked(folder, shelf)
    edit(folder / "matrix.yaml", old, new)
    assert any(message in one for one in said(folder, "cpu")), said(folder, "cpu")


def test_a_moved_base_and_a_requirement_of_a_template_are_named(folder: Path, shelf: Shelf) -> None:
    locked(folder, shelf)
    edit(folder / "matrix.yaml", "11.8.0-cudnn8-devel", "11.8.1-cudnn8-devel")
    edit(folder / "images" / "train" / "requirements.in.j2", "tqdm\n", "wandb\n")
    found = said(folder, "cu118")
    assert f"matrix.yaml:10:29: row cu118: moved since it was locked: base {TOP}:11.8.0" in found[0]
    assert [one.split(": ")[-1] for one in found[1:]] == ["tqdm removed", "wandb added"]


def test_a_missing_lock_an_edited_file_and_an_orphan_are_found(folder: Path, shelf: Shelf) -> None:
    locked(folder, shelf, "cpu", "cu118")
    assert said(folder, "cu128") == ["matrix.yaml:8:3: row cu128: it is not locked"]
    edit(folder / "locks" / "cpu-train.txt", "numpy==2.3.5", "numpy==2.3.6")
    assert said(folder, "cpu") == ["locks/cpu-train.txt: row cpu: this is not what was locked"]
    edit(folder / "matrix.yaml", "  cu118:", "  cu119:")
    assert plan(folder).locks.orphans() == ["cu118"]


def test_unresolved_parts_are_named_once_a_reason(folder: Path, shelf: Shelf) -> None:
    shelf.failure = UnreachableError("docker.io cannot be reached", detail="no route", hint="use a mirror")
    outcome = locked(folder, shelf, "cu118")[0]
    assert [(one.severity, str(one)) for one in outcome.problems] == [
        ("warning", "matrix.yaml:10:29: warning: row cu118: base and train: docker.io cannot be reached (no route)")
    ]
    assert said(folder, "cu118") == [
        "matrix.yaml:10:29: row cu118: base and train and diag-tools could not be locked: docker.io cannot be reached"
    ]
    assert said(folder, "cu118", strict=False)[0].startswith("matrix.yaml:10:29: warning: ")
    assert "no route" not in (folder / "locks" / "cu118.yaml").read_text()
    assert plan(folder).locks.of("cu118") is None


def test_check_exits_2_and_asks_nobody(folder: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    locked(folder, shelf)
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network was used"))
    monkeypatch.setattr("subprocess.Popen.__init__", lambda *_, **__: pytest.fail("a program was started"))
    assert call(folder, "lock", "--check")[0] == 0
    edit(folder / "matrix.yaml", "numpy: 2.3.5", "numpy: 2.3.4")
    code, out, _ = call(folder, "lock", "--check", "--json")
    assert code == 2
    assert {(one["file"], one["line"], one["subject"], one["hint"]) for one in json.loads(out)} == {
        ("matrix.yaml", 5, "row cpu", "buildkit lock cpu"), ("matrix.yaml", 5, "row cu128", "buildkit lock cu128"),
    }  # fmt: skip
    assert call(folder, "lock", "--check", "cu118")[0] == 0


# --- making locks ---------------------------------------------------------------------------------


def test_what_fits_is_not_asked_for_again_though_the_world_moved(folder: Path, shelf: Shelf) -> None:
    locked(folder, shelf)
    shelf.asked.clear()
    shelf.moves, shelf.newest = 1, {"tqdm": "9.9"}
    assert [changes(one) for one in locked(folder, shelf)] == [[], [], []]
    assert shelf.asked == []
    edit(folder / "matrix.yaml", "sb3: 2.3.2", "sb3: 2.3.1")
    assert changes(locked(folder, shelf, "cu118")[0]) == ["train: stable-baselines3 2.3.2 -> 2.3.1"]
    assert not any(TOP in one for one in shelf.asked)


def test_an_upgrade_moves_everything_or_one_package(folder: Path, shelf: Shelf) -> None:
    locked(folder, shelf)
    shelf.moves, shelf.newest = 1, {"tqdm": "9.9", "rich": "15.0"}
    assert changes(locked(folder, shelf, "cu118", upgrade=Upgrade(packages=("tqdm",)))[0]) == ["train: tqdm 1.0 -> 9.9"]
    found = changes(locked(folder, shelf, "cu118", upgrade=Upgrade(everything=True))[0])
    assert found[0].partition(" sha256")[0] == f"base {TOP}:11.8.0-cudnn8-devel-rockylinux8:"
    assert found[1:] == ["train: rich 1.0 -> 15.0"]


def test_what_was_locked_stays_when_nobody_answers(folder: Path, shelf: Shelf) -> None:
    before = locked(folder, shelf)
    shelf.failure = UnreachableError("the index cannot be reached")
    after = locked(folder, shelf, upgrade=Upgrade(everything=True))
    assert [one.lock for one in after] == [one.lock for one in before]
    assert all("what was locked stays" in str(problem) for one in after for problem in one.problems)
    assert said(folder) == []


def test_later_stages_are_locked_to_what_train_has(folder: Path, shelf: Shelf) -> None:
    outcome = locked(folder, shelf, "cpu")[0]
    assert shelf.constraints["py-spy"] == outcome.lock.files["train"]
    edit(folder / "matrix.yaml", "numpy: 2.3.5", "numpy: 2.3.4")
    shelf.asked.clear()
    locked(folder, shelf, "cpu")
    assert shelf.asked == ["cpu torch==2.13.0+cpu", "cpu py-spy"]


def test_what_does_not_exist_is_an_error_and_is_recorded(folder: Path, shelf: Shelf) -> None:
    shelf.failure = WorkError(f"docker.io has no {TOP}:0")
    assert [one.severity for one in locked(folder, shelf, "cu118")[0].problems] == ["error"]
    assert f"docker.io has no {TOP}:0" in said(folder, "cu118")[0]


def test_a_row_that_breaks_off_leaves_its_files_and_the_other_rows_whole(
    folder: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked(folder, shelf)
    files = {path: path.read_bytes() for path in (folder / "locks").iterdir()}
    edit(folder / "matrix.yaml", "numpy: 2.3.5", "numpy: 2.3.4")
    monkeypatch.setattr("os.replace", lambda *_: pytest.fail("half written"))

    def breaks(row: Row, requirements: str, **_options: Any) -> str:
        if requirements == "py-spy":
            raise KeyboardInterrupt
        return pins("numpy==2.3.4")

    monkeypatch.setattr(shelf, "closure", breaks)
    with pytest.raises(KeyboardInterrupt):
        locked(folder, shelf, "cpu")
    assert {path: path.read_bytes() for path in (folder / "locks").iterdir()} == files


def test_a_stage_that_is_no_more_leaves_no_file(folder: Path, shelf: Shelf) -> None:
    locked(folder, shelf, "cpu")
    edit(folder / "matrix.yaml", "cpu: {variant: cpu,", "cpu: {variant: cpu, stages: [base, train],")
    assert changes(locked(folder, shelf, "cpu")[0]) == ["diag-tools 1 package -> none"]
    assert not (folder / "locks" / "cpu-diag-tools.txt").exists()


# --- differences in words -------------------------------------------------------------------------


def row_lock(image: str, *packages: str, unresolved: str = "") -> lock.RowLock:
    text = pins(*packages) if packages else ""
    stage = lock.StagePart(
        requirements=("x",), digest=lock.digest_of(text) if packages else None, unresolved=unresolved
    )
    part = lock.ImagePart(reference=f"{TOP}:12", digest=digest(image))
    form = lock.Form(os="debian12", python="3.11", images={"base": part}, stages={"train": stage})
    return lock.RowLock("cu128", form, {"train": text} if packages else {})


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (row_lock("a", "Gymnasium==1.3.0", "bar==1"), row_lock("a", "gymnasium==1.4.0", "foo==1.2"),
         ["train: bar removed", "train: foo added 1.2", "train: gymnasium 1.3.0 -> 1.4.0"]),
        (row_lock("a", "x==1"), row_lock("b", "x==1"),
         [f"base {TOP}:12: {digest('a')[:19]} -> {digest('b')[:19]}"]),
        (row_lock("a", unresolved="why"), row_lock("a", "x==1", "y==1"), ["train unresolved (why) -> 2 packages"]),
        (row_lock("a", "x==1"), row_lock("a", "x==1"), []),
        (None, row_lock("a", "x==1"), [f": new: base {digest('a')[:19]}, train 1 package"]),
        (row_lock("a", "x==1"), None, [": no longer locked"]),
        (None, None, []),
    ],
)  # fmt: skip
def test_differences_in_words(before: lock.RowLock | None, now: lock.RowLock | None, words: list[str]) -> None:
    assert [str(one).removeprefix(": ") for one in differences(before, now)] == [
        one.removeprefix(": ") for one in words
    ]


def test_other_files_of_the_same_version_are_a_difference() -> None:
    before, now = row_lock("a", "x==1"), row_lock("a", "x==1")
    other = {"train": now.files["train"].replace(digest("x==1"), digest("other"))}
    stage = now.form.stages["train"].model_copy(update={"digest": lock.digest_of(other["train"])})
    changed = lock.RowLock("cu128", now.form.model_copy(update={"stages": {"train": stage}}), other)
    assert [str(one) for one in differences(before, changed)] == ["train: x 1 has other files"]


def test_diff_compares_with_a_revision(folder: Path, shelf: Shelf, git: Callable[..., None]) -> None:
    locked(folder, shelf)
    git("add", "locks")
    git("commit", "--quiet", "--message", "lock")
    git("tag", "before")
    assert call(folder, "lock", "--diff")[1] == "the locks are those of HEAD\n"
    edit(folder / "matrix.yaml", "numpy: 2.3.5", "numpy: 2.3.4")
    locked(folder, shelf, "cpu")
    (folder / "locks" / "cu118.yaml").unlink()
    assert call(folder, "lock", "--diff")[1] == "cpu/train: numpy 2.3.5 -> 2.3.4\ncu118: no longer locked\n"
    git("commit", "--quiet", "--all", "--message", "move")
    assert call(folder, "lock", "--diff", "cpu")[1] == "the locks are those of HEAD\n"
    assert json.loads(call(folder, "lock", "--diff", "--from", "before", "--json", "cpu")[1]) == {
        "cpu": [{"part": "train", "name": "numpy", "change": "numpy 2.3.5 -> 2.3.4"}]
    }  # fmt: skip
    code, _, err = call(folder, "lock", "--diff", "--from", "v9")
    assert (code, "no revision 'v9'" in err) == (2, True)


@pytest.fixture
def git(folder: Path) -> Callable[..., None]:
    def run(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)

    run("init", "--quiet")
    return run


# --- plan and build -------------------------------------------------------------------------------


def test_a_locked_row_is_built_from_its_lock_alone(folder: Path, shelf: Shelf) -> None:
    before = plan(folder)["train-cpu"]
    outcome = locked(folder, shelf, "cpu")[0]
    made = plan(folder)
    train = made["train-cpu"]
    file = next(file for file in train.context if file.path == "requirements.txt")
    assert (file.data.decode(), file.origin) == (outcome.lock.files["train"], "locks/cpu-train.txt")
    assert "--require-hashes --no-deps --only-binary :all: --requirements" in train.containerfile
    assert "--require-hashes" not in before.containerfile
    assert "--require-hashes" not in made["train-cu128"].containerfile
    assert {part.name: part.value for part in train.values} == {part.name: part.value for part in before.values}


def test_a_lock_that_moves_moves_the_digest_of_what_holds_it(folder: Path, shelf: Shelf) -> None:
    locked(folder, shelf)
    before = {name: plan(folder)[name].digest for name in plan(folder).targets}
    shelf.newest = {"tqdm": "9.9"}
    locked(folder, shelf, "cpu", upgrade=Upgrade(packages=("tqdm",)))
    after = plan(folder)
    changed = {name for name in before if after[name].digest != before[name]}
    assert changed == {"train-cpu", "diag-tools-cpu", "inference-cpu"}


def test_locked_images_are_named_by_digest(tmp_path: Path, shelf: Shelf) -> None:
    folder = project(tmp_path)
    edit(folder / "matrix.yaml", 'rockylinux8", variant', f'rockylinux8", inference_base: "{TOP}:run", variant')
    locked(folder, shelf, "cu118")
    made = plan(folder)
    for name, image in (("base-cu118", "11.8.0-cudnn8-devel-rockylinux8"), ("inference-cu118", "run")):
        by_digest = f"{TOP}@{digest(f'{TOP}:{image} 0')}"
        assert made[name].base_image == by_digest
        assert f"FROM {by_digest}\n" in made[name].containerfile
        assert next(part.origin for part in made[name].parts if part.name == "base") == "locks/cu118.yaml"
    before = made["base-cu118"].digest
    shelf.moves = 1
    locked(folder, shelf, "cu118", upgrade=Upgrade(everything=True))
    assert plan(folder)["base-cu118"].digest != before


def test_without_locks_the_plan_is_that_of_the_pins(folder: Path, shelf: Shelf) -> None:
    before = {name: plan(folder)[name].digest for name in plan(folder).targets}
    locked(folder, shelf)
    made = Plan(folder, matrix.load(folder / "matrix.yaml"), use_locks=False)
    assert {name: made[name].digest for name in made.targets} == before


@pytest.mark.parametrize(
    ("cached", "online", "asked", "code"),
    [
        (True, False, ["--offline pip install"], 0),
        (False, True, ["--offline pip install", "pip install --python"], 0),
        (False, False, ["--offline pip install", "pip install --python"], 1),
    ],
)
def test_a_locked_build_asks_the_index_only_for_what_the_cache_lacks(
    folder: Path, shelf: Shelf, tmp_path: Path, cached: bool, online: bool, asked: list[str], code: int
) -> None:
    """Runs the very shell commands of the Containerfile, with a stand-in for uv."""
    locked(folder, shelf, "cpu")
    containerfile = plan(folder)["train-cpu"].containerfile.replace("\\\n", " ")
    step = next(line for line in containerfile.splitlines() if "--require-hashes" in line)
    script = " ".join(word for word in step.split() if not word.startswith(("RUN", "--mount")))
    uv = tmp_path / "uv"
    uv.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n'
        f'case "$1" in --offline) exit {1 - cached};; *) exit {1 - online};; esac\n'
    )
    uv.chmod(0o755)
    script = script.replace("/run/buildkit/uv", str(uv)).replace("/opt/venv/.lock", str(tmp_path / "none"))
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=False)
    assert done.returncode == code
    lines = (tmp_path / "asked").read_text().splitlines()
    assert [line[: len(words)] for line, words in zip(lines, asked, strict=True)] == asked


@pytest.fixture
def nothing_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "presences", lambda planned, *_: {one.name: decide.Presence() for one in planned})


@pytest.mark.usefixtures("nothing_exists")
def test_build_refuses_what_its_lock_does_not_fit(folder: Path, shelf: Shelf) -> None:
    dry = ("build", "--dry-run")
    code, _, err = call(folder, *dry, "train-cpu")
    assert (code, "built without locks" in err) == (0, True)
    locked(folder, shelf, "cpu")
    assert "built without locks" not in call(folder, *dry, "train-cpu")[2]
    shelf.failure = UnreachableError("the Python index cannot be reached")
    locked(folder, shelf, "cu128")
    edit(folder / "matrix.yaml", "cpu: {variant: cpu,", "cpu: {variant: cpu, numpy: 2.3.4,")
    for target, message in {
        "train-cpu": "matrix.yaml:7:30: row cpu: moved since it was locked: train: numpy==2.3.5 -> numpy==2.3.4",
        "base-cu128": "matrix.yaml:8:34: row cu128: train and diag-tools could not be locked: "
        "the Python index cannot be reached",
    }.items():
        code, out, err = call(folder, *dry, target)
        assert (code, out, err.splitlines()[0]) == (2, "", message)
        assert f"hint: buildkit lock {target.partition('-')[2]}" in err
        code, _, err = call(folder, *dry, "--unlocked", target)
        assert (code, "built without locks" in err) == (0, True)


def test_rows_and_packages_are_not_mixed_up(folder: Path) -> None:
    for arguments, message in ((["nope"], "no row 'nope'"), (["--upgrade", "cpu"], "that is a row, not a package")):
        code, _, err = call(folder, "lock", *arguments)
        assert (code, message in err) == (2, True)


def test_two_numbers_mean_the_newest_patch_of_a_line(folder: Path) -> None:
    assert [pin(one) for one in ("2.4", "2.4.6", "2", "2.4rc1", "2.4.0.1")] == [
        "==2.4.*", "==2.4.6", "==2", "==2.4rc1", "==2.4.0.1",
    ]  # fmt: skip
    edit(folder / "matrix.yaml", "numpy: 2.3.5", "numpy: 2.3")
    assert "numpy==2.3.*" in plan(folder).needs("cpu").requirements["train"]


# --- what uv and registries say -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stderr", "reason", "passing"),
    [
        ("error: Request failed\n  cause: Failed to fetch: https://download.pytorch.org/whl/cpu/torch/\n  cause: dns",
         "download.pytorch.org cannot be reached", True),
        ("error: Failed to fetch: https://mirror.example/simple/x/\n  cause: Connection refused",
         "the Python index cannot be reached", True),
        ("error: No solution found\n  cause: Because there is no version of x==1 at https://me:pw@mirror.example/simple",
         "No solution found: Because there is no version of x==1 at an index", False),
        ("error: bad wheel in /srv/wheels/x", "bad wheel in the folder of wheels/x", False),
    ],
)  # fmt: skip
def test_failures_of_uv_are_told_without_addresses(
    stderr: str, reason: str, passing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = PythonSettings(folders=(Path("/srv/wheels"),), secrets=("pw",))
    monkeypatch.setattr("imagebuild.engine.host.python_settings", lambda _site: settings)
    failure = Resolver(Site())._failure(stderr, "https://download.pytorch.org/whl/cpu")
    assert (failure.message, isinstance(failure, UnreachableError)) == (reason, passing)


def test_the_platform_is_that_of_the_rows_system() -> None:
    rows = plan(ROOT).matrix.rows
    found = {row.os: resolve.platform(row) for row in rows.values()}
    assert found == {"debian12": "x86_64-manylinux_2_36", "rockylinux8": "x86_64-manylinux_2_28"}
    newer = rows["cpu"].model_copy(update={"os": "debian13"})
    assert resolve.platform(newer) == "x86_64-manylinux_2_40"
