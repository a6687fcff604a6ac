"""Paid answers survive a bug in the application: they are stored, and accepted after the fix."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import FakeClock, Holdfast
from holdfast.errors import ConfigInvalid, Forbidden, SchemaInvalid
from holdfast.operate.refusal import InvalidAction
from holdfast_llm.batch.accept_kept import PAGE_ANSWERS, AnswerFilter
from holdfast_llm.batch.maintenance import prune_batches
from holdfast_llm.batch.raw_answer import AnswerUnreadable, pack, unpack
from holdfast_llm.batch.service import BatchService
from holdfast_llm.cli import batches as cli
from holdfast_llm.operate.batches import Batches
from holdfast_llm.provider.request import Request
from holdfast_llm.settings import BatchSettings
from holdfast_simulator.simulator import Simulator
from tests.batch.house import ADAPTERS, House, Shorten
from tests.batch.planted import ROUTE, Planted, Shout, Stage, set_stage
from tests.operate.sound import report_of, violations
from tests.story import ORG, OTHER_ORG, look
from tests.words import NO_COLUMN, make_words, store_words
from tests.words import kept as with_words

Accept = Callable[..., Any]


@pytest.fixture
def stage(hf: Holdfast, clock: FakeClock) -> Stage:
    return set_stage(hf, clock)


def desk(stage: Stage, role: str = "operator") -> Batches:
    return stage.hf.operate(actor="user:ann", role=role).batches(stage.service)


def kept(stage: Stage) -> list[dict[str, Any]]:
    text = "SELECT * FROM holdfast.batch_answer ORDER BY batch_id, batch_item_index"
    return [dict(row) for row in look(stage.store, text)]


def break_accept(monkeypatch: pytest.MonkeyPatch, exc: BaseException | None = None) -> None:
    def accept(_: Shout, item: Any, reply: Any) -> Any:
        raise exc or KeyError("headline")

    monkeypatch.setattr(Shout, "accept", accept)


def collect_broken(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *texts: str, **options: Any
) -> Planted:
    """A batch whose answers were read while the application had a bug."""
    planted = stage.plant(*texts, **options)
    stage.provider.complete()
    with monkeypatch.context() as patched:
        break_accept(patched)
        for _ in range(3):
            stage.collect(minutes=30)
    return planted


def assert_clean(stage: Stage) -> None:
    assert violations(report_of(stage.hf)) == {}


@pytest.mark.req("P-24")
@pytest.mark.parametrize(
    "exc",
    [KeyError("headline"), TypeError("str"), ConfigInvalid(), SystemExit(1), RecursionError()],
    ids=lambda exc: type(exc).__name__,
)
def test_a_bug_in_accept_holds_the_answers_and_deletes_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, exc: BaseException
) -> None:
    planted = stage.plant("one", "two")
    stage.provider.complete()
    break_accept(monkeypatch, exc)
    for _ in range(5):
        stage.collect(minutes=30)

    assert stage.states(planted) == ["batch_submitted", "batch_submitted"]
    assert [stage.job(job).attempt_count for job in planted.jobs] == [0, 0]
    row = stage.batch(planted)
    assert (row["state"], row["error_code"]) == ("quarantined", "accept_failed")
    assert row["files_deleted_at"] is None
    assert stage.provider.calls["delete_file"] == 0
    assert len(kept(stage)) == 2
    assert stage.alerts == [("answers_held", 2), ("quarantined", 1)]
    assert_clean(stage)


def test_an_answer_that_the_application_refuses_is_not_held(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    break_accept(monkeypatch, SchemaInvalid())
    stage.collect()

    assert stage.states(planted) == ["failed"]
    assert kept(stage) == []


def test_kept_answers_are_accepted_after_the_fix_at_no_cost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = collect_broken(stage, monkeypatch, "one", "two", org_id=[ORG, OTHER_ORG])
    calls = dict(stage.provider.calls)

    counted = desk(stage).accept(reason="fixed", dry_run=True)
    assert (counted.answers, counted.done.accepted, len(kept(stage))) == (2, 0, 2)
    report = desk(stage).accept(AnswerFilter(job_type="text.shout"), reason="fixed the headline")

    assert (report.answers, report.done.accepted, report.done.held) == (2, 2, 0)
    assert [stage.job(job).result for job in planted.jobs] == [{"said": "ONE"}, {"said": "TWO"}]
    assert dict(stage.provider.calls) == calls
    assert stage.provider.paid.most_common(1)[0][1] == 1
    assert kept(stage) == []
    # The collector closes the batch, and only then are the files deleted.
    stage.collect(minutes=30)
    row = stage.batch(planted)
    assert (row["state"], row["files_deleted_at"] is not None) == ("collected", True)
    costs = look(stage.store, "SELECT kind FROM holdfast.provider_call")
    assert [cost["kind"] for cost in costs] == ["actual", "actual"]
    assert_clean(stage)


def test_a_filter_accepts_what_it_names_and_leaves_the_rest(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = collect_broken(stage, monkeypatch, "one", "two", org_id=[ORG, OTHER_ORG])

    report = desk(stage).accept(AnswerFilter(org_id=OTHER_ORG), reason="fixed")

    assert (report.answers, report.done.accepted) == (1, 1)
    assert stage.states(planted) == ["batch_submitted", "completed"]
    assert stage.batch(planted)["state"] == "quarantined"
    assert desk(stage).accept(AnswerFilter(error_class="OTHER"), reason="fixed").answers == 0
    assert desk(stage).accept(AnswerFilter(job_id=planted.jobs[0].id), reason="x").answers == 1
    assert stage.states(planted) == ["completed", "completed"]


def test_an_answer_on_which_the_code_still_fails_stays_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = collect_broken(stage, monkeypatch, "one", "two")
    usual = Shout.accept

    def half(work: Shout, item: Any, reply: Any) -> Any:
        if item.payload["text"] == "two":
            raise KeyError("still")
        return usual(work, item, reply)

    monkeypatch.setattr(Shout, "accept", half)
    report = desk(stage).accept(reason="half of it")

    assert (report.done.accepted, report.done.held) == (1, 1)
    assert stage.states(planted) == ["completed", "batch_submitted"]
    assert [row["batch_item_index"] for row in kept(stage)] == [1]


def test_more_answers_than_a_page_are_accepted_page_by_page(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"text {number}" for number in range(PAGE_ANSWERS + 7)]
    planted = collect_broken(stage, monkeypatch, *texts)

    assert desk(stage).accept(reason="fixed").done.accepted == len(texts)
    assert set(stage.states(planted)) == {"completed"}


@pytest.mark.parametrize("value", [object(), {"n": float("nan")}, "x" * 20_000_000])
def test_a_result_that_cannot_be_stored_holds_the_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    with monkeypatch.context() as patched:
        patched.setattr(Shout, "accept", lambda _, item, reply: value)
        stage.collect()

    assert stage.states(planted) == ["batch_submitted"]
    assert desk(stage).accept(reason="fixed").done.accepted == 1
    assert stage.states(planted) == ["completed"]


class Keeping(Shout):
    def accept(self, item: Any, reply: Any) -> Any:
        return with_words(reply.data["text"])


def test_a_bug_in_what_is_stored_with_the_result_holds_the_answer(
    hf: Holdfast, clock: FakeClock
) -> None:
    stage = set_stage(hf, clock)
    make_words(hf.store)
    hf.batch("text.keep", route=ROUTE, stores=store_words(NO_COLUMN))(Keeping)
    planted = stage.plant("one", "two", job_type="text.keep")
    stage.provider.complete()
    stage.collect()
    assert stage.states(planted) == ["batch_submitted", "batch_submitted"]
    assert stage.batch(planted)["state"] == "quarantined"

    handler = hf.registry.handlers["text.keep"]
    mended = (*handler.stores[:-1], store_words())
    hf.registry.handlers["text.keep"] = replace(handler, stores=mended)
    assert desk(stage).accept(reason="fixed").done.accepted == 2
    assert stage.states(planted) == ["completed", "completed"]


def test_a_request_that_cannot_be_built_any_more_holds_the_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = stage.plant("one")
    stage.provider.complete()
    with monkeypatch.context() as patched:
        patched.setattr(Shout, "request", lambda *_: Request(()))
        stage.collect()

    assert stage.states(planted) == ["batch_submitted"]
    assert desk(stage).accept(reason="fixed").done.accepted == 1


def test_the_good_answers_of_a_batch_are_not_held_with_the_bad_ones(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Shout.accept

    def picky(work: Shout, item: Any, reply: Any) -> Any:
        if item.payload["text"] == "two":
            raise KeyError("two")
        return usual(work, item, reply)

    planted = stage.plant("one", "two", "three")
    stage.provider.complete()
    monkeypatch.setattr(Shout, "accept", picky)
    stage.collect()

    assert stage.states(planted) == ["completed", "batch_submitted", "completed"]
    assert len(kept(stage)) == 1


def test_adopting_a_held_batch_reads_it_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = collect_broken(stage, monkeypatch, "one", "two")

    desk(stage).adopt(planted.id, reason="fixed")
    stage.collect(minutes=30)

    assert stage.states(planted) == ["completed", "completed"]
    assert kept(stage) == []


# -- storage of a line


def test_a_kept_line_is_compressed_and_encrypted_when_there_is_a_key(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = stage.hf.settings
    stage.hf.settings = replace(settings, batch=BatchSettings(key="a secret of the house"))
    stage.service = BatchService(replace(stage.service.resources, settings=stage.hf.settings))
    planted = collect_broken(stage, monkeypatch, "canary " * 50)

    (row,) = kept(stage)
    assert row["line"].startswith("s1:")
    assert "canary" not in json.dumps(row, default=str)
    with pytest.raises(AnswerUnreadable):
        unpack(row["line"], "")

    stage.service = BatchService(replace(stage.service.resources, settings=settings))
    assert desk(stage).accept(reason="wrong key").done.unreadable == 1
    stage.service = BatchService(replace(stage.service.resources, settings=stage.hf.settings))
    assert desk(stage).accept(reason="right key").done.accepted == 1
    assert stage.states(planted) == ["completed"]


@pytest.mark.parametrize("key", ["", "a secret of the house"])
def test_a_kept_line_is_read_back_unchanged(key: str) -> None:
    line = json.dumps({"text": "äöü " * 1_000}).encode()
    stored = pack(line, key)

    assert unpack(stored, key) == line
    assert len(stored) < len(line) / 10
    assert pack(line, key) != stored or not key


@pytest.mark.parametrize("stored", ["", "z1:", "z1:?", "s1:AAAA", "x9:AAAA", "z1:AAAA"])
def test_a_damaged_line_says_so(stored: str) -> None:
    with pytest.raises(AnswerUnreadable):
        unpack(stored, "a secret of the house")


def test_a_kept_line_goes_when_its_time_is_over(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect_broken(stage, monkeypatch, "one")
    retention = stage.hf.settings.retention
    stage.clock.advance(days=29)
    prune_batches(stage.store, retention, limit=100)
    assert len(kept(stage)) == 1

    stage.clock.advance(days=2)
    prune_batches(stage.store, retention, limit=100)
    assert kept(stage) == []


def test_a_kept_line_goes_with_its_job(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = collect_broken(stage, monkeypatch, "one", "two")

    stage.hf.cancel(planted.jobs[0].id, org_id=ORG)

    assert [row["job_id"] for row in kept(stage)] == [planted.jobs[1].id]


# -- roles


def test_only_who_acts_for_all_tenants_accepts(stage: Stage) -> None:
    of_one = stage.hf.operate(actor="user:eve", role="operator", org_id=ORG).batches(stage.service)
    with pytest.raises(Forbidden):
        of_one.accept(reason="mine")
    with pytest.raises(InvalidAction, match="job_id"):
        desk(stage).accept(AnswerFilter(job_id="x"), reason="fixed")
    with pytest.raises(InvalidAction, match="reason"):
        desk(stage).accept(reason=" ")


def test_the_audit_says_who_accepted_and_why(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    collect_broken(stage, monkeypatch, "one")
    desk(stage).accept(reason="fixed the headline")

    text = "SELECT detail FROM holdfast.job_event WHERE name = 'batch.answers_accepted'"
    (row,) = look(stage.store, text)
    detail = row["detail"] if isinstance(row["detail"], dict) else json.loads(row["detail"])
    assert (detail["reason"], detail["answers"]) == ("fixed the headline", 1)


def test_the_command_counts_first_and_then_accepts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect_broken(stage, monkeypatch, "one", "two")
    monkeypatch.setattr(cli, "batches_of", lambda *_, **__: nullcontext(desk(stage)))
    given = ["accept", "--where", "type=text.shout", "--where", "error=DEFECT", "--reason", "fixed"]

    counted = CliRunner().invoke(cli.batches, [*given, "--dry-run"])
    done = CliRunner().invoke(cli.batches, given)
    wrong = CliRunner().invoke(cli.batches, ["accept", "--where", "colour=red", "--reason", "x"])

    assert "2 answers would be passed" in counted.output, counted.output
    assert "2 of 2 answers have an outcome now" in done.output, done.output
    assert wrong.exit_code == 2
    assert "batch=…" in wrong.output


def test_kept_answers_are_hidden_from_tenants(stage: Stage) -> None:
    if stage.store.dialect.name != "postgres":
        pytest.skip("roles are PostgreSQL's")
    text = (
        "SELECT has_table_privilege('holdfast_tenant', 'holdfast.batch_answer', 'SELECT') AS may,"
        " relforcerowsecurity AS forced FROM pg_class WHERE oid = 'holdfast.batch_answer'::regclass"
    )
    (row,) = look(stage.store, text)
    assert (row["may"], row["forced"]) == (False, True)


@pytest.mark.parametrize("provider", list(ADAPTERS))
def test_every_providers_answers_survive_a_bug(
    url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    with Simulator(clock=clock) as sim, House(url, clock, sim, provider) as house:
        house.enqueue(6)
        with monkeypatch.context() as patched:
            patched.setattr(Shorten, "accept", lambda *_: {}["headline"])
            house.go_on()
        held = house.tally()
        calls = len(sim.journal.find())

        found = house.hf.operate(actor="user:ann", role="admin").batches(house.hf.batch.service)
        report = found.accept(reason="fixed the headline")

        assert (held.held, held.errors, held.leaked, held.wrong) == (6, {}, 0, {})
        assert (report.answers, report.done.accepted) == (6, 6)
        assert len(sim.journal.find()) == calls
        house.go_on()
        tally = house.tally()
        assert tally.states == {"completed": 6}
        assert (tally.paid_twice, tally.lost, tally.leaked, tally.wrong) == (0, 0, 0, {})
        assert len(sim.ledger.charges) == 6
