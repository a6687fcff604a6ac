"""The ledger: one row with the cost of each item and each call, written once."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.errors import RuleBroken
from holdfast.store import Row, Store, Tx, open_store
from holdfast_llm.batch.cost import (
    NOBODY,
    WHOLE_BATCH,
    By,
    CallEntry,
    CallKind,
    Recorded,
    kind_of,
    read_group_key,
    record_calls,
    sum_costs,
)
from holdfast_llm.batch.price import Prices
from holdfast_llm.provider.reply import Failure, FailureKind, Reply, Usage
from holdfast_llm.provider.route import ExecutionMode, Route
from tests.batch.ledger import ACCOUNT, BATCH, PRICES, ROUTE, call, put_open_item
from tests.story import ORG, OTHER_ORG, by_hand, look, make_holdfast

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
LATER = datetime(2100, 1, 1, tzinfo=UTC)


def record(store: Store, *entries: CallEntry) -> Recorded:
    return store.write(lambda tx: record_calls(tx, Prices(PRICES), entries))


def ledger(store: Store) -> list[Row]:
    return look(
        store, "SELECT * FROM holdfast.provider_call ORDER BY org_id, batch_item_index, kind"
    )


def test_an_item_is_entered_with_its_tokens_and_what_it_cost_to_the_last_digit(
    store: Store, clock: FakeClock
) -> None:
    usage = Usage(input=1234, output=77, reasoning=50)
    finished = clock.now() - timedelta(hours=2)

    record(store, call(usage=usage, model_billed="m1-2026-01-01", occurred_at=finished))

    (row,) = ledger(store)
    assert (row["cost_pico"], row["direct_pico"]) == (1542 * 10**6, 2 * 1542 * 10**6)
    assert (row["input_tokens"], row["output_tokens"], row["reasoning_tokens"]) == (1234, 77, 50)
    assert (row["provider"], row["model"], row["model_billed"]) == ("openai", "m1", "m1-2026-01-01")
    assert (row["source_locale"], row["target_locale"], row["price"]) == (
        "en",
        "es",
        "m* 2026-01-01",
    )
    assert row["is_priced"]


def test_a_second_pass_over_the_same_answers_adds_nothing(store: Store) -> None:
    first = record(store, call(0), call(1))
    again = record(store, call(0), call(1), call(2))

    assert (first.calls, again.calls) == (2, 1)
    assert sum(row["cost_pico"] for row in ledger(store)) == 3 * 1400 * 10**6


@pytest.mark.both_databases
def test_two_collectors_that_read_the_same_answers_at_once_enter_each_item_once(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    stores = [hf.store, open_store(url, clock=clock)]
    barrier = threading.Barrier(2)
    added: list[int] = []

    def collect(store: Store) -> None:
        barrier.wait(timeout=20)
        added.append(record(store, *(call(number) for number in range(200))).calls)

    threads = [threading.Thread(target=collect, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    stores[1].close()

    assert sum(added) == 200
    assert len(ledger(hf.store)) == 200


def test_a_thousand_entries_are_one_statement(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []

    def work(tx: Tx) -> Recorded:
        fetch = tx._fetch

        def counted(*asked: Any) -> Any:
            statements.append(asked[0])
            return fetch(*asked)

        monkeypatch.setattr(tx, "_fetch", counted)
        return record_calls(tx, Prices(PRICES), [call(number) for number in range(1000)])

    assert store.write(work).calls == 1000
    assert len(statements) == 1


def test_a_model_without_a_price_is_entered_without_a_cost_and_named(store: Store) -> None:
    stranger = Route("openai", "openai_responses", "strange")

    recorded = record(store, call(0, stranger), call(1))

    assert recorded.unpriced == {("openai", "strange")}
    unpriced, priced = ledger(store)
    assert (unpriced["cost_pico"], bool(unpriced["is_priced"])) == (None, False)
    assert bool(priced["is_priced"])
    assert record(store, call(0, stranger)).unpriced == frozenset()


def test_what_a_provider_says_instead_of_a_models_name_is_not_kept(store: Store) -> None:
    record(store, call(model_billed="Dear Alice, your complaint about\nthe kitchen"))

    (row,) = ledger(store)
    assert (row["model"], row["model_billed"], row["cost_pico"]) == ("m1", None, 1400 * 10**6)


def test_tokens_of_a_class_without_a_price_leave_the_whole_item_unpriced(store: Store) -> None:
    record(store, call(usage=Usage(input=1000, cache_read=1)))

    (row,) = ledger(store)
    assert (row["cost_pico"], row["cache_read_tokens"]) == (None, 1)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Reply("text", "m1", Usage(input=1)), CallKind.ACTUAL),
        (Reply("text", "m1"), CallKind.UNKNOWN),
        (Failure(FailureKind.TRUNCATED, "length", usage=Usage(output=9)), CallKind.ACTUAL),
        (Failure(FailureKind.POLICY, "refusal", usage=Usage(output=9)), CallKind.ACTUAL),
        (Failure(FailureKind.NOT_RUN, "batch_expired"), CallKind.FREE),
        (Failure(FailureKind.TRANSIENT, "server_error"), CallKind.FREE),
    ],
    ids=str,
)
def test_what_was_billed_counts_whether_it_is_of_use_or_not(
    answer: Reply | Failure, kind: CallKind
) -> None:
    assert kind_of(answer) is kind


def test_items_that_did_not_run_are_free_and_unknown_ones_have_no_cost(store: Store) -> None:
    known = {
        "org_id": ORG, "batch_id": BATCH, "provider_batch_id": "b", "account": ACCOUNT,
        "group_key": ROUTE.group_key,
    }  # fmt: skip
    expired = Failure(FailureKind.NOT_RUN, "batch_expired", provider_request_id="req_1")

    recorded = record(
        store,
        CallEntry.from_answer(expired, batch_item_index=0, **known),
        CallEntry.from_answer(Reply("text", "m1"), batch_item_index=1, **known),
        call(2, kind=CallKind.UNKNOWN, usage=None, at_most_pico=7),
        call(3, kind=CallKind.ORPHAN),
    )

    rows = ledger(store)
    assert [(row["kind"], row["cost_pico"], row["at_most_pico"]) for row in rows] == [
        ("free", 0, None),
        ("unknown", None, None),
        ("unknown", None, 7),
        ("orphan", 1400 * 10**6, None),
    ]
    assert rows[0]["provider_request_id"] == "req_1"
    # Unknown usage is not a missing price.
    assert recorded.unpriced == frozenset()


def test_an_answer_without_its_tokens_may_have_cost_what_was_reserved(store: Store) -> None:
    put_open_item(store, 0, 5 * 10**9)
    put_open_item(store, 1, 5 * 10**9)

    record(store, call(0, kind=CallKind.UNKNOWN, usage=None), call(1))

    unknown, known = ledger(store)
    assert (unknown["cost_pico"], unknown["at_most_pico"]) == (None, 5 * 10**9)
    assert (known["cost_pico"], known["at_most_pico"]) == (1400 * 10**6, None)


def test_a_second_batch_of_ours_is_entered_beside_the_first(store: Store) -> None:
    second = call(WHOLE_BATCH, org_id=NOBODY, kind=CallKind.ORPHAN, provider_batch_id="batch_2")

    record(store, call(0), second)
    record(store, call(0, provider_batch_id="batch_2", kind=CallKind.ORPHAN))

    assert [(str(row["org_id"]), row["provider_batch_id"]) for row in ledger(store)] == [
        (NOBODY, "batch_2"),
        (ORG, "batch_1"),
        (ORG, "batch_2"),
    ]


def test_a_provider_whose_clock_is_ahead_enters_nothing_in_the_future(
    store: Store, clock: FakeClock
) -> None:
    record(store, call(occurred_at=clock.now() + timedelta(days=400)))

    (row,) = ledger(store)
    assert row["occurred_at"] == row["recorded_at"]


@pytest.mark.both_databases
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE holdfast.provider_call SET cost_pico = 0 RETURNING org_id",
        "DELETE FROM holdfast.provider_call RETURNING org_id",
    ],
)
def test_the_ledger_cannot_be_changed_by_hand(store: Store, change: str) -> None:
    record(store, call())

    with pytest.raises(RuleBroken, match="append-only"):
        by_hand(store, change)
    assert len(ledger(store)) == 1


@pytest.mark.both_databases
def test_a_cost_without_a_price_cannot_be_entered(store: Store) -> None:
    record(store, call())

    with pytest.raises(RuleBroken, match="provider_call_priced_iff_cost"):
        by_hand(
            store,
            "INSERT INTO holdfast.provider_call"
            " SELECT org_id, batch_id, 9, provider_batch_id, kind, job_id, job_type, attempt,"
            " account, provider, model, model_billed, execution_mode, lane, source_locale,"
            " target_locale, provider_request_id, 1, 0, 0, 0, 0, 0, FALSE, 5,"
            " NULL, NULL, NULL, occurred_at, recorded_at FROM holdfast.provider_call"
            " RETURNING org_id",
        )


def test_a_tenant_sees_its_own_part_of_the_ledger(postgres_url: str, clock: FakeClock) -> None:
    hf = make_holdfast(postgres_url, clock)
    record(hf.store, call(0), call(1, org_id=OTHER_ORG))

    with hf.store.tenant_transaction(ORG, None, lambda tx: None) as connection:
        seen = connection.execute("SELECT org_id::text FROM holdfast.provider_call").fetchall()

    hf.close()
    assert [row[0] for row in seen] == [ORG]


# -- queries


@pytest.mark.parametrize(
    "route",
    [
        ROUTE,
        Route("a|b", "k", "m\\|x", prompt_version="v|3", lane="\\", source_locale="en"),
        Route("p", "k", "m", execution_mode=ExecutionMode.ASYNC),
    ],
)
def test_a_group_key_can_be_read_back(route: Route) -> None:
    found = read_group_key(route.group_key)

    assert found == {name: str(getattr(route, name)) for name in found}
    assert len(found) == 8


def test_costs_are_grouped_by_language_pair_with_the_batch_cost_of_direct_calls(
    store: Store,
) -> None:
    german = Route("openai", "openai_responses", "m1", source_locale="en", target_locale="de")
    alone = Route(
        "openai", "openai_responses", "m1", execution_mode=ExecutionMode.ASYNC,
        source_locale="en", target_locale="de",
    )  # fmt: skip
    record(store, call(0), call(1), call(2), call(3, german), call(4, alone))

    found = store.read(lambda tx: sum_costs(tx, [By.LANGUAGE_PAIR, By.MODE], LONG_AGO, LATER))

    assert [
        (one.group, one.calls, one.cost_pico, one.direct_pico, one.saved_pico) for one in found
    ] == [
        ({"language-pair": "en → es", "mode": "batch"}, 3, 42 * 10**8, 84 * 10**8, 42 * 10**8),
        ({"language-pair": "en → de", "mode": "async"}, 1, 28 * 10**8, 28 * 10**8, 0),
        ({"language-pair": "en → de", "mode": "batch"}, 1, 14 * 10**8, 28 * 10**8, 14 * 10**8),
    ]  # fmt: skip


def test_costs_are_grouped_by_every_column(store: Store, clock: FakeClock) -> None:
    record(store, call(0, occurred_at=clock.now() - timedelta(days=1)), call(1, org_id=OTHER_ORG))

    found = store.read(lambda tx: sum_costs(tx, tuple(By), LONG_AGO, LATER))

    days = {one.group["org"]: one.group["day"] for one in found}
    assert days == {ORG: "2026-01-04", OTHER_ORG: "2026-01-05"}
    assert {tuple(one.group) for one in found} == {tuple(By)}
    assert {one.group["job-type"] for one in found} == {"text.rewrite"}


def test_only_the_days_and_the_tenant_that_were_asked_for_count(
    store: Store, clock: FakeClock
) -> None:
    today = clock.now().replace(hour=0)
    record(
        store, call(0, occurred_at=today - timedelta(milliseconds=1)), call(1, occurred_at=today)
    )
    record(store, call(2, org_id=OTHER_ORG, occurred_at=today))

    found = store.read(lambda tx: sum_costs(tx, [By.DAY], today.replace(minute=0), LATER, ORG))

    assert [(one.group, one.calls) for one in found] == [({"day": "2026-01-05"}, 1)]


def test_what_has_only_one_price_is_not_compared(store: Store) -> None:
    only_batch = Prices(PRICES[:1])
    store.write(lambda tx: record_calls(tx, only_batch, [call(0)]))
    record(store, call(1))

    (found,) = store.read(lambda tx: sum_costs(tx, [By.MODEL], LONG_AGO, LATER))

    assert (found.calls, found.compared) == (2, 1)
    assert (found.cost_pico, found.compared_pico, found.direct_pico) == (
        28 * 10**8, 14 * 10**8, 28 * 10**8,
    )  # fmt: skip
