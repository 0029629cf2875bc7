"""The example project in the real train image, and the proof that its policies act as torch does in inference's."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from imagebuild.engine.container import Answer, Container, ContainerSettings
from imagebuild.engine.podman import Podman
from imagebuild.events import silent
from imagebuild.plan.plan import Plan
from imagebuild.plan.targets import Target
from imagebuild.run import smoke
from imagebuild.run.launch import Wishes, launch_of, podman_words
from imagebuild.spec import matrix
from tests.integration.tiny import Demo

_OWNER = "buildkit-test-example"
_RUN = "/workspace/runs/quick"
# Short runs, and what someone could do wrong with them: the normalisation left out, or that of another run.
_EXPORTS = """
import sys
sys.path.insert(0, "/opt/example")
from pathlib import Path
import numpy, torch
import learning
from checkpoints import find
from deploy import export_onnx

policy = learning.Policy(find(Path("/workspace/runs/quick")))
environments = learning.DummyVecEnv([learning.Starter("Crane-v0")])
other = learning.VecNormalize(environments)
other.reset()
for _ in range(50):
    other.step(numpy.ones((1, 1)))
for name, statistics in {"forgotten": None, "foreign": other}.items():
    policy.normalisation = statistics
    module = export_onnx.network(policy)
    path = Path("/smoke/out") / (name + ".onnx")
    export_onnx.write(module, path, torch.zeros(2, 6), None)
    export_onnx.describe(path, policy, module)
"""
_CLEAN = """
import sys, warnings
sys.path.insert(0, "/opt/example")
import envs, gymnasium
from gymnasium.utils.env_checker import check_env
warnings.simplefilter("error")
for name in envs.CRANES:
    check_env(gymnasium.make(name).unwrapped, skip_render_check=True)
"""
_SHORT = "device: cpu\nsteps: 256\nalgorithm: {algorithm}\nenvironment: {{id: {id}}}\n{algorithm}: {options}\n"
_PPO = "{n_steps: 128, batch_size: 64, n_epochs: 1}"
_SAC = "{learning_starts: 100, batch_size: 16, buffer_size: 1000}"


# The clock runs 200 s ahead each time that it is read; 256 steps in rollouts of 64.
_BY_TIME = """
import sys
sys.path.insert(0, "/opt/example")
import itertools, types
from pathlib import Path
import learning, settings, training
from checkpoints import Run

config = settings.load(Path("/smoke/quick.yaml"))
config["ppo"].update(n_steps=64)
config["checkpoint"].update(every_seconds=150.0, keep=9)
clock = itertools.count(0, 200)
training.time = types.SimpleNamespace(monotonic=lambda: next(clock))
model = learning.start(config, learning.make_environments(config))
run = Run(Path("/tmp/by-time"))
with run.locked():
    training.Keeper(run, config, types.SimpleNamespace(signal=0)).learn(model)
print([one.steps for one in run.all()])
"""
_LOST = """
cd /tmp; sed 's/id: Crane-v0/id: Crane-v0, count: 2, processes: true/; s/steps: 256/steps: 1000000/' \\
    /smoke/quick.yaml > lost.yaml
timeout 90 python /opt/example/train.py --config lost.yaml > lost.log 2>&1 & trainer=$!
until grep -q total_timesteps lost.log; do sleep 0.2; kill -0 $trainer; done
python -c 'import psutil; next(one for one in psutil.process_iter(["ppid", "cmdline"])
           if "forkserver" in " ".join(one.info["cmdline"])
           and one.parent() and one.parent().cmdline() == one.info["cmdline"]).kill()'
code=0; wait $trainer || code=$?
tail -1 lost.log; exit $code
"""


@pytest.fixture(scope="module")
def train(demo: Demo, podman: Podman) -> Iterator[Container]:
    """A container of the demo's train image, in which one short run was trained and exported."""
    settings = ContainerSettings(demo.image("train"), ["sleep", "infinity"], shm_bytes=2**28, owner=_OWNER)
    with Container(podman, settings) as container:
        container.put({"/smoke/quick.yaml": _SHORT.format(algorithm="ppo", id="Crane-v0", options=_PPO).encode()},
                      {"/smoke/out": 0o777})  # fmt: skip
        assert python(container, "/opt/example/train.py", "--config", "/smoke/quick.yaml").exit_code == 0
        exported = python(container, "/opt/example/deploy/export_onnx.py", _RUN, "--output", "/smoke/out/policy.onnx",
                          "--samples", "/smoke/out")  # fmt: skip
        assert exported.exit_code == 0, exported.output
        yield container


def python(container: Container, *arguments: str) -> Answer:
    """Run Python in a container."""
    return container.run(["python3", *arguments], timeout=200)


def shell(container: Container, script: str) -> Answer:
    """Run a shell script in a container."""
    return container.run(["sh", "-euc", script], timeout=200)


def test_the_environments_are_clean(train: Container) -> None:
    answer = python(train, "-c", _CLEAN)
    assert answer.exit_code == 0, answer.output


def test_a_wrong_or_missing_normalisation_fails_in_the_inference_image(
    demo: Demo, podman: Podman, train: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = python(train, "-c", _EXPORTS)
    assert made.exit_code == 0, made.output
    files = {name.removeprefix("out/"): data for name, data in train.get("/smoke/out").items()}
    files |= {f"discrete-{name}": files[name] for name in ("observations.npy", "actions.npy")}
    files["discrete.onnx"] = files["policy.onnx"]
    monkeypatch.setattr(smoke.Suite, "checks", lambda *_, **__: ["30-policy.py"])
    target = Target("inference", matrix.load(demo.folder / "matrix.yaml").rows["cpu"])
    suite = smoke.Suite.load(demo.folder, "inference")

    def outcome(policy: str) -> tuple[str, str]:
        artifacts = files | {"policy.onnx": files[policy]}
        request = smoke.Request(
            target, demo.image("inference"), "sha256:x", suite, artifacts=artifacts, owner=f"{_OWNER}-proof"
        )
        case = smoke.run_smoke(podman, request, silent, StringIO()).report.cases[0]
        return case.outcome, case.message

    assert outcome("policy.onnx")[0] == "passed"
    for policy, remedy in {
        "forgotten.onnx": "it was exported without VecNormalize's statistics; export the run's checkpoint with",
        "foreign.onnx": "are VecNormalize's statistics in it those of this very policy? export the run's checkpoint",
    }.items():
        result, message = outcome(policy)
        assert result == "failed", policy
        assert "policy.onnx: actions differ from torch's by" in message
        assert remedy in message


def test_the_exporter_refuses_statistics_that_are_missing_or_foreign(train: Container) -> None:
    checkpoint = f"{_RUN}/checkpoints/step-000000000256"
    for damage, said in {"rm": "vecnormalize.pkl is missing", "echo >>": "is not the file that was written"}.items():
        shell(train, f"rm -rf /tmp/damaged; cp -r {checkpoint} /tmp/damaged; {damage} /tmp/damaged/vecnormalize.pkl")
        answer = python(train, "/opt/example/deploy/export_onnx.py", "/tmp/damaged")
        assert answer.exit_code == 1
        assert said in answer.output.splitlines()[-1]
        assert shell(train, "test ! -e /tmp/damaged/policy.onnx").exit_code == 0


def test_checkpoints_are_also_due_by_time(train: Container) -> None:
    answer = python(train, "-c", _BY_TIME)
    assert answer.exit_code == 0, answer.output
    assert answer.output.splitlines()[-1] == "[0, 64, 128, 192, 256]"


def test_a_lost_environment_ends_the_training_and_says_so(train: Container) -> None:
    answer = shell(train, _LOST)
    assert answer.exit_code == 1, answer.output
    assert answer.output.splitlines()[-1].startswith("the process of an environment died: was it out of memory?")


@pytest.mark.parametrize(
    ("algorithm", "environment", "options", "kind"),
    [("sac", "Pendulum-v1", _SAC, "float32"), ("ppo", "CraneGears-v0", _PPO, "int64")],
)
def test_other_kinds_of_actions_export_too(
    train: Container, algorithm: str, environment: str, options: str, kind: str
) -> None:
    """SAC's bounds that are not 1, and several choices at once; the exporter itself compares with torch."""
    config = _SHORT.format(algorithm=algorithm, id=environment, options=options)
    train.put({f"/smoke/{environment}.yaml": config.encode()})
    answer = shell(train, f"""
        python /opt/example/train.py --config /smoke/{environment}.yaml --run /tmp/{environment} > /tmp/log
        python /opt/example/deploy/export_onnx.py /tmp/{environment}
        python -c "import onnxruntime; print(onnxruntime.InferenceSession(
            '/tmp/{environment}/policy.onnx').get_outputs()[0].type)"
    """)  # fmt: skip
    assert answer.exit_code == 0, answer.output
    assert answer.output.splitlines()[-1] == {"float32": "tensor(float)", "int64": "tensor(int64)"}[kind]


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ("s/^steps:/step:/", 2, "quick.yaml:2: step: no such key; did you mean steps?"),
        ("s/Crane-v0/Crnae-v0/", 2, "did you mean Crane-v0?"),
        ("s/device: cpu/device: cuda/", 2, "device: cuda is wanted, and torch sees no GPU"),
        ("s/n_epochs: 1/n_epochs: 2/", 2, "ppo.n_epochs was 1, and is 2: give --run another folder"),
        ("s/device: cpu/device: auto/", 0, "done already: 256 steps"),
    ],
)
def test_train_says_what_is_wrong_and_ends_as_it_should(train: Container, change: str, code: int, said: str) -> None:
    other = "" if "n_epochs" in change or code == 0 else "--run /tmp/wrong"
    answer = shell(train, f"mkdir -p /tmp/edited; sed '{change}' /smoke/quick.yaml > /tmp/edited/quick.yaml; "
                          f"python /opt/example/train.py --config /tmp/edited/quick.yaml {other}")  # fmt: skip
    assert answer.exit_code == code, answer.output
    assert said in answer.output
    assert "Traceback" not in answer.output


def test_what_a_container_writes_belongs_to_the_caller(demo: Demo, podman: Podman) -> None:
    """--userns=keep-id: the caller is the image's worker. In base: Podman copies an image for such a mapping."""
    workspace = Path(tempfile.mkdtemp(prefix="buildkit-workspace-"))
    workspace.chmod(0o777)  # the user of the Podman service may be another one than the test's
    try:
        planned = Plan(demo.folder, matrix.load(demo.folder / "matrix.yaml"))["base-cpu"]
        script = "id -u; touch /workspace/mine; stat -c %u /workspace/mine"
        launch = launch_of(planned, Wishes(gpu="off", workspace=workspace), ["sh", "-c", script])
        command = [*podman_words(podman.address), *launch.arguments()]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.stdout.split() == ["1000", "1000"], done.stderr
        host = subprocess.run(["stat", "-c", "%u", workspace / "mine"], capture_output=True, text=True, check=True)
        assert int(host.stdout) == Path(podman.address.removeprefix("unix://")).stat().st_uid
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
