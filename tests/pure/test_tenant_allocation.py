"""Allocation of a claim to tenants: round-robin by weight, without starvation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.fairness import (
    NIL_ID,
    NO_LIMIT,
    Allocation,
    Capacity,
    CursorPosition,
    RoundRobinCursor,
    TenantBacklog,
    allocate,
    unlimited,
)

PLENTY = 10_000


def tenant(number: int) -> str:
    return f"0198c0de-0000-7000-8000-{number:012d}"


def lane(
    number: int, depth: int = PLENTY, *, weight: int = 1, key: str = "", turn: str = ""
) -> TenantBacklog:
    return TenantBacklog("q:default", key, tenant(number), weight, depth, turn)


def shares(poured: Allocation) -> dict[str, int]:
    """The jobs of each tenant, over all its keys, by its number."""
    got: Counter[str] = Counter()
    for (_, org_id), jobs in poured.shares.items():
        got[org_id] += jobs
    return {org_id[-2:].lstrip("0") or "0": jobs for org_id, jobs in sorted(got.items())}


def claims(
    lanes: list[TenantBacklog], limit: int, count: int, room: Capacity | None = None
) -> Counter[tuple[str, str]]:
    """The jobs of *count* consecutive claims, each starting where the last one ended."""
    at, got = RoundRobinCursor(), Counter[tuple[str, str]]()
    for _ in range(count):
        poured = allocate(lanes, limit, room or unlimited(limit), at)
        got.update(poured.shares)
        for each in lanes:
            each.depth -= poured.shares.get(each.name, 0)
        at = poured.cursor
    return got


# -- between tenants


def test_a_short_lane_gets_what_it_needs_and_the_rest_goes_to_the_others() -> None:
    poured = allocate([lane(1), lane(2, 3), lane(3)], 20, unlimited(20), RoundRobinCursor())

    assert shares(poured) == {"1": 9, "2": 3, "3": 8}


@pytest.mark.parametrize("heavy", [3, 10])
@pytest.mark.parametrize("limit", [1, 2, 7, 500])
def test_weights_give_those_shares_whatever_the_size_of_a_claim(heavy: int, limit: int) -> None:
    lanes = [lane(1), lane(2, 10 * PLENTY, weight=heavy)]
    count = 44 * 30 // limit + 1

    got = claims(lanes, limit, count)

    whole = got["", tenant(1)] + got["", tenant(2)]
    assert whole == limit * count
    assert abs(got["", tenant(1)] - whole / (1 + heavy)) <= heavy


def test_claims_of_one_visit_every_tenant_before_any_is_served_twice() -> None:
    lanes = [lane(number) for number in range(50)]

    got = claims(lanes, 1, 50)

    assert set(got.values()) == {1}
    assert len(got) == 50


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 10), st.sampled_from(["", "k", "l"])),
        max_size=40,
    ),
    st.integers(0, 300),
    st.integers(0, 300),
    st.dictionaries(st.sampled_from(["k", "l"]), st.integers(0, 40)),
    st.integers(0, 50),
    st.dictionaries(st.integers(0, 39), st.integers(0, 20)),
)
def test_a_claim_takes_all_it_may_and_never_more(
    given_lanes: list[tuple[int, int, str]],
    wanted: int,
    jobs: int,
    keys: dict[str, int],
    per_tenant: int,
    tenants: dict[int, int],
) -> None:
    # Two keys of one tenant are neighbours: their number is halved.
    lanes = [
        lane(number // 2, depth, weight=weight, key=key)
        for number, (depth, weight, key) in enumerate(given_lanes)
    ]
    lanes = list({each.name: each for each in lanes}.values())
    room = Capacity(jobs, keys, per_tenant, {tenant(n): left for n, left in tenants.items()})

    poured = allocate(lanes, wanted, room, RoundRobinCursor())

    depths = {each.name: each.depth for each in lanes}
    of_key, of_tenant = Counter[str](), Counter[str]()
    for (key, org_id), share in poured.shares.items():
        assert 0 < share <= depths[key, org_id]
        of_key[key] += share
        of_tenant[org_id] += share
    total = sum(poured.shares.values())
    assert total <= min(wanted, jobs)
    assert all(of_key[key] <= left for key, left in keys.items())
    assert all(share <= room.of_tenant(org_id) for org_id, share in of_tenant.items())
    if not keys:
        # Without scarce keys no capacity is unused: all jobs are distributed.
        most: Counter[str] = Counter()
        for each in lanes:
            most[each.org_id] += each.depth
        fits = sum(min(depth, room.of_tenant(org_id)) for org_id, depth in most.items())
        assert total == min(wanted, jobs, fits)


@given(st.data())
@settings(deadline=None)
def test_the_allocation_is_fair_by_weight(data: st.DataObject) -> None:
    wish = data.draw(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 10)), min_size=1))
    wanted = data.draw(st.integers(1, 200))
    lanes = [lane(n, depth, weight=weight) for n, (depth, weight) in enumerate(wish)]

    got = allocate(lanes, wanted, unlimited(wanted), RoundRobinCursor()).shares

    for mine in lanes:
        if got.get(mine.name, 0) == mine.depth:
            continue
        rounds = got.get(mine.name, 0) / mine.weight
        assert all(got.get(other.name, 0) / other.weight <= rounds + 1 for other in lanes)


@given(
    st.integers(2, 30),
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
    st.lists(st.integers(1, 10), min_size=30, max_size=30),
)
@settings(deadline=None)
def test_over_many_claims_of_any_size_flooding_tenants_stay_within_one_turn_of_their_share(
    count: int, limits: list[int], weights: list[int]
) -> None:
    lanes = [lane(n, weight=weights[n]) for n in range(count)]
    at, got = RoundRobinCursor(), Counter[str]()
    for limit in limits:
        poured = allocate(lanes, limit, unlimited(limit), at)
        at = poured.cursor
        for (_, org_id), jobs in poured.shares.items():
            got[org_id] += jobs

    rounds = sum(limits) / sum(weights[:count])
    for each in lanes:
        assert abs(got[each.org_id] - rounds * each.weight) <= each.weight


def test_a_tenant_in_the_middle_of_its_turn_continues_with_it() -> None:
    lanes = [lane(1, weight=1), lane(2, weight=5), lane(3, weight=1)]
    at, order = RoundRobinCursor(), []
    for _ in range(14):
        poured = allocate(lanes, 1, unlimited(1), at)
        at = poured.cursor
        order += list(shares(poured))

    assert "".join(order) == "12222231222223"


# -- keys


@pytest.mark.parametrize("limit", [1, 5, 50])
def test_a_tenant_with_many_keys_has_one_share_and_not_one_for_each(limit: int) -> None:
    flood = [lane(1, key=f"k{number:03d}", turn=f"{number:03d}") for number in range(300)]

    got = claims([*flood, lane(2)], limit, 600 // limit)

    assert abs(got["", tenant(2)] - 300) <= 1


def test_within_a_tenant_the_key_whose_first_job_is_older_goes_first() -> None:
    lanes = [lane(1, key="a", turn="2"), lane(1, key="b", turn="1")]

    first = allocate(lanes, 1, unlimited(1), RoundRobinCursor())
    both = allocate(lanes, 7, unlimited(7), RoundRobinCursor())

    assert first.shares == {("b", tenant(1)): 1}
    assert both.shares == {("a", tenant(1)): 3, ("b", tenant(1)): 4}


@pytest.mark.parametrize("limit", [1, 2, 10, 100])
def test_a_scarce_key_serves_all_who_wait_for_it_beside_a_flood_without_a_key(limit: int) -> None:
    # Tenant 9 floods without a key and always has the most; 1 floods the scarce key, and 2 and 3
    # have a few under it. With one round for all, 1 would come first every time.
    lanes = [lane(9), lane(1, key="k"), lane(2, 2, key="k"), lane(3, 2, key="k")]

    got = claims(lanes, limit, 30, Capacity(limit, {"k": 1}, NO_LIMIT, {}))

    assert got["k", tenant(2)] == got["k", tenant(3)] == 2


def test_a_scarce_key_is_shared_by_weight() -> None:
    lanes = [lane(9), lane(1, key="k", weight=3), lane(2, key="k")]

    got = claims(lanes, 50, 400, Capacity(50, {"k": 2}, NO_LIMIT, {}))

    assert abs(got["k", tenant(1)] - 600) <= 3
    assert abs(got["k", tenant(2)] - 200) <= 3


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_every_lane_that_may_run_is_served_in_the_end(data: st.DataObject) -> None:
    """Any tenants, keys, capacities and limits: no backlog with capacity waits for ever."""
    names = data.draw(
        st.sets(
            st.tuples(st.sampled_from(["", "k", "l"]), st.integers(0, 9)), min_size=1, max_size=15
        )
    )
    keys = data.draw(st.dictionaries(st.sampled_from(["k", "l"]), st.integers(1, 3)))
    limit = data.draw(st.integers(1, 20))
    cap = data.draw(st.integers(1, 5))
    turns = {name: f"{at:06d}" for at, name in enumerate(sorted(names))}
    lanes = [lane(number, key=key, turn=turns[key, number]) for key, number in sorted(names)]
    at, missing, clock = RoundRobinCursor(), {each.name for each in lanes}, 100
    for _ in range(400):
        poured = allocate(lanes, limit, Capacity(limit, keys, cap, {}), at)
        at = poured.cursor
        missing -= poured.shares.keys()
        if not missing:
            break
        for each in lanes:
            if each.name in poured.shares:
                # The next job of this backlog was enqueued later.
                clock += 1
                each.position = f"{clock:06d}"

    assert missing == set()


# -- the limit of a read


def windows(depths: Mapping[int, int], size: int, limit: int, count: int) -> Counter[str]:
    """Claims of a worker that reads *size* tenants at once, from its round-robin cursor on."""
    left, at, got = dict(depths), RoundRobinCursor(), Counter[str]()
    for _ in range(count):
        names = sorted((n for n in left if left[n] > 0), key=lambda n: at.position.place(tenant(n)))
        lanes = [lane(number, min(left[number], 50)) for number in names[:size]]
        if len(names) > size:
            lanes[-1].is_cut = True
        poured = allocate(lanes, limit, unlimited(limit), at)
        at = poured.cursor
        for (_, org_id), jobs in poured.shares.items():
            left[int(org_id[-12:])] -= jobs
            got[org_id] += jobs
            # A tenant with a trickle of jobs has the next one at once.
            if depths[int(org_id[-12:])] == 1:
                left[int(org_id[-12:])] = 1
    return got


@pytest.mark.parametrize("limit", [1, 7, 40])
@pytest.mark.parametrize("flooder", [0, 3, 7])
def test_a_flood_does_not_hold_the_look_where_it_is(flooder: int, limit: int) -> None:
    depths = dict.fromkeys(range(40), 1) | {flooder: 1_000_000}

    got = windows(depths, 8, limit, 80 * 8 // limit + 40)

    assert len(got) == 40
    assert min(got.values()) >= 2


def test_a_tenant_that_is_seen_out_of_order_waits_until_the_round_gets_there() -> None:
    # Tenant 90 has its own key; 3 to 89 are not read yet.
    lanes = [lane(1), lane(2), lane(90, key="mine")]
    lanes[1].is_cut = True

    poured = allocate(lanes, 100, unlimited(100), RoundRobinCursor())

    assert shares(poured) == {"1": 1, "2": 1}
    assert poured.cursor.position == CursorPosition(tenant(2))
    assert poured.cursor.is_through


def test_a_scarce_key_is_served_beside_and_the_round_stays_where_it_is() -> None:
    lanes = [lane(1), lane(2), lane(90, key="k")]
    lanes[1].is_cut = True

    poured = allocate(
        lanes,
        100,
        Capacity(100, {"k": 1}, NO_LIMIT, {}),
        RoundRobinCursor(keys={"k": CursorPosition()}),
    )

    assert shares(poured) == {"1": 1, "2": 1, "90": 1}
    assert poured.cursor.position == CursorPosition(tenant(2))


def test_no_tenant_has_a_second_turn_before_every_tenant_had_one() -> None:
    lanes = [lane(1, weight=3), lane(2), lane(3)]
    lanes[2].is_cut = True
    half = allocate(lanes, 2, unlimited(2), RoundRobinCursor())

    rest = allocate(lanes, 100, unlimited(100), half.cursor)

    assert (shares(half), half.cursor.is_through) == ({"1": 2}, False)
    assert (shares(rest), rest.cursor.is_through) == ({"1": 1, "2": 1, "3": 1}, True)


def test_tenants_at_their_cap_do_not_hold_the_look_either() -> None:
    lanes = [lane(1), lane(2)]
    lanes[1].is_cut = True
    capped = Capacity(5, {}, 5, {tenant(1): 0, tenant(2): 0})

    poured = allocate(lanes, 5, capped, RoundRobinCursor(CursorPosition(tenant(1), 1)))

    assert poured.shares == {}
    assert poured.cursor.position == CursorPosition(tenant(2))


# -- the cursor of a round


def test_a_claim_without_room_leaves_the_round_where_it_is() -> None:
    at = RoundRobinCursor(CursorPosition(tenant(4), 2), {"k": CursorPosition(tenant(1))})

    assert allocate([lane(1)], 5, Capacity(0, {}, 5, {}), at) == Allocation({}, at)


def test_a_turn_that_is_not_over_begins_with_its_tenant_and_one_that_is_over_after_it() -> None:
    order = [tenant(1), tenant(2), tenant(3)]

    assert sorted(order, key=CursorPosition(tenant(2), 1).place) == [
        tenant(2),
        tenant(3),
        tenant(1),
    ]
    assert sorted(order, key=CursorPosition(tenant(2)).place) == [tenant(3), tenant(1), tenant(2)]
    assert CursorPosition(tenant(2), 1).before == tenant(1)
    assert CursorPosition(tenant(2)).before == tenant(2)
    assert CursorPosition().before == NIL_ID
