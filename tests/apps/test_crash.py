"""A process is killed after each of its statements, or the database's answer is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.engine.worker.worker import run_maintenance
from holdfast.store.postgres_tx import PostgresTx
from holdfast.store.sqlite import SqliteTx
from holdfast_rewrite import erase
from holdfast_rewrite.finish import finish_once, reveal_once
from holdfast_rewrite.rewrites import Rewrites
from holdfast_rewrite.settings import RewriteSettings
from holdfast_rewrite.text_retention import forget_once
from tests.apps.household import (
    HOME,
    RECIPIENT,
    SENDER,
    STRANGER,
    count,
    submission,
    told,
)
from tests.apps.planted import ORIGINAL, REWRITE, Stage
from tests.operate.sound import assert_sound
from tests.story import look

ABANDONED = timedelta(seconds=300)
DAY = timedelta(days=1)
LIFE = ["received", "queued", "classified", "context_built", "routed", "enqueued"]
SETTINGS = RewriteSettings()


class Died(BaseException):
    """The process is gone."""


@contextmanager
def dying_after(number: int) -> Iterator[None]:
    """Let this process die when its statement of that number has run, before it knows of it."""
    left = itertools.count(number - 1, -1)
    with pytest.MonkeyPatch.context() as patch:
        for kind in (PostgresTx, SqliteTx):
            patch.setattr(kind, "_fetch", _mortal(kind._fetch, left))
        yield


def _mortal(plain: Any, left: Iterator[int]) -> Any:
    def fetch(self: Any, *args: Any) -> Any:
        found = plain(self, *args)
        if next(left) == 0:
            raise Died
        return found

    return fetch


def crash_everywhere(act: Callable[[], object], between: Callable[[], object] = int) -> int:
    """Let *act* die after its first statement, its second and so on until it lives to its end."""
    for number in itertools.count(1):
        try:
            with dying_after(number):
                act()
        except Died:
            between()
            continue
        return number - 1
    raise AssertionError


@contextmanager
def every_answer_lost(hf: Holdfast) -> Iterator[None]:
    """Every commit goes through, its answer does not come, and the store runs the work again."""
    kind: Any = type(hf.store)
    plain = kind.write

    def twice(self: Any, work: Any) -> Any:
        plain(self, work)
        return plain(self, work)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "write", twice)
        yield


def requests(hf: Holdfast) -> dict[str, str]:
    rows = look(hf.store, "SELECT rewrite_request_id, step FROM holdfast.rewrite_request")
    return {str(row["rewrite_request_id"]): row["step"] for row in rows}


def names(hf: Holdfast, request_id: str) -> list[str]:
    return [row["name"].removeprefix("rewrite_") for row in told(hf.store, request_id)]


# -- from a message to its job


@pytest.mark.req("E-05")
def test_a_message_whose_orchestrator_dies_anywhere_is_there_whole_or_not_at_all(
    rewrites: Rewrites, clock: FakeClock
) -> None:
    hf = rewrites.hf
    deaths = crash_everywhere(lambda: rewrites.submit(submission()))
    left = requests(hf)
    clock.advance(ABANDONED)

    def resume() -> None:
        # What somebody took who died is free again after a minute.
        clock.advance(minutes=1)
        rewrites.orchestrator.resume_once()

    crash_everywhere(resume)

    # Some died before their message was stored; the one that lived enqueued at once.
    assert 0 < list(left.values()).count("queued") < deaths
    assert list(left.values()).count("enqueued") == 1
    assert requests(hf) == dict.fromkeys(left, "enqueued")
    for table in ("job", "rewrite_message", "recipient_snapshot", "recipient_preference_snapshot"):
        assert count(hf.store, table) == len(left)
    assert all(names(hf, request_id) == LIFE for request_id in left)
    assert_sound(hf)


def test_an_answer_that_is_lost_at_every_commit_makes_one_request_one_job_and_one_audit(
    rewrites: Rewrites,
) -> None:
    hf = rewrites.hf
    with every_answer_lost(hf):
        answer = rewrites.submit(submission())

    assert (answer.status, count(hf.store, "job")) == ("queued", 1)
    assert names(hf, answer.rewrite_request_id) == LIFE
    assert_sound(hf)


def test_who_leaves_has_left_although_the_answer_was_lost(rewrites: Rewrites) -> None:
    directory: Any = rewrites.directory
    with every_answer_lost(rewrites.hf):
        directory.leave(HOME, RECIPIENT)

    assert directory.look(HOME, SENDER, RECIPIENT).recipient.is_present is False


# -- from an answer to its output


def test_a_collector_that_dies_anywhere_stores_one_output_and_charges_no_attempt(
    stage: Stage,
) -> None:
    planted = stage.plant()
    stage.submit()
    stage.say()
    stage.provider.complete()
    # Whoever comes next waits until nobody can still hold the batch.
    crash_everywhere(stage.collect, lambda: stage.clock.advance(hours=1))

    (output,) = stage.outputs()
    assert output["rewritten_text"] == REWRITE
    assert (stage.job(planted).state, stage.row(planted)["status"]) == ("completed", "completed")
    assert stage.job(planted).record["attempt_count"] == 0
    finish_once(stage.store, reveal_delay=DAY)
    assert_sound(stage.hf)


def test_a_worker_that_lost_its_lease_stores_nothing(stage: Stage) -> None:
    planted = stage.plant(mode="async")
    stage.say()
    handler = stage.hf.registry.handlers["complaint_rewrite"]
    quick = handler.work
    calls: list[str] = []

    class Slow:
        load, request = staticmethod(quick.load), staticmethod(quick.request)

        def accept(self, item: Any, reply: Any) -> Any:
            kept = quick.accept(item, reply)
            calls.append(item.job_id)
            if len(calls) == 1:
                # Long after its lease, another has done it.
                stage.clock.advance(hours=1)
                run_maintenance(stage.store, stage.hf.settings, stage.hf.events)
                stage.clock.advance(hours=1)
                stage.hf.worker().run_once()
            return kept

    object.__setattr__(handler, "work", Slow())
    stage.hf.worker().run_once()

    assert len(calls) == 2
    assert len(stage.outputs()) == 1
    assert stage.row(planted)["status"] == "completed"
    finish_once(stage.store, reveal_delay=DAY)
    assert_sound(stage.hf)


def test_a_rewrite_that_is_canceled_at_its_provider_is_never_stored_and_frees_nothing_else(
    stage: Stage,
) -> None:
    canceled, other = stage.plant(), stage.plant("Please take the bins out, they smell.")
    stage.submit()
    stage.hf.cancel(canceled.job_id, org_id=HOME, reason="asked")
    stage.say()
    stage.provider.complete()
    stage.collect()
    finish_once(stage.store, reveal_delay=DAY)

    assert [row["rewrite_request_id"] for row in stage.outputs()] == [other.id]
    assert stage.row(canceled)["status"] == "canceled"
    assert stage.told(canceled) == ["rewrite_canceled"]
    assert_sound(stage.hf)


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_text_erased_while_its_batch_is_built_is_not_sent_and_blocks_no_other(
    stage: Stage, call: int
) -> None:
    kept, gone = (
        stage.plant(),
        stage.plant("Please take the bins out, they smell.", sender=STRANGER),
    )
    handler = stage.hf.registry.handlers["complaint_rewrite"]
    plain = handler.work
    admin = stage.hf.operate(actor="user:a", role="admin").context
    calls = itertools.count(1)

    class Erasing:
        load, accept = staticmethod(plain.load), staticmethod(plain.accept)

        def request(self, item: Any) -> Any:
            if next(calls) == call:
                erase.erase_data(admin, user_id=STRANGER, reason="in the very moment")
            return plain.request(item)

    object.__setattr__(handler, "work", Erasing())
    for _ in range(3):
        stage.submit()
        stage.clock.advance(hours=1)
    stage.answer()
    finish_once(stage.store, reveal_delay=DAY)

    assert [row["rewrite_request_id"] for row in stage.outputs()] == [kept.id]
    assert (stage.job(gone).state, stage.job(gone).error_class) == ("failed", "TEXT_ERASED")
    assert_sound(stage.hf)


# -- from an end to what follows from it


def test_an_end_is_reported_once_after_a_crash_of_the_orchestrator_at_any_statement(
    stage: Stage,
) -> None:
    planted = stage.plant()
    stage.answer()
    crash_everywhere(lambda: finish_once(stage.store, reveal_delay=DAY))
    stage.clock.advance(DAY)
    crash_everywhere(lambda: reveal_once(stage.store))
    stage.clock.advance(days=400)
    crash_everywhere(lambda: forget_once(stage.store, SETTINGS, limit=10))

    assert stage.told(planted) == ["rewrite_completed", "rewrite_revealed"] + (
        ["rewrite_forgotten"] * 2
    )
    assert (stage.row(planted)["rewrite_request"], stage.outputs()[0]["rewritten_text"]) == (
        None,
        None,
    )
    assert_sound(stage.hf)


def test_an_end_is_reported_once_when_every_answer_is_lost(stage: Stage) -> None:
    planted = stage.plant()
    stage.answer()
    with every_answer_lost(stage.hf):
        finish_once(stage.store, reveal_delay=DAY)
        stage.clock.advance(DAY)
        reveal_once(stage.store)
        stage.clock.advance(days=400)
        forget_once(stage.store, SETTINGS, limit=10)

    assert stage.told(planted) == ["rewrite_completed", "rewrite_revealed"] + (
        ["rewrite_forgotten"] * 2
    )
    assert_sound(stage.hf)


def test_an_erasure_that_dies_anywhere_is_asked_for_again_and_ends(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase, "PAGE", 1)
    done, at_provider = stage.plant(), None
    stage.answer()
    at_provider = stage.plant("Please keep the noise down, I cannot sleep.")
    stage.submit()
    admin = stage.hf.operate(actor="user:a", role="admin").context
    crash_everywhere(lambda: erase.erase_data(admin, user_id=SENDER, reason="asked"))
    stage.say()
    stage.provider.complete()
    stage.collect()
    finish_once(stage.store, reveal_delay=DAY)

    assert stage.told(done) == ["rewrite_erased", "rewrite_completed"]
    assert stage.told(at_provider) == ["rewrite_erased", "rewrite_failed"]
    assert stage.job(at_provider).error_class == "TEXT_ERASED"
    assert [row["rewritten_text"] for row in stage.outputs()] == [None]
    texts = look(stage.store, "SELECT original_text FROM holdfast.rewrite_message")
    assert [row["original_text"] for row in texts] == [None, None]
    assert ORIGINAL not in str(look(stage.store, "SELECT * FROM holdfast.rewrite_request"))
    assert_sound(stage.hf)
