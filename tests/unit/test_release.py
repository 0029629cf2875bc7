"""Evidence, promotion, rollback and history: with gates, crashes and rivals at every step."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from imagebuild.engine.registry import Registry
from imagebuild.errors import GateError, InputError, RegistryError, WorkError
from imagebuild.release.ledger import Ledger, Release
from imagebuild.release.promote import history, look
from imagebuild.run import evidence
from imagebuild.run.evidence import SmokeReport
from imagebuild.spec.reference import stage_repository
from tests.memory_registry import MemoryRegistry
from tests.release_shop import START, Crash, Interrupted, Shop, consistent, crash, push_image, push_index, smoke


@pytest.fixture
def shop() -> Shop:
    return Shop(MemoryRegistry().transport, "demo")


# -- evidence -----------------------------------------------------------------------------------


def test_reports_come_newest_first_and_only_of_that_digest(shop: Shop) -> None:
    one, two = (push_image(shop.registry, shop.repository, text, text) for text in ("one", "two"))
    for minutes in (2, 3, 1):
        smoke(shop.registry, shop.repository, one, minutes=minutes)
    smoke(shop.registry, shop.repository, two)
    found = evidence.find(shop.registry, shop.repository, one.digest)
    assert [report.started - START for report in found] == [timedelta(minutes=number) for number in (3, 2, 1)]
    assert {report.manifest_digest for report in found} == {one.digest}


def test_report_about_another_image_is_not_attached(shop: Shop) -> None:
    image = push_image(shop.registry, shop.repository, "one")
    report = SmokeReport(target="train-cpu", image_id="sha256:other", started=START)
    with pytest.raises(WorkError, match="is about image sha256:other"):
        evidence.attach(shop.registry, shop.repository, image, report)
    right = shop.registry.get_manifest(shop.repository.at(image.digest)).config_digest
    report = report.model_copy(update={"image_id": right.removeprefix("sha256:"), "manifest_digest": "sha256:old"})
    with pytest.raises(WorkError, match="is about sha256:old"):
        evidence.attach(shop.registry, shop.repository, image, report)
    assert evidence.find(shop.registry, shop.repository, image.digest) == []


def test_damaged_evidence_is_not_overlooked(shop: Shop) -> None:
    image = push_image(shop.registry, shop.repository, "one")
    files = {"smoke.json": (b"{}", evidence.SMOKE_TYPE)}
    damaged = shop.registry.push_artifact(shop.repository, evidence.SMOKE_TYPE, files, subject=image)
    with pytest.raises(RegistryError, match=f"{damaged.digest} is not a smoke report"):
        evidence.find(shop.registry, shop.repository, image.digest)
    shop.registry.delete_manifest(shop.repository, damaged.digest)
    assert evidence.find(shop.registry, shop.repository, image.digest) == []


def test_evidence_moved_to_another_digest_is_refused(shop: Shop) -> None:
    one, two = (push_image(shop.registry, shop.repository, text, text) for text in ("one", "two"))
    artifact = smoke(shop.registry, shop.repository, one)
    layer = shop.registry.get_manifest(shop.repository.at(artifact.digest)).layers[0]
    files = {"smoke.json": (shop.registry.get_blob(shop.repository, layer.digest), evidence.SMOKE_TYPE)}
    shop.registry.push_artifact(shop.repository, evidence.SMOKE_TYPE, files, subject=two)
    with pytest.raises(RegistryError, match=f"is about {one.digest}"):
        evidence.find(shop.registry, shop.repository, two.digest)


# -- promote ------------------------------------------------------------------------------------


def test_reading_an_empty_project(shop: Shop) -> None:
    assert history(shop.registry, project=shop.project) == []
    standing = look(shop.registry, project=shop.project, stage="train", row="cpu")
    assert (standing.digest, standing.release, standing.drifted) == ("", None, False)
    with pytest.raises(GateError, match="nothing to go back to: nothing was released"):
        shop.rollback()
    with pytest.raises(GateError, match="not in the registry"):
        shop.promote("1.0.0")
    assert shop.registry.list_tags(Ledger(shop.registry, shop.project).repository) == []


def test_promote_writes_both_tags_and_the_record(shop: Shop) -> None:
    candidate = shop.candidate("1.0.0")
    outcome = shop.promote("1.0.0", commit="abc1234")
    digest = shop.digest("cpu-1.0.0")
    assert shop.tags() == dict.fromkeys(["cpu-1.0.0", "cpu-1.0.0-prod", "cpu-prod"], digest)
    assert [move.tag.tag for move in outcome.moves] == ["cpu-1.0.0-prod", "cpu-prod"]
    (release,) = history(shop.registry, project=shop.project)
    entry = release.entry
    assert (entry.who, entry.commit, entry.candidate, entry.digest) == ("ann", "abc1234", str(candidate), digest)
    assert (entry.previous, release.state) == ("", "done")
    assert {gate.name: gate.verdict for gate in entry.gates} == {
        "smoke": "passed",
        "gpu": "not needed",
        "version": "passed",
    }
    assert release.as_json()["gates"][0]["name"] == "smoke"
    assert look(shop.registry, project=shop.project, stage="train", row="cpu").as_json()["drifted"] is False


def test_promote_again_is_nothing_to_do(shop: Shop) -> None:
    shop.release("1.0.0")
    before = shop.registry.list_tags(Ledger(shop.registry, shop.project).repository)
    outcome = shop.promote("1.0.0")
    assert (outcome.changed, outcome.moves) == (False, ())
    assert shop.registry.list_tags(Ledger(shop.registry, shop.project).repository) == before


def test_dry_run_says_what_it_would_do_and_writes_nothing(shop: Shop) -> None:
    shop.release("1.0.0")
    shop.candidate("1.1.0")
    before, story, old = shop.tags(), shop.story(), shop.digest("cpu-prod")
    registry = shop.interrupted(1, "before", lambda: pytest.fail("a dry run wrote something"))
    outcome = shop.promote("1.1.0", registry=registry, dry_run=True)
    new = shop.digest("cpu-1.1.0")
    assert [(move.tag.tag, move.before, move.after) for move in outcome.moves] == [
        ("cpu-1.1.0-prod", "", new),
        ("cpu-prod", old, new),
    ]
    assert outcome.as_json()["dry_run"] is True
    with pytest.raises(GateError):
        shop.promote("1.0.0", candidate=shop.repository.tagged("cpu-1.1.0"), registry=registry, dry_run=True)
    shop.promote("1.1.0")
    story = shop.story()
    plan = shop.rollback(registry=registry, dry_run=True)
    assert [(move.tag.tag, move.before, move.after) for move in plan.moves] == [("cpu-prod", new, old)]
    assert shop.story() == story
    assert before.items() <= shop.tags().items() | {("cpu-prod", old)}


def test_index_is_promoted_as_an_index(shop: Shop) -> None:
    image = push_image(shop.registry, shop.repository, "amd64", "only-amd64")
    smoke(shop.registry, shop.repository, image)
    index = push_index(shop.registry, shop.repository, image, "cpu-1.0.0")
    with pytest.raises(GateError, match=f"no smoke results for {index.digest}"):
        shop.promote("1.0.0")
    report = SmokeReport(
        target="train-cpu",
        image_id="x",
        started=START,
        cases=evidence.find(shop.registry, shop.repository, image.digest)[0].cases,
    )
    evidence.attach(shop.registry, shop.repository, index, report)
    shop.promote("1.0.0")
    assert shop.registry.head(shop.repository.tagged("cpu-prod")) == index


def test_released_version_never_changes(shop: Shop) -> None:
    shop.release("1.0.0")
    tags = shop.tags()
    other = shop.candidate("1.0.0", "other")
    with pytest.raises(GateError, match="raise `version:`") as caught:
        shop.promote("1.0.0", candidate=other)
    assert caught.value.exit_code == 3
    assert tags.items() <= shop.tags().items()
    shop.registry.delete_tag(shop.repository, "cpu-1.0.0-prod")
    with pytest.raises(GateError, match="raise `version:`"):  # the ledger remembers
        shop.promote("1.0.0", candidate=other)
    assert shop.promote("1.0.0", candidate=shop.repository.tagged("cpu-1.0.0")).changed  # repaired
    assert shop.tags()["cpu-1.0.0-prod"] == tags["cpu-1.0.0-prod"]


def test_tag_that_somebody_else_wrote_is_not_overwritten(shop: Shop) -> None:
    shop.candidate("1.0.0")
    push_image(shop.registry, shop.repository, "foreign", "cpu-1.0.0-prod")
    with pytest.raises(GateError, match="gate version refused"):
        shop.promote("1.0.0")
    assert shop.story() == []


@pytest.mark.parametrize(
    ("reports", "is_cuda", "refusal"),
    [
        ([], False, "no smoke results"),
        ([{"cases": [("10-a", "failed")]}], False, "failed on .*: 10-a"),
        ([{"cases": [("10-a", "skipped")]}], False, "no check passed"),
        ([{"cases": [("10-a", "passed")], "minutes": 1}, {"cases": [("10-a", "failed")], "minutes": 2}], False, "10-a"),
        ([{"cases": [("10-a", "failed")], "minutes": 1}, {"cases": [("10-a", "passed")], "minutes": 2}], False, ""),
        ([{"target": "train-other"}], False, "no smoke results"),
        ([{}], True, "the GPU checks never ran"),
        ([{"cases": [("10-a", "passed"), ("20-gpu-b", "skipped")]}], True, "the GPU checks never ran"),
        ([{"gpu": True}], True, "there were no GPU checks"),
        ([{"cases": [("10-a", "passed"), ("20-gpu-b", "skipped")], "gpu": True}], True, "20-gpu-b skipped"),
        ([{"cases": [("20-gpu-b", "passed"), ("10-a", "failed")], "gpu": True}, {"minutes": 5}], True, "10-a failed"),
        ([{"cases": [("20-gpu-b", "passed")], "gpu": True}, {"minutes": 5}], True, ""),
        ([{"cases": [("20-gpu-b", "passed")]}], True, "the GPU checks never ran"),
    ],
)
def test_gates(shop: Shop, reports: list[dict[str, Any]], is_cuda: bool, refusal: str) -> None:
    image = push_image(shop.registry, shop.repository, "one", "cpu-1.0.0")
    for options in reports:
        smoke(shop.registry, shop.repository, image, *options.pop("cases", []), **options)
    if not refusal:
        assert shop.promote("1.0.0", is_cuda=is_cuda).changed
        return
    with pytest.raises(GateError, match=refusal):
        shop.promote("1.0.0", is_cuda=is_cuda)
    assert list(shop.tags()) == ["cpu-1.0.0"]
    assert shop.story() == []


def test_evidence_of_another_build_does_not_count(shop: Shop) -> None:
    shop.candidate("1.0.0")
    push_image(shop.registry, shop.repository, "rebuilt", "cpu-1.0.0")
    with pytest.raises(GateError, match="no smoke results"):
        shop.promote("1.0.0")


def test_override_is_by_name_and_recorded(shop: Shop) -> None:
    shop.candidate("1.0.0")
    with pytest.raises(GateError, match="gate gpu refused") as caught:
        shop.promote("1.0.0", is_cuda=True, overrides={"smoke": "not needed"})
    assert '--override gpu --reason "..."' in caught.value.hint
    shop.promote("1.0.0", is_cuda=True, overrides={"gpu": "GPU runners are down, tried by hand"})
    entry = history(shop.registry, project=shop.project)[0].entry
    assert [(override.name, override.reason) for override in entry.overrides] == [
        ("gpu", "GPU runners are down, tried by hand")
    ]
    assert {gate.name: gate.verdict for gate in entry.gates}["gpu"] == "overridden"


def test_bad_arguments_are_refused_before_the_registry_is_asked(shop: Shop) -> None:
    nowhere = Registry("127.0.0.1:1", attempts=1)
    common: dict[str, Any] = {
        "registry": nowhere,
        "candidate": stage_repository(nowhere.host, shop.project, "train").tagged("x"),
    }
    with pytest.raises(InputError, match="legal in a tag"):
        shop.promote("1.0.0+cu118", **common)
    with pytest.raises(InputError, match="needs a reason"):
        shop.promote("1.0.0", overrides={"gpu": ""}, **common)
    with pytest.raises(InputError, match="not a candidate of train-cpu"):
        shop.promote("1.0.0", registry=nowhere, candidate=stage_repository(nowhere.host, "other", "train").tagged("x"))
    with pytest.raises(RegistryError, match="failed once"):
        shop.promote("1.0.0", **common)


def test_staging_moves_freely_and_leaves_prod_alone(shop: Shop) -> None:
    shop.release("1.0.0")
    prod = shop.digest("cpu-prod")
    shop.candidate("1.1.0", "a")
    shop.candidate("1.1.0", "b")
    for text in ("a", "b"):
        shop.promote("1.1.0", candidate=shop.repository.tagged(f"cpu-1.1.0-{text}"), channel="staging")
        assert shop.digest("cpu-staging") == shop.digest(f"cpu-1.1.0-{text}")
    assert shop.digest("cpu-prod") == prod
    assert "cpu-1.1.0-staging" not in shop.tags()
    shop.rollback(channel="staging")
    assert shop.digest("cpu-staging") == shop.digest("cpu-1.1.0-a")
    assert len(history(shop.registry, project=shop.project, channel="staging")) == 3


# -- rollback -----------------------------------------------------------------------------------


def test_rollback_goes_one_back_each_time(shop: Shop) -> None:
    shop.release("1.0.0", "1.1.0", "1.2.0")
    tags = shop.tags()
    assert shop.rollback(reason="slow").version == "1.1.0"
    assert shop.digest("cpu-prod") == tags["cpu-1.1.0-prod"]
    assert shop.rollback().version == "1.0.0"
    with pytest.raises(GateError, match=r"only 1\.0\.0 was released"):
        shop.rollback()
    assert shop.rollback(version="1.2.0").changed
    assert shop.tags() == tags
    assert not shop.rollback(version="1.2.0").changed
    with pytest.raises(GateError, match="never released") as caught:
        shop.rollback(version="9.0.0")
    assert caught.value.hint == "released so far: 1.0.0, 1.1.0, 1.2.0"
    first = [each for each in history(shop.registry, project=shop.project) if each.entry.action == "rollback"][-1]
    assert first.as_json()["note"] == "slow"
    assert (first.entry.who, first.entry.previous) == ("bob", tags["cpu-1.2.0-prod"])


def test_rollback_to_what_is_gone_is_refused(shop: Shop) -> None:
    shop.release("1.0.0", "1.1.0")
    shop.registry.delete_manifest(shop.repository, shop.digest("cpu-1.0.0-prod"))
    with pytest.raises(GateError, match="no longer in the registry"):
        shop.rollback()
    assert shop.digest("cpu-prod") == shop.digest("cpu-1.1.0-prod")


def test_alias_moved_by_hand_shows_and_is_put_right(shop: Shop) -> None:
    shop.release("1.0.0", "1.1.0")
    shop.registry.retag(shop.repository.tagged("cpu-1.0.0"), "cpu-prod")
    assert look(shop.registry, project=shop.project, stage="train", row="cpu").drifted
    outcome = shop.promote("1.1.0")
    assert [move.tag.tag for move in outcome.moves] == ["cpu-prod"]
    assert not look(shop.registry, project=shop.project, stage="train", row="cpu").drifted


# -- crashes ------------------------------------------------------------------------------------

PROMOTE_WRITES = 4  # intent, the release's own tag, alias, done
ROLLBACK_WRITES = 3  # intent, alias, done


def test_number_of_writes_is_what_the_crash_tests_assume(shop: Shop) -> None:
    shop.release("1.0.0")
    shop.candidate("1.1.0")
    registry = shop.interrupted(0, "", crash)
    shop.promote("1.1.0", registry=registry)
    assert registry.writes == PROMOTE_WRITES
    shop.rollback(registry=registry)
    assert registry.writes == PROMOTE_WRITES + ROLLBACK_WRITES


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, PROMOTE_WRITES + 1))
@pytest.mark.parametrize("then", ["same", "newer", "rollback", "dry run"])
def test_promote_that_crashes_is_finished_by_the_next_call(shop: Shop, at: int, when: str, then: str) -> None:
    shop.release("1.0.0")
    for version in ("1.1.0", "1.2.0"):
        shop.candidate(version)
    with pytest.raises(Crash):
        shop.promote("1.1.0", registry=shop.interrupted(at, when, crash))
    begun = (at, when) != (1, "before")
    first = ["promote 1.0.0 done"] + ["promote 1.1.0 done"] * begun
    if then == "same":
        outcome = shop.promote("1.1.0")
        assert shop.story() == ["promote 1.0.0 done", "promote 1.1.0 done"]
        assert shop.digest("cpu-prod") == shop.digest("cpu-1.1.0-prod") == shop.digest("cpu-1.1.0") != ""
        assert bool(outcome.recovered) == (begun and (at, when) != (PROMOTE_WRITES, "after"))
    elif then == "newer":
        shop.promote("1.2.0")
        assert shop.story() == [*first, "promote 1.2.0 done"]
        assert shop.digest("cpu-prod") == shop.digest("cpu-1.2.0")
    elif then == "rollback" and begun:
        shop.rollback()
        assert shop.story() == [*first, "rollback 1.0.0 done"]
        assert shop.digest("cpu-prod") == shop.digest("cpu-1.0.0")
    elif then == "dry run":
        tags, story = shop.tags(), shop.story()
        shop.promote("1.2.0", dry_run=True)
        assert (shop.tags(), shop.story()) == (tags, story)
    assert Ledger(shop.registry, shop.project).lost() == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, ROLLBACK_WRITES + 1))
def test_rollback_that_crashes_goes_back_once(shop: Shop, at: int, when: str) -> None:
    shop.release("1.0.0", "1.1.0", "1.2.0")
    with pytest.raises(Crash):
        shop.rollback(registry=shop.interrupted(at, when, crash))
    finished = (at, when) == (ROLLBACK_WRITES, "after")
    if not finished:
        shop.rollback()
    assert shop.digest("cpu-prod") == shop.digest("cpu-1.1.0")
    assert shop.story()[3:] == ["rollback 1.1.0 done"]


def test_promote_that_cannot_be_finished_is_undone(shop: Shop) -> None:
    shop.release("1.0.0")
    shop.candidate("1.1.0")
    with pytest.raises(Crash):
        shop.promote("1.1.0", registry=shop.interrupted(1, "after", crash))
    unfinished = look(shop.registry, project=shop.project, stage="train", row="cpu").unfinished
    assert [release.entry.version for release in unfinished] == ["1.1.0"]
    shop.registry.delete_manifest(shop.repository, shop.digest("cpu-1.1.0"))
    outcome = shop.promote("1.0.0")
    assert shop.story() == ["promote 1.0.0 done", "promote 1.1.0 undone"]
    assert not outcome.moves
    assert shop.digest("cpu-prod") == shop.digest("cpu-1.0.0")
    undone = outcome.recovered[0].as_json()
    assert undone["state"] == "undone"
    assert "no longer in the registry" in undone["note"]


def test_tag_that_appears_after_the_gates_is_not_overwritten(shop: Shop) -> None:
    shop.release("1.0.0")
    shop.candidate("1.1.0")
    foreign = push_image(shop.registry, shop.repository, "foreign", "foreign")
    registry = shop.interrupted(
        1, "after", lambda: shop.registry.retag(shop.repository.tagged("foreign"), "cpu-1.1.0-prod")
    )
    with pytest.raises(GateError, match=f"cpu-1.1.0-prod names {foreign.digest} already"):
        shop.promote("1.1.0", registry=registry)
    assert shop.digest("cpu-1.1.0-prod") == foreign.digest
    assert shop.digest("cpu-prod") == shop.digest("cpu-1.0.0")
    assert shop.story() == ["promote 1.0.0 done", "promote 1.1.0 undone"]


def test_of_two_crashed_rivals_the_earlier_is_finished(shop: Shop) -> None:
    shop.release("0.9.0")
    one, two = shop.candidate("1.0.0"), shop.candidate("1.0.0", "other")

    def rival_crashes_too() -> None:
        with pytest.raises(Crash):
            shop.promote("1.0.0", candidate=two, registry=shop.interrupted(1, "after", crash))

    class BothCrash(Interrupted):
        def _put(self, *args: Any) -> Any:
            super()._put(*args)
            raise Crash

    with pytest.raises(Crash):
        shop.promote("1.0.0", candidate=one, registry=BothCrash(shop.connect(), 1, "before", rival_crashes_too))
    assert shop.story() == ["promote 0.9.0 done", "promote 1.0.0 intent", "promote 1.0.0 intent"]
    first, second = (each.entry.digest for each in look_unfinished(shop))
    assert {first, second} == {shop.digest("cpu-1.0.0"), shop.digest("cpu-1.0.0-other")}
    shop.promote("0.9.0", candidate=shop.repository.tagged("cpu-0.9.0"))
    assert sorted(shop.story()[1:3]) == ["promote 1.0.0 done", "promote 1.0.0 undone"]
    assert shop.digest("cpu-1.0.0-prod") == first
    consistent(shop)


def look_unfinished(shop: Shop) -> tuple[Release, ...]:
    return look(shop.registry, project=shop.project, stage="train", row="cpu").unfinished


def test_crash_of_another_target_is_left_to_that_target(shop: Shop) -> None:
    shop.candidate("1.0.0")
    with pytest.raises(Crash):
        shop.promote("1.0.0", registry=shop.interrupted(1, "after", crash))
    shop.promote("1.0.0", channel="staging")
    assert shop.story() == ["promote 1.0.0 intent", "promote 1.0.0 done"]


# -- two at once --------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, PROMOTE_WRITES + 1))
def test_another_version_is_promoted_in_between(shop: Shop, at: int, when: str) -> None:
    for version in ("1.0.0", "1.1.0"):
        shop.candidate(version)
    registry = shop.interrupted(at, when, lambda: shop.promote("1.1.0", who="eve"))
    outcome = shop.promote("1.0.0", registry=registry)
    assert sorted(shop.story()) == ["promote 1.0.0 done", "promote 1.1.0 done"]
    consistent(shop)
    newest = look(shop.registry, project=shop.project, stage="train", row="cpu").release
    assert newest
    assert bool(outcome.overtaken) == (newest.entry.version == "1.1.0")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, PROMOTE_WRITES + 1))
def test_same_version_with_other_content_is_promoted_in_between(shop: Shop, at: int, when: str) -> None:
    shop.candidate("1.0.0")
    other = shop.candidate("1.0.0", "other")
    results = []

    def rival() -> None:
        try:
            results.append(shop.promote("1.0.0", who="eve", candidate=other).digest)
        except GateError:
            results.append("")

    try:
        results.append(shop.promote("1.0.0", registry=shop.interrupted(at, when, rival)).digest)
    except GateError:
        results.append("")
    winners = [digest for digest in results if digest]
    assert len(results) == 2
    assert len(winners) == 1
    assert shop.digest("cpu-1.0.0-prod") == shop.digest("cpu-prod") == winners[0]
    consistent(shop)


def test_many_at_once_lose_nothing(shop: Shop) -> None:
    versions = [f"1.{number}.0" for number in range(6)]
    for version in versions:
        shop.candidate(version)
    with ThreadPoolExecutor(len(versions)) as pool:
        outcomes = list(pool.map(lambda version: shop.promote(version, registry=shop.another()), versions))
    assert all(outcome.release and outcome.release.state == "done" for outcome in outcomes)
    assert sorted(shop.story()) == [f"promote {version} done" for version in versions]
    consistent(shop)


def test_entry_that_is_being_written_is_not_read_yet() -> None:
    server = MemoryRegistry()
    shop = Shop(server.transport, "demo")
    shop.release("1.0.0")
    server.tags["demo/releases"]["00000009-0123456789abcdef"] = "sha256:" + "0" * 64
    assert shop.story() == ["promote 1.0.0 done"]
    shop.release("1.1.0")
    consistent(shop)


def test_lost_entry_is_noticed(shop: Shop) -> None:
    shop.release("1.0.0", "1.1.0")
    ledger = Ledger(shop.registry, shop.project)
    first = ledger.read()[0]
    shop.registry.delete_manifest(ledger.repository, first.digest)
    assert shop.promote("1.1.0").lost == (first.digest,)
