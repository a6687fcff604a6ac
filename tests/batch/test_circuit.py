"""Circuits: an account that refuses every call is paused, and probed later."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.operate.refusal import InvalidAction
from holdfast.store import Store, open_store
from holdfast_llm.batch.circuit import (
    Passage,
    close_circuit,
    find_open_circuits,
    list_circuits,
    open_circuit,
    passage_of,
)
from holdfast_llm.provider.reply import Failure, FailureKind
from holdfast_llm.settings import BatchSettings

QUOTA = Failure(FailureKind.ACCOUNT, "insufficient_quota", 429)
SETTINGS = BatchSettings(circuit_seconds=300, max_circuit_seconds=3600)
MINUTE = timedelta(minutes=1)


def open_it(store: Store, account: str = "a", failure: Failure = QUOTA) -> float | None:
    """Open a circuit; return the minutes, or None if it is open already."""
    until = store.write(lambda tx: open_circuit(tx, SETTINGS, account, "openai", failure))
    return None if until is None else (until - store.clock.now()) / MINUTE


def opened(store: Store) -> set[str]:
    return store.read(find_open_circuits)


def test_an_account_that_said_no_is_left_alone_until_its_time_is_over(
    store: Store, clock: FakeClock
) -> None:
    assert opened(store) == set()

    assert open_it(store) == 5

    assert opened(store) == {"a"}
    clock.advance(minutes=4, seconds=59)
    assert opened(store) == {"a"}
    clock.advance(seconds=1)
    assert opened(store) == set()


def test_an_open_circuit_is_opened_once_however_many_meet_it(
    store: Store, clock: FakeClock
) -> None:
    open_it(store)
    clock.advance(minutes=1)

    assert open_it(store) is None

    clock.advance(minutes=4)
    assert opened(store) == set()


def test_each_time_in_a_row_is_four_times_as_long_up_to_the_longest(
    store: Store, clock: FakeClock
) -> None:
    lengths = []
    for _ in range(9):
        length = open_it(store)
        assert length is not None
        lengths.append(length)
        clock.advance(minutes=length)

    assert lengths == [5, 20, 60, 60, 60, 60, 60, 60, 60]


@pytest.mark.req("R-07", "R-28")
def test_after_ten_refusals_in_a_row_the_circuit_stays_open_until_an_operator_probes(
    hf: Holdfast, clock: FakeClock
) -> None:
    store = hf.store
    for _ in range(10):
        length = open_it(store)
        assert length is not None
        before = clock.now()
        if length < 1_000:
            clock.advance(minutes=length)
    clock.advance(days=365)
    assert before + timedelta(days=365) == clock.now()
    assert opened(store) == {"a"}
    assert passage_of(store, SETTINGS, "a") is Passage.SHUT

    batches = hf.operate(actor="user:op", role="operator").batches(hf.batch.service)
    batches.probe("a", reason="the bill is paid")

    assert passage_of(store, SETTINGS, "a") is Passage.PROBE
    # The account that was refused again begins with the short pause.
    assert open_it(store) == 20
    with pytest.raises(InvalidAction):
        batches.probe("nobody", reason="the bill is paid")


@pytest.mark.req("R-07")
def test_of_many_that_come_after_the_pause_one_asks(store: Store, clock: FakeClock) -> None:
    open_it(store)
    assert passage_of(store, SETTINGS, "a") is Passage.SHUT
    clock.advance(minutes=5)

    found = [passage_of(store, SETTINGS, "a") for _ in range(5)]

    assert found == [Passage.PROBE, *[Passage.SHUT] * 4]
    assert opened(store) == {"a"}
    # A probe whose worker never reported the result does not block the next probe.
    clock.advance(minutes=5)
    assert passage_of(store, SETTINGS, "a") is Passage.PROBE
    store.write(lambda tx: close_circuit(tx, "a"))
    assert passage_of(store, SETTINGS, "a") is Passage.FREE


def test_the_first_success_closes_it_and_the_next_time_is_short_again(
    store: Store, clock: FakeClock
) -> None:
    open_it(store)
    clock.advance(minutes=5)
    open_it(store)

    assert store.write(lambda tx: close_circuit(tx, "a"))

    assert opened(store) == set()
    assert not store.write(lambda tx: close_circuit(tx, "a"))
    assert open_it(store) == 5
    clock.advance(minutes=5)
    assert open_it(store) == 20


def test_one_account_does_not_stop_another(store: Store) -> None:
    open_it(store, "a")

    assert opened(store) == {"a"}
    assert not store.write(lambda tx: close_circuit(tx, "b"))
    assert opened(store) == {"a"}


@pytest.mark.parametrize(("asked", "minutes"), [(60, 5), (1200, 20), (86_400, 60)])
def test_what_the_provider_asks_for_counts_up_to_the_longest(
    store: Store, asked: float, minutes: float
) -> None:
    wants = Failure(FailureKind.ACCOUNT, "insufficient_quota", 429, retry_after=asked)

    assert open_it(store, failure=wants) == minutes


@pytest.mark.both_databases
def test_of_two_workers_that_are_refused_at_once_one_reports_it(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    stores = [hf.store, open_store(url, clock=clock)]
    barrier = threading.Barrier(2)
    told: list[float | None] = []

    def meet(store: Store) -> None:
        barrier.wait(timeout=20)
        told.append(open_it(store))

    threads = [threading.Thread(target=meet, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    stores[1].close()

    assert sorted(told, key=str) == [5, None]


def test_an_operator_sees_why_and_until_when(store: Store, clock: FakeClock) -> None:
    open_it(store)

    (circuit,) = store.read(list_circuits)

    assert (circuit.account, circuit.error_code, circuit.http_status, circuit.times) == (
        "a", "insufficient_quota", 429, 1,
    )  # fmt: skip
    assert circuit.open_until == clock.now() + 5 * MINUTE
    assert circuit.closed_at is None
