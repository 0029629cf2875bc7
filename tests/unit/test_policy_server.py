"""The policy server outside its image: options, messages whatever is in them, and the health check."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serving import client, module, px, stand

options = module("policy_server.options")
protocol = module("policy_server.protocol")
supervise = module("policy_server.supervise")
health = module("policy_server.health")
cli = module("policy_server.cli")


def act(observations: list[Any]) -> list[Any]:
    if observations == [["no"]]:
        raise protocol.RefusedError("bad_observation", "numbers only")
    return [sum(each) for each in observations]


def conversation() -> Any:
    return protocol.Conversation(protocol.Handlers(act, lambda: {"algorithm": "PPO"}, lambda: {"healthy": True}))


def reply(line: bytes) -> Any:
    return json.loads(conversation().reply(line))


def test_messages_and_their_answers() -> None:
    talk = conversation()
    said = [
        {"observation": [1, 2], "id": "a"}, {"observations": [[1], [2]]}, {"ask": "info"}, {"ask": "health", "id": 1},
    ]  # fmt: skip
    assert [json.loads(talk.reply(json.dumps(each).encode())) for each in said] == [
        {"action": 3, "step": 1, "id": "a"},
        {"actions": [1, 2], "step": 3},
        {"algorithm": "PPO"},
        {"healthy": True, "id": 1},
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "one JSON object"),
        (b"\xff", "UTF-8"),
        (b"[1]", "one JSON object"),
        (b"[" * 100_000, "one JSON object"),
        (b'{"observation": [NaN]}', "NaN is not JSON"),
        (b"{}", "exactly one of"),
        (b'{"observation": [1], "ask": "info"}', "exactly one of"),
        (b'{"observation": [1], "policy": 2}', "no 'policy'"),
        (b'{"observations": []}', "at least one"),
        (b'{"observations": {}}', "at least one"),
        (b'{"ask": "torque"}', "info or health"),
        (b'{"observation": ["no"]}', "numbers only"),
        (b'{"observation": 1}', "not iterable"),
    ],
)
def test_what_is_no_message_gets_an_error(line: bytes, words: str) -> None:
    answer = reply(line)
    assert words in answer["error"]
    assert answer["code"]


_TEXT = st.text(alphabet='a1"\\\n\u00e9\ud800', max_size=5)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from(["ask", "observation", "observations", "id", "x"])


@given(st.binary(max_size=200) | st.dictionaries(_KEYS, _JSON).map(lambda said: json.dumps(said).encode()))
def test_every_line_has_one_answer(line: bytes) -> None:
    answered = conversation().reply(line)
    assert answered.endswith(b"\n")
    assert answered.count(b"\n") == 1
    assert isinstance(json.loads(answered), dict)


def test_options_come_from_flags_before_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLICY_FILE", "/a.onnx")
    monkeypatch.setenv("POLICY_SPIN_US", "50")
    monkeypatch.setenv("POLICY_RUN_DIR", "")
    found = options.parse(["--policy", "/b.onnx"])
    assert (found.policy, found.spin, found.run) == ("/b.onnx", 50e-6, "/run/policy")
    assert (found.exchange, found.socket) == ("/run/policy/exchange", "/run/policy/policy.sock")


@pytest.mark.parametrize(
    ("arguments", "variable", "words"),
    [
        (["--spin", "-1"], None, "no whole number"),
        (["--threads", "0"], None, "no whole number"),
        (["--mode", "9"], None, "no file mode"),
        ([], ("POLICY_PROVIDER", "tpu"), "none of cpu, cuda, tensorrt"),
        ([], ("POLICY_REALTIME", "high"), "no whole number"),
        (["dance"], None, "invalid choice"),
    ],
)
def test_wrong_options_are_refused(
    arguments: list[str], variable: tuple[str, str] | None, words: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if variable:
        monkeypatch.setenv(*variable)
    with pytest.raises(SystemExit) as ended:
        options.parse(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_a_run_folder_that_cannot_be_used_says_what_to_mount(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--run", str(tmp_path / "absent")]) == 2
    assert "--volume /dev/shm/policy:" in capsys.readouterr().err
    lock = supervise._claim(str(tmp_path))
    assert cli.main(["--run", str(tmp_path)]) == 1
    assert "another server serves" in capsys.readouterr().err
    os.close(lock)


def test_the_file_system_of_a_folder_is_known() -> None:
    assert supervise.filesystem("/proc/self") == "proc"
    assert supervise.filesystem("/dev/shm") == "tmpfs"


def test_the_exchange_of_a_server_that_died_is_marked(tmp_path: Path) -> None:
    with stand(tmp_path) as server:
        server.vanish()
        supervise._bury(str(tmp_path / "exchange"))
        assert server.exchange.header.status == px.FAILED
    supervise._bury(str(tmp_path / "exchange"))
    assert server.exchange.header.status == px.STOPPED  # one that said a last word keeps it
    supervise._bury(str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (b'{"healthy": true, "decisions": 7, "heartbeat_age": 0.1}\n', 0, "serving: 7 decisions"),
        (
            b'{"healthy": false, "status": "stopped", "heartbeat_age": 9}\n',
            1,
            "not serving: the control loop is stopped",
        ),
        (b"nonsense\n", 1, "does not answer"),
        (b"", 1, "does not answer"),
    ],
)
def test_health_asks_the_server(
    answer: bytes, code: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "policy.sock"))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert health.check(options.parse(["health", "--run", str(tmp_path)])) == code
        thread.join()
    assert words in capsys.readouterr().out


def test_health_without_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["health", "--run", str(tmp_path)]) == 1
    assert "does not answer" in capsys.readouterr().out
    with pytest.raises(client.NotServingError, match="start policy-server"):
        client.SocketClient(str(tmp_path))
