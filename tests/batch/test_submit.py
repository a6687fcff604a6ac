"""Submitting: waiting jobs are sent in batches, and the others are released unchanged."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.clock import read_instant
from holdfast.errors import ConfigError, PolicyRejected, Snooze, Transient
from holdfast.event import BatchAlert, BatchTrouble, JobStarted
from holdfast.store import Store, Tx
from holdfast_llm.batch.circuit import open_circuit
from holdfast_llm.batch.group import key_of
from holdfast_llm.batch.work import Item
from holdfast_llm.provider.adapter import BatchPhase, Capabilities, Limits
from holdfast_llm.provider.reply import INPUT_NOT_FOUND, Failure, FailureKind
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import ExecutionMode
from holdfast_llm.settings import BatchSettings, BudgetSettings, PriceSettings
from tests.batch.outgoing import JOB_TYPE, ROUTE, Outgoing, another, set_out
from tests.batch.scripted import Lose, Refuse
from tests.failpoints import BatchPoint as Point
from tests.rows import requeue
from tests.story import ORG, OTHER_ORG, by_hand, events, make_holdfast, timeline

OVERFLOW_SECONDS = 300
# The request for the echo, which every answer in a batch contains.
ECHO_WORDS = 'Set "rid" in your answer to "k7q2m9x4".'


@pytest.fixture
def out(hf: Holdfast, clock: FakeClock) -> Outgoing:
    return set_out(hf, clock)


def waits_for(out: Outgoing, enqueued: Any) -> float:
    """The seconds until a job is due again."""
    record = out.job(enqueued).record
    assert record["state"] == "queued"
    wait: timedelta = record["not_before_at"] - out.clock.now()
    return wait.total_seconds()


# -- successful submission


@pytest.mark.req("P-01", "P-04", "P-11", "P-12", "J-04", "B-19")
def test_waiting_jobs_become_one_batch_and_each_knows_its_place(out: Outgoing) -> None:
    jobs = out.enqueue("one", "two", "three")
    before = [out.job(job).record["provider_batch_id"] for job in jobs]

    done = out.submit()

    assert before == [None, None, None]
    assert done.outcomes == Counter(submitted=3)
    (made,) = out.provider.live
    for job in jobs:
        assert out.job(job).state == "batch_submitted"
        assert out.job(job).record["provider_batch_id"] == made.id
        assert out.job(job).attempt_count == 0
        assert timeline(out.hf, job) == ["job.enqueued", "job.started", "job.submitted"]
    assert out.batch["state"] == "submitted"
    assert out.batch["items"] == 3
    assert [(row["batch_item_index"], row["job_id"]) for row in out.items] == [
        (index, job.id) for index, job in enumerate(jobs)
    ]
    assert out.changes() == ["submitted"]


def test_a_batch_carries_our_key_and_no_names(out: Outgoing) -> None:
    out.enqueue("one")
    out.submit()

    (made,) = out.provider.live
    assert made.name is not None
    assert made.name.metadata == {
        "hf_key": key_of(str(out.batch["id"])),
        "hf_try": "1",
        "hf_env": "main",
    }
    (file,) = out.provider.files.values()
    assert ORG not in file.name + file.data.decode()


@pytest.mark.req("P-15")
def test_a_line_of_the_input_holds_one_persons_text_and_one_place(out: Outgoing) -> None:
    texts = [f"canary-{number}" for number in range(20)]
    out.enqueue(*texts[:10])
    out.enqueue(*texts[10:], org_id=OTHER_ORG)
    out.submit()

    (made,) = out.provider.live
    written = [line for line in made.data.split(b"\n") if line]
    assert len(written) == 20
    for words in written:
        assert sum(f'"{text}"'.encode() in words for text in texts) == 1
    by_name = {row["custom_id"]: row["job_id"] for row in out.items}
    payloads = {row["id"]: json.loads(row["payload"])["text"] for row in out.jobs}
    for line in made.lines:
        assert payloads[by_name[line["custom_id"]]] == line["body"]["input"][0]


@pytest.mark.req("P-17")
def test_tenants_share_a_batch_and_each_sees_only_its_own_items(out: Outgoing) -> None:
    out.enqueue("mine")
    out.enqueue("theirs", org_id=OTHER_ORG)
    out.submit()

    assert out.sent_texts() == [["mine", "theirs"]]
    assert sorted(row["org_id"] for row in out.items) == sorted([ORG, OTHER_ORG])


@pytest.mark.req("B-19", "P-08", "P-10")
def test_what_differs_in_its_group_goes_in_another_batch(out: Outgoing) -> None:
    out.enqueue("german", "german too")
    out.enqueue("spanish", route=replace(ROUTE, target_locale="es"))
    out.enqueue("newer prompt", route=replace(ROUTE, prompt_version="v4"))

    out.submit()

    assert sorted(out.sent_texts()) == [["german", "german too"], ["newer prompt"], ["spanish"]]
    assert {row["group_key"] for row in out.batches} == {row["group_key"] for row in out.items}


@pytest.mark.req("P-17")
def test_groups_share_a_batch_if_the_deployment_allows_it_and_are_contiguous(
    out: Outgoing,
) -> None:
    out.hf.settings = replace(out.hf.settings, batch=BatchSettings(merge_groups=True))
    out.hf.batch.accounts = out.accounts
    for number in range(3):
        out.enqueue(f"german {number}")
        out.enqueue(f"spanish {number}", route=replace(ROUTE, target_locale="es"))

    out.submit()

    (texts,) = out.sent_texts()
    assert [text.split()[0] for text in texts] == ["german"] * 3 + ["spanish"] * 3
    assert len({row["group_key"] for row in out.items}) == 2
    assert [row["batch_item_index"] for row in out.items] == list(range(6))


def test_a_full_batch_is_followed_by_another(out: Outgoing) -> None:
    out.provider.limits = Limits(max_items=2, max_bytes=1_000_000)
    jobs = out.enqueue("one", "two", "three", "four", "five")

    done = out.submit()

    assert sorted(map(len, out.sent_texts())) == [1, 2, 2]
    assert done["submitted"] == 3
    assert out.states(jobs) == Counter(batch_submitted=5)


def test_a_batch_never_has_more_bytes_than_it_may(out: Outgoing) -> None:
    out.provider.limits = Limits(max_items=1_000, max_bytes=600)
    out.enqueue(*(f"text {number}" for number in range(9)))
    out.submit()

    sizes = [len(made.data) for made in out.provider.live]
    assert len(sizes) > 1
    assert max(sizes) <= 600
    assert all(row["bytes"] <= 600 for row in out.batches)


def test_more_jobs_than_a_page_holds_are_one_batch_all_the_same(out: Outgoing) -> None:
    jobs = out.hf.enqueue_many(
        JOB_TYPE, [{"text": f"text {number}"} for number in range(600)], org_id=ORG
    )
    out.provider.limits = Limits(max_items=5_000, max_bytes=50_000_000)

    done = out.submit()

    assert done.outcomes == Counter(submitted=600)
    (made,) = out.provider.live
    assert len(made.lines) == 600 == out.batch["items"]
    assert sum(row["state"] == "batch_submitted" for row in out.jobs) == len(jobs)
    assert [row["batch_item_index"] for row in out.items] == list(range(600))


def test_a_batch_of_any_size_is_recorded_with_the_same_number_of_statements(
    out: Outgoing, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    recorded = type(out.hf.store).write

    def write(store: Store, work: Any) -> Any:
        statements = 0

        def watched(tx: Tx) -> Any:
            nonlocal statements
            fetch = tx._fetch

            def count(text: str, params: dict[str, Any], prepare: bool) -> Any:
                nonlocal statements
                statements += "holdfast" in text
                return fetch(text, params, prepare)

            tx._fetch = count  # type: ignore[method-assign]
            return work(tx)

        found = recorded(store, watched)
        counted.append(statements)
        return found

    def submit(number: int) -> int:
        out.enqueue(*(f"text {number} {place}" for place in range(number)))
        counted.clear()
        monkeypatch.setattr(type(out.hf.store), "write", write)
        out.submit()
        monkeypatch.undo()
        return max(counted)

    assert submit(1) == submit(150) <= 10


def test_the_route_that_was_frozen_decides_and_not_the_job_types_own(out: Outgoing) -> None:
    out.enqueue("one", route=replace(ROUTE, provider="gemini", model="model-9"))
    out.submit()

    assert out.batch["provider"] == "gemini"
    assert out.provider.live[0].model == "model-9"


def test_an_answer_must_repeat_a_word_of_its_own_where_the_provider_mixed_answers_up(
    out: Outgoing,
) -> None:
    out.provider.capabilities = Capabilities(wants_echo=True)
    out.enqueue("one", "two")
    out.submit()

    echoes = [row["echo"] for row in out.items]
    assert len(set(echoes)) == 2
    assert [line["body"]["echo"] for line in out.provider.live[0].lines] == echoes


def test_a_run_takes_no_more_jobs_than_it_may(out: Outgoing) -> None:
    jobs = out.enqueue("one", "two", "three")

    out.submit(max_jobs_per_run=2)

    assert out.states(jobs) == Counter(batch_submitted=2, queued=1)


def test_every_claim_is_recorded_as_a_start(out: Outgoing) -> None:
    out.enqueue("one", "two")
    out.submit()

    assert sum(isinstance(event, JobStarted) for event in out.told) == 2


# -- jobs that cannot be sent


@pytest.mark.req("B-03")
def test_what_the_account_has_no_tokens_for_goes_back_with_a_short_pause(out: Outgoing) -> None:
    tokens = Request(("x" * 300, ECHO_WORDS), "Shout.").input_tokens
    out.provider.limits = Limits(1_000, 1_000_000, enqueued_tokens=2 * tokens + 10)
    jobs = out.enqueue(*("x" * 300 for _ in range(3)))

    done = out.submit()

    assert done.outcomes == Counter(submitted=2, released=1)
    assert waits_for(out, jobs[2]) == OVERFLOW_SECONDS
    assert out.job(jobs[2]).attempt_count == 0
    assert out.job(jobs[2]).last_error is None
    assert timeline(out.hf, jobs[2]) == ["job.enqueued", "job.started", "job.released"]
    assert json.loads(events(out.hf, jobs[2])[-1]["detail"])["reason"] == "overflow"


@pytest.mark.req("B-03")
def test_the_tokens_of_a_batch_under_way_are_taken_until_it_has_ended(out: Outgoing) -> None:
    tokens = Request(("x" * 300, ECHO_WORDS), "Shout.").input_tokens
    out.provider.limits = Limits(1_000, 1_000_000, enqueued_tokens=tokens + 10)
    first, second = out.enqueue("x" * 300, "y" * 300)
    out.submit()
    out.later(seconds=OVERFLOW_SECONDS)
    out.submit()
    held = out.job(second).state

    by_hand(out.hf.store, "UPDATE holdfast.provider_batch SET state = 'ended'")
    out.later(seconds=OVERFLOW_SECONDS)
    out.submit()

    assert held == "queued"
    assert out.states([first, second]) == Counter(batch_submitted=2)


@pytest.mark.req("R-14")
def test_a_request_that_no_batch_can_hold_dies_at_once(out: Outgoing) -> None:
    out.provider.limits = Limits(1_000, 1_000_000, max_line_bytes=500)
    large, small = out.enqueue("x" * 600, "small")

    out.submit()

    assert out.job(large).state == "failed"
    assert out.job(large).error_class == "PROMPT_REFUSED"
    assert "request_too_large" in (out.job(large).last_error or "")
    assert out.job(small).state == "batch_submitted"


@pytest.mark.req("R-14")
@pytest.mark.parametrize(
    ("asks", "field"),
    [
        (lambda text: Request(text), "inputs"),
        (lambda text: Request((text,), max_output_tokens=-100_000), "max_output_tokens"),
        (lambda text: Request((text,), schema={"type": "objekt"}), "schema"),
        (lambda text: Request((text,), schema={"$ref": "https://example.com/x"}), "schema"),
        (lambda text: text, "request"),
        (lambda text: None, "request"),
    ],
    ids=["text", "negative", "bad_schema", "other_address", "no_request", "none"],
)
def test_what_is_no_request_dies_alone_and_is_not_sent(
    out: Outgoing, monkeypatch: pytest.MonkeyPatch, asks: Callable[[str], Any], field: str
) -> None:
    asked = out.work.request

    def request(item: Item) -> Any:
        text = item.payload["text"]
        return asks(text) if text == "bad" else asked(item)

    monkeypatch.setattr(out.work, "request", request)
    bad, good = out.enqueue("bad", "good")
    out.submit()

    assert (out.job(bad).state, out.job(bad).error_class) == ("failed", "SCHEMA_INVALID")
    assert f"field={field}" in (out.job(bad).last_error or "")
    assert out.job(good).state == "batch_submitted"
    assert [line["body"]["input"][0] for line in out.provider.live[0].lines] == ["good"]


@pytest.mark.req("B-03")
def test_what_is_not_reached_before_the_run_ends_goes_back_unharmed(out: Outgoing) -> None:
    jobs = out.enqueue("one", "two")

    def too_slow(point: Point) -> None:
        if point is Point.PREPARED:
            out.later(seconds=120)

    done = out.submit(dies_at=too_slow, max_runtime_seconds=60)

    assert done.outcomes == Counter(released=2)
    assert out.provider.live == []
    assert out.batch["state"] == "released"
    assert [row["state"] for row in out.items] == ["released", "released"]
    for job in jobs:
        assert waits_for(out, job) == OVERFLOW_SECONDS
        assert out.job(job).attempt_count == 0
        assert json.loads(events(out.hf, job)[-1]["detail"])["reason"] == "max_runtime"


def test_what_was_given_back_goes_with_a_later_run(out: Outgoing) -> None:
    jobs = out.enqueue("one", "two")
    out.submit(
        dies_at=lambda point: out.later(seconds=120) if point is Point.PREPARED else None,
        max_runtime_seconds=60,
    )
    out.later(seconds=OVERFLOW_SECONDS)
    out.submit()
    out.provider.complete()

    assert out.states(jobs) == Counter(batch_submitted=2)
    assert out.provider.paid == Counter(one=1, two=1)


@pytest.mark.req("R-14")
def test_an_application_that_refuses_its_own_item_harms_no_other(out: Outgoing) -> None:
    out.work.raises = {"bad": PolicyRejected(), "flaky": Transient(), "later": Snooze(60)}
    bad, flaky, later, good = out.enqueue("bad", "flaky", "later", "good")

    done = out.submit()

    assert done.outcomes == Counter(dead=1, retry=1, snoozed=1, submitted=1)
    assert done.errors == Counter(POLICY_REJECTED=1, TRANSIENT=1)
    assert out.job(bad).state == "failed"
    assert out.job(flaky).attempt_count == 1
    assert out.job(later).attempt_count == 0
    assert out.job(good).state == "batch_submitted"
    assert out.sent_texts() == [["good"]]


def test_nothing_is_sent_to_an_account_whose_circuit_is_open(out: Outgoing) -> None:
    jobs = out.enqueue("one")
    account = out.accounts.for_route(ROUTE).key
    stopped = Failure(FailureKind.ACCOUNT, "insufficient_quota", 429)
    out.hf.store.write(
        lambda tx: open_circuit(tx, out.hf.settings.batch, account, "openai", stopped)
    )

    done = out.submit()

    assert done.outcomes == Counter(released=1)
    assert waits_for(out, jobs[0]) == out.hf.settings.batch.circuit_seconds
    assert out.provider.calls == Counter()
    assert out.batches == []


def test_a_tenant_without_money_waits_and_its_neighbour_does_not(
    url: str, clock: FakeClock
) -> None:
    price = PriceSettings(
        provider="openai",
        model="*",
        mode="batch",
        valid_from=date(2025, 1, 1),
        input=Decimal(1),
        output=Decimal(1),
    )
    budget = BudgetSettings(usd_per_day=Decimal("0.0015"))
    hf = make_holdfast(url, clock, prices=(price,), budgets={ORG: budget})
    try:
        out = set_out(hf, clock)
        mine = out.enqueue("one", "two", "three")
        (theirs,) = out.enqueue("four", org_id=OTHER_ORG)

        done = out.submit()

        # A request costs at most its own tokens and 800 tokens of answer: 0.0009 dollars.
        assert done.outcomes == Counter(submitted=2, released=2)
        assert out.states(mine) == Counter(batch_submitted=1, queued=2)
        assert out.job(theirs).state == "batch_submitted"
        assert out.alerts() == ["budget_held"]
        assert [row["reserve_pico"] is not None for row in out.items] == [True, True]
    finally:
        hf.close()


def test_a_model_without_a_price_is_not_used_for_a_tenant_with_a_budget(
    url: str, clock: FakeClock
) -> None:
    hf = make_holdfast(url, clock, budgets={ORG: BudgetSettings(usd_per_day=Decimal(1))})
    price = PriceSettings("openai", "*", "batch", date(2025, 1, 1), Decimal(1), output=Decimal(1))
    try:
        out = set_out(hf, clock)
        (mine,) = out.enqueue("one")
        out.enqueue("two", org_id=OTHER_ORG)

        out.submit()
        waits = hf.operate(actor="user:1", role="admin").explain(mine.id)

        assert out.sent_texts() == [["two"]]
        assert (out.job(mine).state, out.job(mine).attempt_count) == ("queued", 0)
        assert (waits.reason, out.alerts()) == ("unpriced", ["budget_unpriced"])
        assert "[[prices]]" in waits.next

        hf.settings = replace(hf.settings, prices=(price,))
        assert hf.operate(actor="user:1", role="admin").explain(mine.id).reason == "not_due"
        clock.advance(minutes=15)
        out.submit()
        assert out.job(mine).state == "batch_submitted"
    finally:
        hf.close()


def test_a_job_that_can_never_fit_its_budget_says_so(url: str, clock: FakeClock) -> None:
    price = PriceSettings("openai", "*", "batch", date(2025, 1, 1), Decimal(1), output=Decimal(1))
    budget = BudgetSettings(usd_per_day=Decimal("0.0001"))
    hf = make_holdfast(url, clock, prices=(price,), budgets={ORG: budget})
    try:
        out = set_out(hf, clock)
        (job,) = out.enqueue("one")

        out.submit()
        found = hf.operate(actor="user:1", role="admin").explain(job.id)

        assert (found.reason, found.until) == ("exceeds_budget", None)
        assert "0.0001 USD" in found.line
        assert "Raise the budget" in found.next
    finally:
        hf.close()


def test_a_job_with_a_cancel_request_is_not_sent(out: Outgoing) -> None:
    stays, _ = out.enqueue("stays", "goes")

    def cancel(point: Point) -> None:
        if point is Point.CLAIMED:
            out.hf.cancel(stays.id, org_id=ORG)

    out.submit(dies_at=cancel)

    assert out.job(stays).state == "canceled"
    assert out.sent_texts() == [["goes"]]


def test_a_job_canceled_before_its_upload_leaves_the_batch(out: Outgoing) -> None:
    stays, goes = out.enqueue("stays", "goes")

    def cancel(point: Point) -> None:
        if point is Point.PREPARED:
            out.hf.cancel(stays.id, org_id=ORG)

    out.submit(dies_at=cancel)

    assert out.job(stays).state == "canceled"
    assert out.job(goes).state == "batch_submitted"
    assert out.sent_texts() == [["goes"]]
    assert [row["state"] for row in out.items] == ["released", "open"]


def test_a_job_canceled_during_its_create_ends_at_once_and_keeps_its_item(out: Outgoing) -> None:
    stops, goes = out.enqueue("stops", "goes")

    def cancel(point: Point) -> None:
        if point is Point.CREATED:
            out.hf.cancel(stops.id, org_id=ORG)

    done = out.submit(dies_at=cancel)

    assert done.outcomes == Counter(submitted=1, canceled=1)
    assert out.job(stops).state == "canceled"
    assert out.job(goes).state == "batch_submitted"
    assert timeline(out.hf, stops)[-2:] == ["job.submitted", "job.canceled"]
    assert [row["is_open"] for row in out.items] == [1, 1]


def test_a_batch_whose_jobs_were_all_canceled_is_never_sent(out: Outgoing) -> None:
    (job,) = out.enqueue("one")

    def cancel(point: Point) -> None:
        if point is Point.PREPARED:
            out.hf.cancel(job.id, org_id=ORG)

    out.submit(dies_at=cancel)

    assert out.job(job).state == "canceled"
    assert out.provider.calls == Counter()
    assert out.batch["state"] == "released"


def test_a_unit_that_is_still_out_is_not_sent_a_second_time(out: Outgoing) -> None:
    """Only a bug or a manual change of the database leads here; nothing is paid twice."""
    (job,) = out.enqueue("one", unit_key="unit-1")
    out.submit()
    requeue(out.hf.store, job.id)

    done = out.submit()

    assert done.outcomes == Counter(released=1)
    assert json.loads(events(out.hf, job)[-1]["detail"])["reason"] == "unit_in_flight"
    assert len(out.provider.live) == 1


def test_a_job_without_a_route_for_the_lane_dies_and_says_so(out: Outgoing) -> None:
    (job,) = out.enqueue("one")
    (other,) = out.enqueue("two", route=replace(ROUTE, execution_mode=ExecutionMode.ASYNC))
    out.submit()

    assert out.job(job).state == "batch_submitted"
    assert out.job(other).state == "queued"


def test_a_job_without_a_usable_account_waits_for_a_process_that_has_it(out: Outgoing) -> None:
    out.accounts.providers = ("gemini",)
    jobs = out.enqueue("one", "two")
    out.later(seconds=out.hf.settings.unknown_type_patience_seconds * 30)
    for _ in range(2):
        # The run reports the missing account, and does not succeed.
        with pytest.raises(ConfigError, match="No account is configured for provider 'openai'"):
            out.submit()
        out.later(minutes=15)
    waited = [out.job(job) for job in jobs]
    told = [event for event in out.told if isinstance(event, BatchAlert)]
    out.accounts.providers = ("openai",)
    out.submit()

    assert [(job.state, job.attempt_count) for job in waited] == [("queued", 0)] * 2
    assert [(one.what, one.account, one.count) for one in told] == [
        (BatchTrouble.ACCOUNT_UNUSABLE, "openai", 2)
    ] * 2
    assert out.states(jobs) == Counter(batch_submitted=2)


def test_a_run_with_work_to_submit_continues_beside_an_unusable_account(
    out: Outgoing,
) -> None:
    out.accounts.providers = ("openai",)
    (good,) = out.enqueue("one")
    (bad,) = out.enqueue("two", route=replace(ROUTE, provider="gemini"))

    out.submit()

    assert out.job(good).state == "batch_submitted"
    assert out.job(bad).state == "queued"
    assert out.alerts() == ["account_unusable"]


@pytest.mark.parametrize("order", ["fair", "created_at_asc"])
@pytest.mark.parametrize("trouble", ["no_account", "circuit", "spent", "unpriced"])
def test_jobs_that_cannot_be_sent_do_not_fill_every_run(
    url: str, clock: FakeClock, trouble: str, order: str
) -> None:
    """A run takes 4 jobs, and 9 older ones cannot be sent."""
    price = PriceSettings("openai", "*", "batch", date(2025, 1, 1), Decimal(1), output=Decimal(1))
    budgets = {OTHER_ORG: BudgetSettings(usd_per_day=Decimal(0 if trouble == "spent" else 1))}
    hf = make_holdfast(url, clock, prices=(price,), budgets=budgets)
    stuck = replace(ROUTE, provider="gemini") if trouble != "spent" else ROUTE
    try:
        out = set_out(hf, clock)
        if trouble == "no_account":
            out.accounts.providers = ("openai",)
        old = out.enqueue(*(f"old {n}" for n in range(9)), org_id=OTHER_ORG, route=stuck)
        if trouble == "circuit":
            account = out.accounts.for_route(stuck)
            refused = Failure(FailureKind.ACCOUNT, "insufficient_quota")
            hf.store.write(
                lambda tx: open_circuit(tx, hf.settings.batch, account.key, "gemini", refused)
            )
        clock.advance(minutes=1)
        new = out.enqueue("new 0", "new 1")

        done = out.submit(max_jobs_per_run=4, order=order)

        assert out.states(new) == Counter(batch_submitted=2)
        assert out.states(old) == Counter(queued=9)
        # The remaining capacity is used for the others, whose reason for waiting is recorded.
        assert done.outcomes == Counter(submitted=2, released=2)
    finally:
        hf.close()


# -- refusals


@pytest.mark.parametrize("operation", ["upload", "create"])
def test_a_provider_without_room_costs_no_attempt(out: Outgoing, operation: str) -> None:
    jobs = out.enqueue("one", "two")
    out.provider.script(operation, Refuse(FailureKind.CAPACITY, "token_limit_exceeded", 429))

    done = out.submit()

    assert done.outcomes == Counter(released=2)
    assert out.batch["state"] == "released"
    for job in jobs:
        assert waits_for(out, job) == OVERFLOW_SECONDS
        assert out.job(job).attempt_count == 0
        assert json.loads(events(out.hf, job)[-1]["detail"])["reason"] == "capacity"


def test_a_provider_that_asks_for_patience_gets_it(out: Outgoing) -> None:
    jobs = out.enqueue("one")
    out.provider.script("create", Refuse(retry_after=3600))

    out.submit()

    assert waits_for(out, jobs[0]) == 3600


@pytest.mark.parametrize("operation", ["upload", "create"])
def test_a_refused_account_opens_its_circuit_and_costs_no_attempt(
    out: Outgoing, operation: str
) -> None:
    jobs = out.enqueue("one", "two")
    out.provider.script(operation, Refuse(FailureKind.ACCOUNT, "insufficient_quota", 429))

    out.submit()
    calls = Counter(out.provider.calls)
    out.enqueue("three")
    out.submit()

    assert out.states(jobs) == Counter(queued=2)
    assert [out.job(job).attempt_count for job in jobs] == [0, 0]
    assert out.alerts() == ["circuit_opened"]
    assert out.provider.calls == calls


def test_the_next_success_closes_the_circuit(out: Outgoing) -> None:
    jobs = out.enqueue("one")
    out.provider.script("create", Refuse(FailureKind.ACCOUNT, "invalid_api_key", 401))
    out.submit()
    out.later(seconds=out.hf.settings.batch.circuit_seconds + 1)
    out.submit()

    assert out.states(jobs) == Counter(batch_submitted=1)
    (row,) = by_hand(out.hf.store, "SELECT closed_at FROM holdfast.provider_account")
    assert row["closed_at"] is not None


def test_two_batches_of_one_refused_account_ask_it_only_once(out: Outgoing) -> None:
    out.enqueue("german")
    out.enqueue("spanish", route=replace(ROUTE, target_locale="es"))
    out.provider.script("create", Refuse(FailureKind.ACCOUNT, "invalid_api_key", 401))

    out.submit()

    assert out.provider.calls["create"] == 1
    assert [row["state"] for row in out.jobs] == ["queued", "queued"]
    assert out.alerts() == ["circuit_opened"]


@pytest.mark.req("P-21", "R-17")
@pytest.mark.parametrize(
    ("kind", "status"),
    [(FailureKind.INVALID, 413), (FailureKind.POLICY, 400), (FailureKind.TRANSIENT, 500)],
)
def test_an_error_of_the_whole_batch_is_each_jobs_own_retry(
    out: Outgoing, kind: FailureKind, status: int
) -> None:
    jobs = out.enqueue("one", "two")
    out.provider.script("create", Refuse(kind, "not_this_way", status))

    done = out.submit()

    assert done.outcomes == Counter(retry=2)
    for job in jobs:
        assert out.job(job).attempt_count == 1
        assert waits_for(out, job) == 900
        assert timeline(out.hf, job) == [
            "job.enqueued",
            "job.started",
            "job.failed",
            "job.retried",
        ]


@pytest.mark.req("R-18")
def test_a_job_whose_batches_are_always_refused_ends_when_its_attempts_do(out: Outgoing) -> None:
    jobs = out.enqueue("one")
    for _ in range(3):
        out.provider.script("create", Refuse(FailureKind.INVALID, "too_large", 413))
        out.submit()
        out.later(hours=3)

    assert out.states(jobs) == Counter(failed=1)
    assert out.job(jobs[0]).error_class == "BATCH_FAILED"
    assert out.provider.calls["create"] == 3


@pytest.mark.req("P-05", "R-13", "R-20", "R-21")
def test_a_retried_job_travels_in_another_batch_and_keeps_the_name_of_its_first(
    out: Outgoing,
) -> None:
    (job,) = out.enqueue("one", route=replace(ROUTE, target_locale="es"))
    out.submit()
    first = out.job(job).record["provider_batch_id"]
    # The collector's treatment of an expired item.
    by_hand(
        out.hf.store,
        "UPDATE holdfast.batch_item SET state = 'not_run', is_open = 0, recorded_at = created_at",
    )
    requeue(out.hf.store, job.id, attempt_count=1)
    out.submit()

    assert out.job(job).record["provider_batch_id"] == first
    assert [row["attempt"] for row in out.items] == [1, 2]
    assert len({row["custom_id"] for row in out.items}) == 2
    assert len({row["group_key"] for row in out.items}) == 1
    assert [made.model for made in out.provider.live] == ["model-1", "model-1"]


@pytest.mark.parametrize(
    "refusal",
    [
        Refuse(FailureKind.INVALID, "file_not_found", 400),
        # The error of the adapters of all providers with files.
        Refuse(FailureKind.TRANSIENT, INPUT_NOT_FOUND, 404),
    ],
)
def test_a_file_that_is_not_seen_yet_is_waited_for(out: Outgoing, refusal: Refuse) -> None:
    jobs = out.enqueue("one")
    out.provider.script("create", refusal)

    out.submit()
    waiting = out.batch["state"]
    out.later(seconds=61)
    out.submit()

    assert waiting == "uploaded"
    assert out.states(jobs) == Counter(batch_submitted=1)
    assert out.provider.calls["upload"] == 1
    assert out.job(jobs[0]).attempt_count == 0


def test_a_request_that_is_called_wrong_twice_is_wrong(out: Outgoing) -> None:
    jobs = out.enqueue("one")
    refusal = Refuse(FailureKind.INVALID, "model_not_found", 400)
    out.provider.script("create", refusal, refusal)

    out.submit()
    out.later(seconds=61)
    out.submit()

    assert out.job(jobs[0]).attempt_count == 1
    assert out.job(jobs[0]).error_class == "BATCH_FAILED"
    assert out.provider.calls["create"] == 2


def test_an_upload_without_an_answer_is_done_again_and_leaves_nothing(out: Outgoing) -> None:
    jobs = out.enqueue("one")
    out.provider.script("upload", Lose(accepted=True))

    out.submit()
    assert out.batch["state"] == "prepared"
    out.later(minutes=2)
    out.submit()

    assert out.states(jobs) == Counter(batch_submitted=1)
    assert len(out.provider.standing_files) == 1


@pytest.mark.req("R-13", "R-17")
def test_an_upload_that_never_works_is_the_jobs_own_retry_in_the_end(out: Outgoing) -> None:
    jobs = out.enqueue("one")
    out.provider.script("upload", *(Lose() for _ in range(5)))
    for _ in range(5):
        out.submit()
        out.later(minutes=16)

    assert out.states(jobs) == Counter(queued=1)
    assert out.job(jobs[0]).attempt_count == 1
    assert out.job(jobs[0]).error_class == "NETWORK_TIMEOUT"
    assert out.batch["state"] == "released"


def test_the_deadline_is_a_while_after_what_the_provider_says(out: Outgoing) -> None:
    out.enqueue("one")
    out.submit()

    deadline = read_instant(out.batch["deadline_at"])
    assert deadline == out.clock.now() + timedelta(hours=25)


def test_a_request_that_changes_between_two_readings_is_not_sent(out: Outgoing) -> None:
    (job,) = out.enqueue("one")
    asked = 0
    usual = out.work.request

    def request(item: Any) -> Request:
        nonlocal asked
        asked += 1
        found = usual(item)
        return replace(found, instructions="Shout.", inputs=(f"{item.payload['text']} {asked}",))

    out.work.request = request  # type: ignore[method-assign]
    out.submit()

    assert out.provider.live == []
    assert out.job(job).state == "processing"
    assert out.batch["state"] == "prepared"


@pytest.mark.both_databases
def test_two_workers_hand_over_a_backlog_without_doing_a_job_twice(out: Outgoing) -> None:
    out.enqueue(*(f"text {number}" for number in range(120)))
    other = another(out)
    barrier = threading.Barrier(2)
    failed: list[BaseException] = []

    def submit(worker: Outgoing, owner: str) -> None:
        try:
            barrier.wait(10)
            worker.submit(owner=owner, max_jobs_per_run=80)
        except BaseException as exc:
            failed.append(exc)

    threads = [
        threading.Thread(target=submit, args=(worker, owner))
        for worker, owner in ((out, "left"), (other, "right"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    other.hf.close()
    out.submit(owner="last")
    out.provider.complete()

    assert failed == []
    assert len(out.provider.paid) == 120
    assert out.provider.double_paid() == {}
    assert Counter(row["state"] for row in out.jobs) == Counter(batch_submitted=120)


def test_the_phase_of_a_batch_that_is_adopted_is_kept(out: Outgoing) -> None:
    out.enqueue("one")
    out.submit()

    assert out.batch["provider_status"] == "in_progress"
    assert out.provider.live[0].phase is BatchPhase.RUNNING
