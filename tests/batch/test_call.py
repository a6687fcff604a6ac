"""A direct call: one job, one request, one answer, and a record that precedes the call."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest

from holdfast import Enqueued, FakeClock, Holdfast, Permanent, RetryPolicy, State
from holdfast.engine.worker.worker import run_maintenance
from holdfast.event import BatchAlert, Event
from holdfast.store import Row
from holdfast.testing import Crash
from holdfast_llm import ExecutionMode, Item, Reply, Request, Route
from holdfast_llm.provider.adapter import Capabilities
from holdfast_llm.provider.reply import Answer, Failure, FailureKind, ProviderUnsure, Usage
from holdfast_llm.settings import BudgetSettings, PriceSettings
from tests.batch.scripted import Lose, Refuse, ScriptedAccounts, ScriptedProvider
from tests.failpoints import BatchPoint as Point
from tests.failpoints import install
from tests.story import ORG, OTHER_ORG, events, look, timeline
from tests.words import kept, make_words, store_words, words_of

ROUTE = Route(
    "openai", "scripted", "model-1", execution_mode=ExecutionMode.ASYNC, target_locale="de"
)
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
SECRET = "a sentence that is nobody else's"


class Shout:
    """Returns a text in capitals, and refuses some."""

    def request(self, item: Item) -> Request:
        return Request((item.payload["text"],), "Shout.", schema=SCHEMA)

    def accept(self, item: Item, reply: Reply) -> Any:
        if "never" in reply.data["text"].lower():
            raise Permanent(code="lexicon")
        return {"said": reply.data["text"]}


@dataclass
class Scene:
    hf: Holdfast
    clock: FakeClock
    provider: ScriptedProvider
    told: list[Event] = field(default_factory=list)

    def enqueue(self, text: str = "hello", **options: Any) -> Enqueued:
        return self.hf.enqueue("text.shout", {"text": text}, **{"org_id": ORG, **options})

    def work(self, **advance: float) -> dict[str, int]:
        if advance:
            self.clock.advance(**advance)
        return dict(self.hf.worker().run_once().outcomes)

    def job(self, job: Enqueued) -> Any:
        return self.hf.get(job.id, org_id=job.org_id)

    def rows(self, table: str, order: str) -> list[Row]:
        return look(self.hf.store, f"SELECT * FROM holdfast.{table} ORDER BY {order}")

    @property
    def items(self) -> list[Row]:
        return self.rows("batch_item", "batch_id, batch_item_index")

    @property
    def groups(self) -> list[Row]:
        return self.rows("provider_batch", "id")

    @property
    def ledger(self) -> list[Row]:
        return self.rows("provider_call", "recorded_at, batch_id, batch_item_index")

    @property
    def alerts(self) -> list[tuple[str, int]]:
        found = [event for event in self.told if isinstance(event, BatchAlert)]
        return [(str(event.what), event.count) for event in found]


@pytest.fixture
def scene(hf: Holdfast, clock: FakeClock) -> Scene:
    provider = ScriptedProvider(clock)
    made = Scene(hf, clock, provider)
    hf.batch.accounts = ScriptedAccounts(provider)
    minute = RetryPolicy(steps=(timedelta(minutes=1),))
    hf.batch("text.shout", route=ROUTE, max_attempts=3, retry=minute)(Shout)
    hf.events.subscribe(made.told.append)
    return made


def answer(scene: Scene, given: Answer) -> None:
    scene.provider.answer = lambda line: given


# -- an answer


@pytest.mark.req("B-18")
@pytest.mark.req("P-11", "P-12")
def test_a_job_is_called_for_and_its_answer_is_filed_under_its_place(scene: Scene) -> None:
    job = scene.enqueue()

    assert scene.work() == {"completed": 1}

    assert scene.job(job).result == {"said": "HELLO"}
    (item,), (group,), (entry,) = scene.items, scene.groups, scene.ledger
    assert (item["batch_id"], item["batch_item_index"]) == (group["id"], 0)
    assert (item["job_id"], item["attempt"], item["state"]) == (job.id, 1, "succeeded")
    assert (group["state"], group["execution_mode"], group["items"]) == ("collected", "async", 1)
    assert group["group_key"] == ROUTE.group_key
    assert (entry["kind"], entry["execution_mode"]) == ("actual", "async")
    assert (entry["input_tokens"], entry["output_tokens"]) == (10, 5)
    assert scene.job(job).record["provider_batch_id"] is None
    assert scene.provider.paid == {"hello": 1}


def test_neither_text_nor_answer_is_anywhere_but_in_the_job(scene: Scene) -> None:
    scene.enqueue(SECRET)
    scene.provider.script("call", Lose(accepted=True))

    scene.work()
    scene.work(minutes=1)

    tables = ("batch_item", "provider_batch", "provider_call", "job_event")
    written = json.dumps([scene.rows(name, "1") for name in tables], default=str)
    assert SECRET.lower() not in written.lower()


def test_an_answer_that_the_application_will_not_have_is_dead_and_paid_for(scene: Scene) -> None:
    job = scene.enqueue("say never")

    assert scene.work() == {"dead": 1}

    assert scene.job(job).error_class == "PERMANENT"
    assert [(row["state"], row["error_class"]) for row in scene.items] == [("failed", "PERMANENT")]
    assert [row["kind"] for row in scene.ledger] == ["actual"]


def break_accept(scene: Scene, times: int) -> None:
    """The number of times that the application cannot accept its answer."""
    work = scene.hf.registry.get("text.shout").work
    accept, left = work.accept, [ConnectionError] * times

    def frail(item: Item, reply: Reply) -> Any:
        if left:
            raise left.pop()
        return accept(item, reply)

    work.accept = frail


def test_an_answer_that_cannot_be_taken_just_now_is_waited_for_and_not_asked_for_again(
    scene: Scene,
) -> None:
    break_accept(scene, 3)
    job = scene.enqueue()

    scene.work()

    assert str(scene.job(job).state) == "completed"
    assert scene.provider.calls["call"] == 1
    assert scene.job(job).attempt_count == 0


def test_an_answer_that_cannot_be_taken_at_all_is_dead_and_paid_for_once(scene: Scene) -> None:
    break_accept(scene, 100)
    job = scene.enqueue()

    scene.work()
    scene.work(minutes=5)

    found = scene.job(job)
    assert (str(found.state), found.error_class) == ("failed", "ANSWER_NOT_TAKEN")
    assert scene.provider.calls["call"] == 1
    assert [row["kind"] for row in scene.ledger] == ["actual"]


def test_an_answer_of_another_shape_is_dead_at_once(scene: Scene) -> None:
    job = scene.enqueue()
    answer(scene, Reply('{"text": 7}', "model-1", Usage(1, output=1)))

    assert scene.work() == {"dead": 1}
    assert scene.job(job).error_class == "OUTPUT_INVALID"


def test_an_answer_without_its_echo_is_noticed_where_the_account_asks_for_one(
    scene: Scene,
) -> None:
    scene.provider.capabilities = Capabilities(wants_echo=True)
    good = scene.enqueue("one")
    assert scene.work() == {"completed": 1}

    crossed = scene.enqueue("two")
    answer(scene, Reply('{"text": "TWO", "rid": "zzzzzzzz"}', "model-1", Usage(1, output=1)))
    assert scene.work() == {"dead": 1}

    assert scene.job(good).result == {"said": "ONE"}
    assert scene.job(crossed).error_class == "OUTPUT_INVALID"
    assert ("cross_wired", 1) in scene.alerts


# -- no answer


@pytest.mark.req("R-13", "R-14")
@pytest.mark.parametrize(
    ("kind", "outcome", "charged", "state", "error_class"),
    [
        (FailureKind.TRANSIENT, "retry", 1, "failed", "UPSTREAM_ERROR"),
        (FailureKind.CAPACITY, "released", 0, "not_run", None),
        (FailureKind.ACCOUNT, "released", 0, "not_run", None),
        (FailureKind.INVALID, "dead", 1, "failed", "PROMPT_REFUSED"),
        (FailureKind.POLICY, "dead", 1, "failed", "POLICY_REJECTED"),
        (FailureKind.TRUNCATED, "dead", 1, "failed", "OUTPUT_TRUNCATED"),
    ],
)
def test_a_failure_counts_as_an_attempt_is_released_or_final_by_its_kind(
    scene: Scene,
    kind: FailureKind,
    outcome: str,
    charged: int,
    state: str,
    error_class: str | None,
) -> None:
    job = scene.enqueue()
    answer(scene, Failure(kind, "some_code", 400 if charged == 0 else None))

    assert scene.work() == {outcome: 1}

    found = scene.job(job)
    assert (found.attempt_count, found.error_class) == (charged, error_class)
    assert [row["state"] for row in scene.items] == [state]
    assert [row["state"] for row in scene.groups] == ["collected"]
    assert [row["kind"] for row in scene.ledger] == ["free"]


def test_a_request_that_is_too_large_is_not_even_sent(scene: Scene) -> None:
    job = scene.enqueue("x" * 2000)
    scene.provider.limits = replace(scene.provider.limits, max_line_bytes=1000)

    assert scene.work() == {"dead": 1}

    assert scene.job(job).error_class == "PROMPT_REFUSED"
    assert (scene.provider.calls["call"], scene.items) == (0, [])


def test_a_job_that_is_canceled_before_its_call_is_not_called_for(scene: Scene) -> None:
    job = scene.enqueue()

    class Cancels(Shout):
        def request(self, item: Item) -> Request:
            scene.hf.cancel(job.id, org_id=ORG)
            return super().request(item)

    handler = scene.hf.registry.handlers["text.shout"]
    scene.hf.registry.handlers["text.shout"] = replace(handler, work=Cancels())

    assert scene.work() == {"canceled": 1}
    assert (scene.provider.calls["call"], scene.items) == (0, [])


# -- the account and the budget


def test_a_job_waits_for_its_account_without_an_attempt_and_an_alert_is_sent(scene: Scene) -> None:
    accounts = scene.hf.batch.accounts
    assert isinstance(accounts, ScriptedAccounts)
    accounts.providers = ()
    job = scene.enqueue()

    assert scene.work(hours=30) == {"released": 1}
    assert (scene.job(job).state, scene.job(job).attempt_count) == ("queued", 0)
    assert scene.alerts == [("account_unusable", 1)]

    accounts.providers = ("openai",)
    assert scene.work(minutes=15) == {"completed": 1}


def test_a_call_that_failed_at_the_provider_may_have_been_paid_for(scene: Scene) -> None:
    said = Failure(FailureKind.TRANSIENT, "server_error", 500)

    def fails(line: Any) -> Answer:
        raise ProviderUnsure("status_500", failure=said)

    scene.provider.answer = fails
    scene.enqueue()

    assert scene.work() == {"retry": 1}

    (entry,), (item,) = scene.ledger, scene.items
    assert (entry["kind"], item["state"], item["error_code"]) == (
        "unknown",
        "unknown",
        "server_error",
    )


def test_an_account_that_says_no_is_left_alone_and_no_job_pays_for_it(scene: Scene) -> None:
    first = scene.enqueue("one")
    scene.provider.script("call", Refuse(FailureKind.ACCOUNT, "insufficient_quota", 429))
    assert scene.work() == {"released": 1}
    second = scene.enqueue("two")

    assert scene.work() == {"released": 1}

    assert scene.provider.calls["call"] == 1
    assert [scene.job(job).attempt_count for job in (first, second)] == [0, 0]
    assert ("circuit_opened", 1) in scene.alerts
    assert scene.work(minutes=6) == {"completed": 2}
    assert [row["closed_at"] is not None for row in scene.rows("provider_account", "1")] == [True]


@pytest.mark.req("R-07", "R-28")
def test_a_refused_account_is_asked_ten_times_and_not_for_days(scene: Scene) -> None:
    refusal = Refuse(FailureKind.ACCOUNT, "invalid_api_key", 401)
    scene.provider.script("call", *[refusal] * 500)
    jobs = [scene.enqueue(f"text {number}") for number in range(3)]

    calls = []
    for _ in range(8 * 9):
        scene.work(hours=3)
        calls.append(scene.provider.calls["call"])

    assert calls[31] <= 8
    assert calls[-1] == 10
    assert [scene.job(job).attempt_count for job in jobs] == [0, 0, 0]


def test_a_tenant_that_has_spent_its_budget_waits_and_the_others_do_not(scene: Scene) -> None:
    price = PriceSettings(
        "openai", "model-1", "async", date(2020, 1, 1), Decimal(1000), output=Decimal(1000)
    )
    scene.hf.settings = replace(
        scene.hf.settings,
        prices=(price,),
        budgets={ORG: BudgetSettings(usd_per_day=Decimal("0.01"))},
    )
    poor = scene.enqueue()
    rich = scene.enqueue("other", org_id=OTHER_ORG)

    assert scene.work() == {"completed": 1, "released": 1}

    assert (scene.job(poor).state, scene.job(poor).attempt_count) == (State.QUEUED, 0)
    assert scene.job(rich).state is State.COMPLETED
    released = [row for row in events(scene.hf, poor) if row["name"] == "job.released"]
    assert '"exceeds_budget"' in str(released[0]["detail"])
    assert ("budget_held", 1) in scene.alerts


def test_a_call_without_a_price_is_reported(scene: Scene) -> None:
    scene.enqueue()

    scene.work()

    assert ("unpriced", 1) in scene.alerts
    assert [(row["cost_pico"], bool(row["is_priced"])) for row in scene.ledger] == [(None, False)]


# -- lost answers and killed workers


@pytest.mark.parametrize("was_accepted", [False, True])
def test_a_lost_answer_is_recorded_as_unknown_and_counts_as_an_attempt(
    scene: Scene, was_accepted: bool
) -> None:
    job = scene.enqueue()
    scene.provider.script("call", Lose(accepted=was_accepted))

    assert scene.work() == {"retry": 1}

    found = scene.job(job)
    assert (found.attempt_count, found.error_class) == (1, "NETWORK_TIMEOUT")
    assert [row["state"] for row in scene.items] == ["unknown"]
    assert [(row["kind"], row["cost_pico"]) for row in scene.ledger] == [("unknown", None)]
    assert ("unknown_call", 1) in scene.alerts

    assert scene.work(minutes=1) == {"completed": 1}
    assert sorted(row["kind"] for row in scene.ledger) == ["actual", "unknown"]


def test_an_answer_that_is_always_lost_ends_with_the_budget_of_attempts(scene: Scene) -> None:
    job = scene.enqueue()
    scene.provider.script("call", *[Lose(accepted=True)] * 5)

    done = [scene.work(minutes=1) for _ in range(5)]

    assert done == [{"retry": 1}, {"retry": 1}, {"dead": 1}, {}, {}]
    assert scene.provider.calls["call"] == 3
    assert [row["attempt"] for row in scene.items] == [1, 2, 3]
    assert scene.job(job).state is State.FAILED


def die_at(scene: Scene, point: Point) -> None:
    """A worker is killed at *point*; its lease expires and the job is rescued."""

    def reached(here: Point) -> None:
        if here is point:
            raise Crash(point)

    stop = install(scene.hf, Point, reached)
    with pytest.raises(Crash):
        scene.work()
    stop()
    assert [row["state"] for row in scene.items][-1] == "open"
    scene.clock.advance(seconds=61)
    run_maintenance(scene.hf.store, scene.hf.settings, scene.hf.events)


@pytest.mark.parametrize("point", [Point.CALL_RECORDED, Point.CALLED])
def test_a_worker_that_dies_with_a_call_leaves_a_record_of_it(scene: Scene, point: Point) -> None:
    job = scene.enqueue()
    die_at(scene, point)

    assert scene.work(minutes=1) == {"completed": 1}

    assert [(row["attempt"], row["state"]) for row in scene.items] == [
        (1, "unknown"),
        (2, "succeeded"),
    ]
    assert sorted(row["kind"] for row in scene.ledger) == ["actual", "unknown"]
    assert [row["state"] for row in scene.groups] == ["collected"] * 2
    assert scene.job(job).attempt_count == 1
    assert ("unknown_call", 1) in scene.alerts


def test_the_call_of_a_job_that_died_with_its_worker_is_ended_by_the_collector(
    scene: Scene,
) -> None:
    job = scene.enqueue(max_attempts=1)
    die_at(scene, Point.CALLED)
    assert scene.job(job).state is State.FAILED

    assert scene.hf.batch.service.finish_abandoned_calls() == 1
    assert scene.hf.batch.service.finish_abandoned_calls() == 0

    assert [row["state"] for row in scene.items] == ["unknown"]
    assert [row["kind"] for row in scene.ledger] == ["unknown"]
    assert [row["state"] for row in scene.groups] == ["collected"]


def test_a_running_call_is_not_ended_by_another_process(scene: Scene) -> None:
    scene.enqueue()
    seen: list[int] = []
    install(
        scene.hf,
        Point,
        lambda here: seen.append(scene.hf.batch.service.finish_abandoned_calls()),
    )

    assert scene.work() == {"completed": 1}
    assert seen == [0, 0]


def test_a_worker_that_lost_its_lease_before_the_intent_does_not_call(scene: Scene) -> None:
    scene.enqueue()

    class Slow(Shout):
        def request(self, item: Item) -> Request:
            scene.clock.advance(seconds=61)
            run_maintenance(scene.hf.store, scene.hf.settings, scene.hf.events)
            return super().request(item)

    handler = scene.hf.registry.handlers["text.shout"]
    scene.hf.registry.handlers["text.shout"] = replace(handler, work=Slow())

    assert scene.work() == {"lease_lost": 1}
    assert (scene.provider.calls["call"], scene.items) == (0, [])


# -- data that the application stores


class Keeps(Shout):
    def accept(self, item: Item, reply: Reply) -> Any:
        return kept(reply.data["text"], {"ok": True})


def test_what_is_kept_is_written_with_the_end_of_the_job_and_of_its_call(scene: Scene) -> None:
    make_words(scene.hf.store)
    scene.hf.batch("text.keep", route=ROUTE, stores=store_words())(Keeps)
    job = scene.hf.enqueue("text.keep", {"text": "hello"}, org_id=ORG)

    assert scene.work() == {"completed": 1}

    assert words_of(scene.hf.store) == ["HELLO"]
    assert scene.job(job).result == {"ok": True}
    assert [row["state"] for row in scene.items] == ["succeeded"]


def test_the_audit_of_a_call_is_that_of_any_job(scene: Scene) -> None:
    job = scene.enqueue()

    scene.work()

    assert timeline(scene.hf, job) == ["job.enqueued", "job.started", "job.succeeded"]
