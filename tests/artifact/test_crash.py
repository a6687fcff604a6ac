"""A process may be killed at any point of a write. Cleanup deletes its remains and nothing else."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from holdfast import (
    Artifact,
    ArtifactNotFound,
    ArtifactSettings,
    ArtifactState,
    ArtifactStoreDown,
    FakeClock,
    Holdfast,
    StoreDown,
    WriteConflict,
)
from holdfast.artifacts import cleanup, write
from holdfast.artifacts.artifact import Artifact as Row
from holdfast.store import Store, Tx, open_store
from tests.artifact.child import DEATH, store_and_die
from tests.artifact.conftest import Bytes
from tests.artifact.dying import POINTS, SIZE
from tests.engine.faulty import Died, FaultyStore, through
from tests.forking import SPAWN
from tests.story import ORG, look, make_holdfast

T = TypeVar("T")


def die(pair: tuple[str, ArtifactSettings], point: str) -> None:
    url, kept = pair
    credentials = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    given = (url, str(kept.store), kept.endpoint, point, credentials)
    writer = SPAWN.Process(target=store_and_die, args=given, daemon=True)
    writer.start()
    writer.join(60)
    assert writer.exitcode == DEATH


def only_row(hf: Holdfast) -> Any:
    (row,) = look(hf.store, "SELECT * FROM holdfast.artifact")
    return row


def put(hf: Holdfast, content: Any = b"a,b\n", **options: Any) -> Artifact:
    return hf.artifacts.put(content, **{"org_id": ORG, "name": "plan.csv", **options})


@pytest.mark.req("Q-10")
@pytest.mark.parametrize("point", POINTS)
def test_a_dead_writer_leaves_nothing_to_open_and_the_sweep_removes_it(
    pair: tuple[str, ArtifactSettings], point: str
) -> None:
    die(pair, point)
    url, kept = pair
    clock = FakeClock()
    with make_holdfast(url, clock, artifacts=kept) as hf:
        row, lying = Row.from_row(only_row(hf)), Bytes(hf)
        with pytest.raises(ArtifactNotFound):
            hf.artifacts.open(row.id, org_id=ORG)
        left = lying.all()
        # The child's clock was the real one.
        clock.advance(max(timedelta(0), row.created_at - clock.now()))
        too_early = hf.artifacts.upkeep()["swept"]
        untouched = lying.all() == left
        clock.advance(cleanup.GRACE)
        swept = [hf.artifacts.upkeep()["swept"] for _ in range(2)]

        assert row.state is ArtifactState.WRITING
        assert left == {
            "after the row": [] if "s3" in str(kept.store) else [f"{row.place}.part"],
            "after the rename": [row.place],
            "before the commit": [row.place],
        }.get(point, [f"{row.place}.part"])
        assert (too_early, untouched, swept) == (0, True, [1, 0])
        assert lying.all() == []
        assert hf.artifacts.get(row.id, org_id=ORG).state is ArtifactState.REMOVED


def test_a_writer_that_died_after_its_commit_has_stored_its_artifact(
    pair: tuple[str, ArtifactSettings],
) -> None:
    die(pair, "after the commit")
    url, kept = pair
    with make_holdfast(url, FakeClock(), artifacts=kept) as hf:
        row = only_row(hf)
        with hf.artifacts.open(str(row["id"]), org_id=ORG) as file:
            assert file.read() == bytes(2 * SIZE)


# -- a lost database connection


class Forgetful(FaultyStore):
    """Commits, but the answer is lost and the store runs the work again."""

    def write(self, work: Callable[[Tx], T]) -> T:
        self.inner.write(work)
        return self.inner.write(work)


def test_a_commit_whose_answer_was_lost_is_recognised_as_our_own(shop: Holdfast) -> None:
    with through(shop, Forgetful(shop.store)):
        artifact = put(shop)

    with shop.artifacts.open(artifact.id, org_id=ORG) as file:
        assert file.read() == b"a,b\n"
    events = look(shop.store, "SELECT name FROM holdfast.job_event")
    assert [row["name"] for row in events] == ["artifact.stored"]


class AnswerLost(FaultyStore):
    """The second write is committed, but its answer is an error."""

    def write(self, work: Callable[[Tx], T]) -> T:
        done = super().write(work)
        if self.writes == 2:
            raise StoreDown("the connection broke")
        return done


def test_a_writer_that_does_not_know_whether_it_stored_takes_away_no_stored_bytes(
    shop: Holdfast, lying: Bytes
) -> None:
    with through(shop, AnswerLost(shop.store)), pytest.raises(StoreDown):
        put(shop)

    row = only_row(shop)
    assert row["state"] == "stored"
    assert lying.all() == [row["place"]]


def test_a_writer_without_a_database_leaves_its_bytes_to_the_sweep(
    shop: Holdfast, clock: FakeClock, lying: Bytes
) -> None:
    away = FaultyStore(shop.store)

    def breaking() -> Iterator[bytes]:
        away.be_away(2)
        yield b"x"

    with through(shop, away), pytest.raises(StoreDown):
        put(shop, breaking())
    left = lying.all()
    clock.advance(cleanup.GRACE)
    shop.artifacts.upkeep()

    assert len(left) == 1
    assert lying.all() == []


# -- slow writers during a cleanup


@pytest.mark.parametrize("size", [1, SIZE])
def test_a_writer_slower_than_the_grace_period_learns_that_it_was_abandoned(
    shop: Holdfast, clock: FakeClock, lying: Bytes, size: int
) -> None:
    def slow() -> Iterator[bytes]:
        yield bytes(size)
        clock.advance(cleanup.GRACE)
        assert shop.artifacts.upkeep()["swept"] == 1
        yield b"y"

    # The partial file or upload is deleted, and finishing it is refused.
    with pytest.raises((WriteConflict, ArtifactStoreDown)) as refused:
        put(shop, slow())

    assert refused.value.retryable
    assert lying.all() == []
    assert only_row(shop)["state"] == "removed"


def test_a_frozen_abandoned_and_dead_writer_is_removed_by_the_second_sweep(
    shop: Holdfast, clock: FakeClock, lying: Bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def frozen() -> Iterator[bytes]:
        yield b"x"
        clock.advance(cleanup.GRACE)
        monkeypatch.setattr(shop.artifacts.blobs, "discard", lambda place: None)
        assert shop.artifacts.upkeep()["swept"] == 1
        monkeypatch.undo()
        # A killed process cleans up nothing.
        monkeypatch.setattr(write, "_give_up", lambda *_: None)

    with pytest.raises(WriteConflict):
        put(shop, frozen())
    left = len(lying.all())
    clock.advance(cleanup.GRACE)
    shop.artifacts.upkeep()

    assert left == 1
    assert lying.all() == []


@pytest.fixture
def second(hf: Holdfast, clock: FakeClock) -> Iterator[Store]:
    store = open_store(hf.settings.db, clock=clock)
    yield store
    store.close()


@pytest.mark.both_databases
@pytest.mark.parametrize("what", ["expired", "abandoned"])
def test_two_passes_at_once_end_each_artifact_once(
    hf: Holdfast, second: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(write, "_give_up", lambda *_: None)
    for _ in range(20):
        if what == "expired":
            put(hf, keep=timedelta(hours=1))
        else:
            dying = FaultyStore(hf.store).die_before_commit(after_writes=1)
            with through(hf, dying), pytest.raises(Died):
                put(hf)
    clock.advance(cleanup.GRACE)
    barrier = threading.Barrier(2)
    ended: list[int] = []

    def pass_by(store: Store) -> None:
        barrier.wait(10)
        run = cleanup.expire_artifacts if what == "expired" else cleanup.sweep_artifacts
        ended.append(run(store, lambda: hf.artifacts.blobs, limit=100))

    threads = [threading.Thread(target=pass_by, args=(store,)) for store in (hf.store, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    events = look(hf.store, "SELECT job_id FROM holdfast.job_event WHERE name = 'artifact.removed'")
    assert sum(ended) == len(events) == 20
    assert len({str(row["job_id"]) for row in events}) == 20
