"""The change feed: all committed changes of a tenant, and no others, from any position."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from holdfast import FakeClock, Holdfast, InvalidArgument
from holdfast.feed import feed as feeding
from holdfast.feed.change import ChangeFilter, read_filter
from holdfast.feed.feed import ChangeFeed, FeedClosed, FeedLagged, Subscription, feed_of
from holdfast.feed.position import Position, read_position
from holdfast.feed.read import Track, begin, stamp, step
from tests.story import ORG, OTHER_ORG, make_holdfast


class Hand(ChangeFeed):
    """A feed that reads when the test calls it."""

    has_begun = False
    is_running = True

    def _ensure_running(self) -> None:
        if not self.has_begun:
            self.has_begun, self.track = True, begin(self._store())

    def turn(self) -> None:
        while self.read_once(self._store()):
            pass


@pytest.fixture
def feed(hf: Holdfast) -> Hand:
    hf.job("mail")(lambda job, payload: None)
    return Hand(lambda: hf.store, list)


def read_all(reader: Subscription) -> list[str]:
    """The job ids of the changes that wait for the reader, each handled."""
    found: list[str] = []
    while page := [*_backlog(reader), *reader.read(0)]:
        for change in page:
            reader.moved_past(change)
            found.append(change.job_id or change.subject)
    return found


def _backlog(reader: Subscription) -> Iterator:
    while reader._backlog is not None:
        yield from reader.read(0)


def test_a_reader_gets_the_changes_of_its_tenant_and_of_its_subjects(
    hf: Holdfast, feed: Hand
) -> None:
    mine, all_of_mine = ChangeFilter(ORG), feed.subscribe(ChangeFilter(ORG))
    everybody = feed.subscribe(ChangeFilter())
    own = hf.enqueue("mail", {"text": "secret"}, org_id=ORG)
    one = feed.subscribe(read_filter(ORG, [f"job:{own.id}"]), Position(0))
    foreign = hf.enqueue("mail", {}, org_id=OTHER_ORG)
    feed.turn()

    (change,) = all_of_mine.read(0)
    assert change.document() == {
        "id": str(change.id),
        "name": "job.enqueued",
        "subject": f"job:{own.id}",
        "job_id": own.id,
        "job_type": "mail",
        "queue": "q:default",
        "state": "queued",
        "attempt": 1,
        "org_id": ORG,
        "at": change.document()["at"],
    }
    assert mine.matches(change)
    assert read_all(everybody)[-2:] == [own.id, foreign.id]
    assert read_all(one) == [own.id]


def test_a_filter_refuses_the_changes_of_another_tenant(hf: Holdfast, feed: Hand) -> None:
    everybody = feed.subscribe(ChangeFilter())
    hf.enqueue("mail", {}, org_id=OTHER_ORG)
    feed.turn()

    assert not [one for one in everybody.read(0) if ChangeFilter(ORG).matches(one)]


def test_filters_know_queues_topics_and_refuse_what_is_neither(hf: Holdfast, feed: Hand) -> None:
    readers = {
        name: feed.subscribe(read_filter(None, [name]))
        for name in ("jobs", "queue:q:default", "queue:q:planning", "deliveries", "dead_letters")
    }
    job = hf.enqueue("mail", {}, org_id=ORG)
    hf.operate(actor="user:1", role="admin").queues.pause("q:planning", reason="test")
    feed.turn()

    assert {name: read_all(reader) for name, reader in readers.items()} == {
        "jobs": [job.id],
        "queue:q:default": [job.id],
        "queue:q:planning": ["queue:q:planning"],
        "deliveries": [],
        "dead_letters": [],
    }
    for wrong in ("nothing", "job:1", "job:", "queue:", "a b:c", 7):
        with pytest.raises(InvalidArgument):
            read_filter(ORG, [wrong])  # type: ignore[list-item]


def test_a_reader_resumes_without_a_lost_or_a_second_change(hf: Holdfast, feed: Hand) -> None:
    first = feed.subscribe(ChangeFilter(ORG))
    jobs = [hf.enqueue("mail", {"n": n}, org_id=ORG).id for n in range(3)]
    feed.turn()
    page = first.read(0)
    first.moved_past(page[0])
    cursor = read_position(str(first.position))
    first.close()
    jobs.append(hf.enqueue("mail", {}, org_id=ORG).id)
    feed.turn()

    second = feed.subscribe(ChangeFilter(ORG), cursor)
    jobs.append(hf.enqueue("mail", {}, org_id=ORG).id)
    feed.turn()

    assert read_all(second) == jobs[1:]
    assert read_all(feed.subscribe(ChangeFilter(ORG), second.position)) == []


def test_an_idle_reader_keeps_up_with_the_changes_of_others(hf: Holdfast, feed: Hand) -> None:
    reader = feed.subscribe(ChangeFilter(ORG))
    hf.enqueue("mail", {}, org_id=OTHER_ORG)
    feed.turn()

    assert reader.read(0) == ()
    assert reader.settle() == feed.track.position


def test_a_slow_reader_is_cut_off_and_resumes(
    hf: Holdfast, feed: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "MOST_WAITING", 2)
    slow = feed.subscribe(ChangeFilter(ORG))
    start = slow.position
    jobs = [one.id for one in hf.enqueue_many("mail", [{}] * 3, org_id=ORG)]
    feed.turn()

    with pytest.raises(FeedLagged):
        slow.read(0)
    assert slow.position == start
    assert read_all(feed.subscribe(ChangeFilter(ORG), slow.position)) == jobs


def test_one_thread_serves_blocking_and_awaiting_readers_until_it_is_closed(hf: Holdfast) -> None:
    hf.job("mail")(lambda job, payload: None)
    feed = feed_of(hf)
    blocking = feed.subscribe(ChangeFilter(ORG))

    async def story() -> str:
        awaiting = feed.subscribe(ChangeFilter(ORG))
        waiting = asyncio.ensure_future(awaiting.aread(30))
        await asyncio.sleep(0)
        job = await asyncio.to_thread(hf.enqueue, "mail", {}, org_id=ORG)
        assert [one.job_id for one in await waiting] == [job.id]
        ending = asyncio.ensure_future(awaiting.aread(30))
        await asyncio.sleep(0)
        await asyncio.to_thread(feed.close)
        with pytest.raises(FeedClosed):
            await ending
        return job.id

    made = asyncio.run(story())
    assert [one.job_id for one in blocking.read(30)] == [made]
    with pytest.raises(FeedClosed):
        blocking.read(30)
    assert feed_of(hf) is not feed


@pytest.fixture
def late(postgres_url: str, clock: FakeClock) -> Iterator[tuple[Holdfast, Hand]]:
    hf = make_holdfast(postgres_url, clock)
    hf.job("mail")(lambda job, payload: None)
    hf.enqueue("mail", {}, org_id=ORG)
    yield hf, Hand(lambda: hf.store, list)
    hf.close()


def test_a_change_that_commits_late_delays_no_other_and_is_not_lost(
    late: tuple[Holdfast, Hand], postgres_url: str
) -> None:
    hf, feed = late
    reader = feed.subscribe(ChangeFilter(ORG))
    with psycopg.connect(postgres_url) as slow:
        behind = hf.enqueue("mail", {"late": 1}, org_id=ORG, conn=slow)
        ahead = hf.enqueue("mail", {}, org_id=ORG)
        feed.turn()
        assert read_all(reader) == [ahead.id]
        cursor = read_position(str(reader.position))
        assert cursor.missing

        feed.turn()
        assert read_all(reader) == []
        slow.commit()
    feed.turn()

    assert read_all(reader) == [behind.id]
    assert read_all(feed.subscribe(ChangeFilter(ORG), cursor)) == [behind.id]
    other_process = Hand(lambda: hf.store, list)
    assert read_all(other_process.subscribe(ChangeFilter(ORG), cursor)) == [behind.id]


def test_another_process_waits_for_a_change_that_the_position_says_is_absent(
    late: tuple[Holdfast, Hand], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf, feed = late
    reader = feed.subscribe(ChangeFilter(ORG))
    with psycopg.connect(postgres_url) as slow:
        behind = hf.enqueue("mail", {"late": 1}, org_id=ORG, conn=slow)
        hf.enqueue("mail", {}, org_id=ORG)
        feed.turn()
        read_all(reader)
        # The other process does not search that far back for absent ids.
        monkeypatch.setattr("holdfast.feed.read.WINDOW", 1)
        other_process = Hand(lambda: hf.store, list)
        fresh = other_process.subscribe(ChangeFilter(ORG))
        resumed = other_process.subscribe(ChangeFilter(ORG), reader.position)
        other_process.turn()
        assert read_all(resumed) == []
        slow.commit()
    other_process.turn()

    assert read_all(resumed) == [behind.id]
    assert read_all(fresh) == []


def test_rolled_back_ids_are_skipped_when_older_transactions_have_ended(
    late: tuple[Holdfast, Hand], postgres_url: str
) -> None:
    hf, _ = late
    track = begin(hf.store)
    with psycopg.connect(postgres_url) as slow, psycopg.connect(postgres_url) as other:
        hf.enqueue("mail", {"late": 1}, org_id=ORG, conn=slow)
        other.execute("SELECT pg_current_xact_id()")
        hf.enqueue("mail", {}, org_id=ORG)
        track = _read(hf, track)
        slow.rollback()
        track = _read(hf, track)
        assert track.gaps
        other.rollback()
    # Other databases of the same server may have transactions of that time.
    for _ in range(1_000):
        track = _read(hf, track)
        if not track.gaps:
            break
    assert not track.gaps


def _read(hf: Holdfast, track: Track) -> Track:
    stamped = stamp(hf.store, track)
    return hf.store.read(lambda tx: step(tx, stamped)).track


def test_a_bulk_that_commits_late_arrives_page_by_page(
    late: tuple[Holdfast, Hand], postgres_url: str
) -> None:
    hf, _ = late
    track = begin(hf.store)
    found: list[int] = []
    with psycopg.connect(postgres_url) as slow:
        hf.enqueue_many("mail", [{"n": n} for n in range(9)], org_id=ORG, conn=slow)
        hf.enqueue("mail", {}, org_id=ORG)
        track = _read(hf, track)
        slow.commit()
    for _ in range(1_000):
        stamped = stamp(hf.store, track)
        read = hf.store.read(lambda tx, stamped=stamped: step(tx, stamped, 4))  # type: ignore[misc]
        found += [change.id for change in read.changes]
        track = read.track
        if len(found) >= 9 and not track.gaps:
            break
    assert found == sorted(set(found))
    assert len(found) == 9


def test_a_forged_position_cannot_make_the_feed_read_everything(
    hf: Holdfast, feed: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.feed.read.MOST_LATE", 2)
    hf.enqueue_many("mail", [{}] * 5, org_id=OTHER_ORG)

    with pytest.raises(InvalidArgument):
        feed.subscribe(ChangeFilter(ORG), read_position("5~1-5"))
    assert feed.readers == 0
