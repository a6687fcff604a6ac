"""The queue inside a worker: tenants take turns for its threads."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.fairness import TenantQueue


def drain(line: TenantQueue[str]) -> list[str]:
    return [line.pop() for _ in range(len(line))]


def test_a_late_tenant_is_not_behind_what_another_piled_up() -> None:
    line: TenantQueue[str] = TenantQueue()
    for number in range(500):
        line.put("noisy", f"noisy-{number}")
    line.pop()

    line.put("quiet", "quiet-0")

    assert [line.pop(), line.pop()] == ["noisy-1", "quiet-0"]


def test_tenants_take_turns_and_each_keeps_its_own_order() -> None:
    line: TenantQueue[str] = TenantQueue()
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        line.put(item[0], item)

    assert drain(line) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_an_empty_line_says_so() -> None:
    line: TenantQueue[str] = TenantQueue()
    line.put("a", "a1")
    line.pop()

    assert len(line) == 0
    with pytest.raises(IndexError):
        line.pop()


@given(st.lists(st.one_of(st.sampled_from("abcde"), st.none()), max_size=200))
def test_every_item_is_taken_once_and_waits_for_at_most_one_of_another(
    steps: list[str | None],
) -> None:
    """A step adds a job of a tenant, or pops one."""
    line: TenantQueue[str] = TenantQueue()
    inside: dict[str, deque[str]] = defaultdict(deque)
    # For each waiting tenant: the jobs of each other tenant that were served meanwhile.
    since: dict[str, Counter[str]] = {}
    for number, tenant in enumerate(steps):
        if tenant is not None:
            if not inside[tenant]:
                since[tenant] = Counter()
            item = f"{tenant}{number}"
            inside[tenant].append(item)
            line.put(tenant, item)
            continue
        if not len(line):
            continue
        out = line.pop()
        assert inside[out[0]].popleft() == out
        for other, seen in since.items():
            if other != out[0]:
                seen[out[0]] += 1
                assert seen[out[0]] <= 1
        if inside[out[0]]:
            since[out[0]] = Counter()
        else:
            since.pop(out[0], None)

    assert len(line) == sum(map(len, inside.values()))


def test_many_threads_lose_nothing_and_take_nothing_twice() -> None:
    line: TenantQueue[int] = TenantQueue()
    start = threading.Barrier(8)
    taken: list[list[int]] = [[] for _ in range(4)]
    done = threading.Event()

    def put(tenant: int) -> None:
        start.wait()
        for number in range(2_000):
            line.put(str(tenant), tenant * 2_000 + number)

    def take(mine: list[int]) -> None:
        start.wait()
        while not (done.is_set() and len(line) == 0):
            try:
                mine.append(line.pop())
            except IndexError:
                continue

    putters = [threading.Thread(target=put, args=(tenant,)) for tenant in range(4)]
    takers = [threading.Thread(target=take, args=(mine,)) for mine in taken]
    for thread in (*putters, *takers):
        thread.start()
    for thread in putters:
        thread.join()
    done.set()
    for thread in takers:
        thread.join()

    everything = [item for mine in taken for item in mine]
    assert sorted(everything) == list(range(8_000))
