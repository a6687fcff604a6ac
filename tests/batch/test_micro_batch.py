"""Micro-batches: similar calls share a request, and no request has texts of two users."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import FakeClock, Holdfast
from holdfast_llm import ExecutionMode, Item, Reply, Request, Route
from holdfast_llm.batch.micro_batch import MAX_BYTES, Batcher, Group, Slot
from holdfast_llm.batch.rendered_request import RenderedRequest
from holdfast_llm.provider.reply import FailureKind
from holdfast_llm.provider.route import GROUP
from holdfast_llm.settings import BatchSettings
from tests.batch.scripted import Refuse, ScriptedAccounts, ScriptedProvider
from tests.failpoints import BatchPoint as Point
from tests.failpoints import install
from tests.story import ORG, OTHER_ORG, look, make_holdfast

ROUTE = Route(
    "openai",
    "scripted",
    "gpt-5.2",
    prompt_version="v3",
    policy_version="v1",
    execution_mode=ExecutionMode.ASYNC,
    source_locale="en-US",
    target_locale="en-US",
)


class Shout:
    """Requests a text, together with as many others as the test specifies."""

    def __init__(self, together: int) -> None:
        self.barrier = threading.Barrier(together, timeout=20)
        self.asked: set[str] = set()

    def request(self, item: Item) -> Request:
        # The request is built again when its answer is checked.
        if item.job_id not in self.asked:
            self.asked.add(item.job_id)
            self.barrier.wait()
        return Request((item.payload["text"],), "Shout.")

    def accept(self, item: Item, reply: Reply) -> Any:
        return {"said": reply.text}


class Provider(ScriptedProvider):
    """Records the bodies of its requests."""

    bodies: list[dict[str, Any]]

    def call(self, client: Any, route: Any, body: Any) -> Any:
        self.bodies.append(body)
        return super().call(client, route, body)


def app(url: str, clock: FakeClock, together: int, **batch: Any) -> tuple[Holdfast, Provider]:
    hf = make_holdfast(url, clock, batch=BatchSettings(**batch))
    provider = Provider(clock)
    provider.bodies = []
    hf.batch.accounts = ScriptedAccounts(provider)
    hf.batch("text.shout", route=ROUTE, max_attempts=2)(Shout(together))
    return hf, provider


def enqueue(hf: Holdfast, count: int, **route: str) -> list[Any]:
    return [
        hf.enqueue(
            "text.shout",
            {"text": f"canary-{number}-{route or ''}"},
            org_id=ORG if number % 2 else OTHER_ORG,
            routing_decision=route,
        )
        for number in range(count)
    ]


def work(hf: Holdfast, concurrency: int) -> Counter[str]:
    return hf.worker(concurrency=concurrency).run(until_idle=True).outcomes


def groups(hf: Holdfast) -> list[int]:
    rows = look(
        hf.store,
        "SELECT batch.id, batch.items, count(*) AS found FROM holdfast.provider_batch AS batch"
        " JOIN holdfast.batch_item AS item ON item.batch_id = batch.id GROUP BY batch.id",
    )
    assert all(row["items"] == row["found"] for row in rows)
    return sorted(row["items"] for row in rows)


# -- in a worker


@pytest.mark.req("P-06", "P-07", "P-11")
def test_calls_that_are_on_their_way_together_are_one_group_of_separate_requests(
    url: str, clock: FakeClock
) -> None:
    hf, provider = app(url, clock, 4)
    jobs = enqueue(hf, 4)

    assert work(hf, 4) == {"completed": 4}

    items = look(hf.store, "SELECT * FROM holdfast.batch_item ORDER BY batch_item_index")
    assert groups(hf) == [4]
    assert [item["batch_item_index"] for item in items] == [0, 1, 2, 3]
    assert {item["job_id"] for item in items} == {job.id for job in jobs}
    assert len(provider.bodies) == 4
    hf.close()


@pytest.mark.req("P-15")
def test_no_request_holds_the_text_of_two_items(url: str, clock: FakeClock) -> None:
    hf, provider = app(url, clock, 4)
    enqueue(hf, 4)

    work(hf, 4)

    for body in provider.bodies:
        assert sum(f"canary-{number}-" in str(body) for number in range(4)) == 1
    hf.close()


@pytest.mark.req("P-13", "P-14")
def test_each_answer_goes_to_the_job_whose_request_it_answers(url: str, clock: FakeClock) -> None:
    hf, _ = app(url, clock, 4)
    jobs = enqueue(hf, 4)

    work(hf, 4)

    for number, job in enumerate(jobs):
        said = hf.get(job.id, org_id=job.org_id).result["said"]
        assert f"CANARY-{number}-" in said
    hf.close()


@pytest.mark.req("P-10", "P-16")
@pytest.mark.parametrize("differing", [{"target_locale": "es-ES"}, {"prompt_version": "v4"}])
def test_calls_that_differ_in_one_field_of_the_key_are_never_in_one_group(
    url: str, clock: FakeClock, differing: dict[str, str]
) -> None:
    hf, _ = app(url, clock, 4)
    enqueue(hf, 2)
    enqueue(hf, 2, **differing)

    assert work(hf, 4) == {"completed": 4}

    assert groups(hf) == [2, 2]
    hf.close()


def test_a_group_is_never_larger_than_it_may_be(url: str, clock: FakeClock) -> None:
    hf, _ = app(url, clock, 6, micro_items=4)
    enqueue(hf, 6)

    assert work(hf, 6) == {"completed": 6}

    assert groups(hf) == [2, 4]
    hf.close()


def test_one_refused_request_stops_none_of_the_others(url: str, clock: FakeClock) -> None:
    hf, provider = app(url, clock, 4)
    enqueue(hf, 4)
    provider.script("call", Refuse(FailureKind.INVALID, "bad_request", 400))

    assert work(hf, 4) == {"completed": 3, "dead": 1}

    states = look(hf.store, "SELECT state FROM holdfast.batch_item ORDER BY state")
    assert [row["state"] for row in states] == ["failed", "succeeded", "succeeded", "succeeded"]
    hf.close()


def test_an_account_that_says_no_is_heard_by_the_whole_group(url: str, clock: FakeClock) -> None:
    hf, provider = app(url, clock, 3)
    enqueue(hf, 3)
    provider.script("call", Refuse(FailureKind.ACCOUNT, "invalid_api_key", 401))
    first, heard = threading.Lock(), threading.Event()

    def reached(point: Point) -> None:
        # One is sent first; the others are about to be sent when it returns.
        if point is Point.CALL_RECORDED and not first.acquire(blocking=False):
            assert heard.wait(20)
        if point is Point.CALLED:
            heard.set()

    install(hf, Point, reached)

    assert work(hf, 3) == {"released": 3}

    states = look(hf.store, "SELECT state, is_open FROM holdfast.batch_item ORDER BY state")
    assert [(row["state"], row["is_open"]) for row in states] == [
        ("not_run", 0),
        ("released", 0),
        ("released", 0),
    ]
    assert provider.calls["call"] == 1
    hf.close()


# -- the batcher


def member(text: str = "x", *, size: int = 1, target: str = "de") -> Slot:
    job: Any = None
    account = ScriptedAccounts(ScriptedProvider(FakeClock()))._account("openai")
    route = Route("openai", "scripted", "m", target_locale=target)
    return Slot(job, route, account, RenderedRequest(Request((text,)), "", {}), size, None)


def join(gatherer: Batcher, *members: Slot, write: Any = None, items: int = 16) -> list[Group]:
    """Call all of them at the same time, each in its own thread."""
    barrier = threading.Barrier(len(members), timeout=20)
    found: dict[int, Group] = {}
    failed: list[BaseException] = []

    def come(number: int, one: Slot) -> None:
        with gatherer.arriving() as arrive:
            barrier.wait()
            try:
                found[number] = gatherer.join(
                    one,
                    arrive=arrive,
                    max_items=items,
                    max_seconds=20,
                    write=write or (lambda group: None),
                )
            except RuntimeError as exc:
                failed.append(exc)

    threads = [threading.Thread(target=come, args=pair) for pair in enumerate(members)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) + len(failed) == len(members)
    return list({id(group): group for group in found.values()}.values())


def test_one_alone_does_not_wait_for_others() -> None:
    (group,) = join(Batcher(), member())

    assert len(group.slots) == 1


def test_a_group_is_recorded_once_before_any_of_it_is_sent() -> None:
    written: list[int] = []

    groups = join(Batcher(), *[member()] * 8, write=lambda group: written.append(1))

    assert written == [1]
    assert [len(group.slots) for group in groups] == [8]


def test_an_unrecorded_group_is_not_sent() -> None:
    def refuse(group: Group) -> None:
        raise RuntimeError("no")

    assert join(Batcher(), *[member()] * 4, write=refuse) == []


def test_a_group_holds_no_more_bytes_than_it_may() -> None:
    groups = join(Batcher(), *[member(size=MAX_BYTES // 2)] * 4)

    assert all(group.size <= MAX_BYTES for group in groups)
    assert sum(len(group.slots) for group in groups) == 4


_WORD = st.text(alphabet="ab|\\", max_size=3)


@pytest.mark.req("P-08", "P-09")
@settings(deadline=None)
@given(st.lists(_WORD, min_size=8, max_size=8), st.lists(_WORD, min_size=8, max_size=8))
def test_two_routes_have_one_key_if_and_only_if_all_eight_fields_are_equal(
    one: list[str], other: list[str]
) -> None:
    def route(words: list[str]) -> Route:
        said = dict(zip(GROUP, words, strict=True))
        said["execution_mode"] = ExecutionMode.ASYNC if len(words[4]) % 2 else ExecutionMode.BATCH
        return Route(adapter_kind="openai_chat", **said)  # type: ignore[arg-type]

    left, right = route(one), route(other)
    same = all(getattr(left, name) == getattr(right, name) for name in GROUP)

    assert (left.group_key == right.group_key) == same
