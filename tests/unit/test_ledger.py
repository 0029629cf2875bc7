"""What the entries of a ledger mean together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from imagebuild.errors import GateError, InputError
from imagebuild.release import gates
from imagebuild.release.ledger import Action, Entry, Gate, Override, Record, State, fold, of_alias, standing

START = datetime(2026, 3, 1, tzinfo=UTC)


def entry(
    number: int, state: State = "intent", *, action: Action = "promote", version: str = "1.0.0", of: str = ""
) -> Record:
    made = Entry(
        sequence=number,
        action=action,
        state=state,
        stage="train",
        row="cpu",
        channel="prod",
        version=version,
        digest=f"sha256:{version}",
        who="me",
        when=START + timedelta(minutes=number),
        intent=of,
    )
    return Record(f"entry-{number}-{state}", made)


def done(number: int, action: Action, version: str) -> list[Record]:
    intent = entry(number, action=action, version=version)
    return [intent, entry(number + 1, "done", action=action, version=version, of=intent.digest)]


@pytest.mark.parametrize(
    ("closings", "state"),
    [
        ([], "intent"),
        (["done"], "done"),
        (["undone"], "undone"),
        (["undone", "done"], "done"),
        (["done", "undone"], "done"),
    ],
)
def test_state_of_an_intent(closings: list[State], state: State) -> None:
    intent = entry(1)
    records = [intent, *(entry(2 + place, closing, of=intent.digest) for place, closing in enumerate(closings))]
    (release,) = fold(records)
    assert release.state == state
    assert (release.closed is None) == (state == "intent")


@pytest.mark.parametrize(
    ("steps", "versions"),
    [
        ("", ""),
        ("p1", "1"),
        ("p1 p2 p3", "1 2 3"),
        ("p1 p2 p3 r2", "1 2"),
        ("p1 p2 p3 r2 r1", "1"),
        ("p1 p2 p3 r1", "1"),
        ("p1 p2 r1 p3", "1 3"),
        ("p1 p2 r1 r2", "1 2"),
        ("p1 p2 r1 p2 p3 r2", "1 2"),
        ("p1 p2 p1 p3 r1", "1 2 1"),
    ],
)
def test_what_a_rollback_can_return_to(steps: str, versions: str) -> None:
    actions: dict[str, Action] = {"p": "promote", "r": "rollback"}
    records = [
        record for place, step in enumerate(steps.split()) for record in done(2 * place + 1, actions[step[0]], step[1])
    ]
    assert " ".join(release.entry.version for release in standing(fold(records))) == versions


def test_unfinished_and_undone_do_not_stand() -> None:
    undone = entry(3, version="2.0.0")
    records = [
        *done(1, "promote", "1.0.0"),
        undone,
        entry(4, "undone", version="2.0.0", of=undone.digest),
        entry(5, version="3.0.0"),
    ]
    assert [release.entry.version for release in standing(fold(records))] == ["1.0.0"]


def test_releases_of_one_alias() -> None:
    releases = fold([*done(1, "promote", "1.0.0")])
    assert of_alias(releases, "train", "cpu", "prod") == releases
    assert of_alias(releases, "train", "cpu", "staging") == []
    assert of_alias(releases, "base", "cpu", "prod") == []


def test_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="timezone"):
        Entry.model_validate(entry(1).entry.model_dump() | {"when": datetime(2026, 3, 1)})  # noqa: DTZ001


def test_gates_refuse_all_at_once_and_name_what_can_be_overridden() -> None:
    found = [
        Gate(name="smoke", verdict="refused", detail="failed: 10-a"),
        Gate(name="gpu", verdict="not needed"),
        Gate(name="version", verdict="refused", detail="taken"),
    ]
    with pytest.raises(GateError, match="gate smoke refused: failed: 10-a\ngate version refused: taken") as caught:
        gates.check(found, ())
    assert "--override smoke --reason" in caught.value.hint
    with pytest.raises(GateError, match=r"^gate version refused: taken$") as caught:
        gates.check(found, gates.check_overrides({"smoke": "why"}))
    assert caught.value.hint == ""


def test_only_needed_overrides_are_recorded() -> None:
    found = [Gate(name="smoke", verdict="passed"), Gate(name="gpu", verdict="refused", detail="never ran")]
    decided, used = gates.check(found, gates.check_overrides({"smoke": "a", "gpu": " b "}))
    assert [gate.verdict for gate in decided] == ["passed", "overridden"]
    assert used == (Override(name="gpu", reason="b"),)


@pytest.mark.parametrize("overrides", [{"version": "x"}, {"gpu": ""}, {"gpu": "  "}, {"GPU": "x"}, {"": "x"}])
def test_overrides_that_cannot_be_right(overrides: dict[str, str]) -> None:
    with pytest.raises(InputError):
        gates.check_overrides(overrides)
