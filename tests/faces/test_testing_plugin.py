"""The pytest plugin that ships with the package, used as an application's tests would use it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Context, Holdfast, NetworkTimeout, RetryPolicy, Snooze, State
from holdfast.testing import ORG, HoldfastApp
from tests.outbox.scripted import ScriptedChannel, letter
from tests.story import look

app = Holdfast("sqlite:")
sent: list[str] = []


@app.job("mail.welcome", category="notification")
def welcome(job: Context, payload: dict[str, Any]) -> dict[str, str]:
    sent.append(payload["user"])
    return {"to": payload["user"]}


@app.job("mail.flaky", retry=RetryPolicy(steps=(timedelta(minutes=10),)))
def flaky(job: Context, payload: dict[str, Any]) -> int:
    if job.attempt == 1:
        raise NetworkTimeout
    return job.attempt


@app.job("mail.later")
def later(job: Context, payload: dict[str, Any]) -> str:
    if job.saved is None:
        job.checkpoint("asked")
        raise Snooze(3600)
    return "in the evening"


@app.job("user.create")
def create_user(job: Context, payload: dict[str, Any]) -> str:
    follow_up = app.enqueue("mail.welcome", {"user": payload["user"]})
    return follow_up.id


@pytest.fixture
def holdfast_target() -> Holdfast:
    sent.clear()
    return app


def test_jobs_wait_until_they_are_drained(holdfast_app: HoldfastApp) -> None:
    app.enqueue("mail.welcome", {"user": "ada"}, org_id=ORG)
    assert sent == []

    counts = holdfast_app.drain()

    assert sent == ["ada"]
    assert (counts.claimed, counts.outcomes) == (1, {"completed": 1})


def test_inline_jobs_run_inside_the_call_that_enqueues_them_with_their_children(
    holdfast_app: HoldfastApp,
) -> None:
    holdfast_app.inline()
    app.enqueue("user.create", {"user": "ada"}, org_id=ORG)
    assert sent == ["ada"]

    holdfast_app.manual()
    app.enqueue("user.create", {"user": "bo"}, org_id=ORG)
    assert sent == ["ada"]


def test_assert_enqueued_finds_by_type_payload_and_fields(holdfast_app: HoldfastApp) -> None:
    app.enqueue("mail.welcome", {"user": "ada", "tone": "warm"}, org_id=ORG, priority="high")
    app.enqueue("mail.welcome", {"user": "bo"}, org_id=ORG)

    (found,) = holdfast_app.assert_enqueued("mail.welcome", payload={"user": "ada"}, priority=10)

    assert found.payload == {"user": "ada", "tone": "warm"}
    holdfast_app.assert_enqueued("mail.welcome", times=2)
    assert len(holdfast_app.all_enqueued()) == 2
    assert len(holdfast_app.all_enqueued("mail.welcome", payload={"user": "bo"})) == 1
    assert holdfast_app.all_enqueued("mail.flaky") == []


def test_a_declared_job_is_found_like_its_name(holdfast_app: HoldfastApp) -> None:
    welcome.configure(org_id=ORG).enqueue({"user": "ada"})

    holdfast_app.assert_enqueued(welcome, payload={"user": "ada"}, times=1)
    assert [job.job_type for job in holdfast_app.all_enqueued(welcome)] == [welcome.job_type]
    with pytest.raises(pytest.fail.Exception, match=f"no waiting {welcome.job_type}"):
        holdfast_app.assert_not_enqueued(welcome)
    assert holdfast_app.process_job(welcome, {"user": "ben"}).state == "completed"
    holdfast_app.assert_not_enqueued(welcome)


def test_assert_enqueued_fails_with_what_waits_instead(holdfast_app: HoldfastApp) -> None:
    app.enqueue("mail.welcome", {"user": "ada"}, org_id=ORG)

    with pytest.raises(pytest.fail.Exception, match=r"mail\.welcome \{'user': 'ada'\}"):
        holdfast_app.assert_enqueued("mail.welcome", payload={"user": "bo"})
    with pytest.raises(pytest.fail.Exception, match="Expected 2 waiting"):
        holdfast_app.assert_enqueued("mail.welcome", times=2)


def test_refute_enqueued_fails_when_such_a_job_waits(holdfast_app: HoldfastApp) -> None:
    holdfast_app.refute_enqueued("mail.welcome")
    app.enqueue("mail.welcome", {"user": "ada"}, org_id=ORG)

    holdfast_app.refute_enqueued("mail.welcome", payload={"user": "bo"})
    with pytest.raises(pytest.fail.Exception, match="Expected no waiting"):
        holdfast_app.refute_enqueued("mail.welcome", payload={"user": "ada"})


def test_a_job_that_has_ended_no_longer_counts_as_enqueued(holdfast_app: HoldfastApp) -> None:
    app.enqueue("mail.welcome", {"user": "ada"}, org_id=ORG)
    holdfast_app.drain()

    holdfast_app.refute_enqueued("mail.welcome")


def test_drain_stops_at_a_delay_and_the_clock_brings_it_due(holdfast_app: HoldfastApp) -> None:
    job = app.enqueue("mail.flaky", {}, org_id=ORG)

    assert holdfast_app.drain().outcomes == {"retry": 1}
    holdfast_app.clock.advance(minutes=9)
    assert holdfast_app.drain().claimed == 0
    holdfast_app.clock.advance(minutes=1)
    assert holdfast_app.drain().outcomes == {"completed": 1}

    assert app.get(job.id, org_id=ORG).result == 2


def test_drain_with_delays_moves_the_clock_over_retries_and_snoozes(
    holdfast_app: HoldfastApp,
) -> None:
    began = holdfast_app.clock.now()
    jobs = [app.enqueue(name, {}, org_id=ORG) for name in ("mail.flaky", "mail.later")]

    counts = holdfast_app.drain(with_delays=True)

    assert counts.outcomes == {"retry": 1, "snoozed": 1, "completed": 2}
    assert [app.get(job.id, org_id=ORG).state for job in jobs] == [State.COMPLETED] * 2
    assert holdfast_app.clock.now() - began >= timedelta(hours=1)


def test_drain_can_be_held_to_some_queues(holdfast_app: HoldfastApp) -> None:
    app.enqueue("mail.welcome", {"user": "ada"}, org_id=ORG)

    assert holdfast_app.drain(queues=["q:default"]).claimed == 0
    assert holdfast_app.drain(queues=["q:notifications"]).claimed == 1


def test_process_job_gives_back_the_job_as_it_ended(holdfast_app: HoldfastApp) -> None:
    job = holdfast_app.process_job("mail.welcome", {"user": "ada"}, actor="user:7")

    assert (job.state, job.result) == (State.COMPLETED, {"to": "ada"})
    assert job.record["actor_id"] == "7"


@pytest.mark.parametrize(("point", "runs"), [("claim", ["ada"]), ("execute", ["ada", "ada"])])
def test_a_crash_before_settling_is_recovered_and_counts_as_an_attempt(
    holdfast_app: HoldfastApp, point: str, runs: list[str]
) -> None:
    job = app.enqueue("mail.welcome", {"user": "ada"}, org_id=ORG)

    with holdfast_app.crash_after(point):
        holdfast_app.drain()
    assert app.get(job.id, org_id=ORG).state is State.PROCESSING
    holdfast_app.clock.advance(seconds=61)
    assert holdfast_app.run_maintenance().outcomes["rescued"] == 1
    holdfast_app.drain()

    ended = app.get(job.id, org_id=ORG)
    assert (ended.state, ended.attempt_count) == (State.COMPLETED, 1)
    assert sent == runs


def test_a_crash_after_settling_leaves_nothing_to_recover(holdfast_app: HoldfastApp) -> None:
    job = app.enqueue("mail.welcome", {"user": "ada"}, org_id=ORG)

    with holdfast_app.crash_after("settle"):
        holdfast_app.drain()
    holdfast_app.clock.advance(seconds=61)

    assert holdfast_app.run_maintenance().outcomes["rescued"] == 0
    assert holdfast_app.drain().claimed == 0
    assert app.get(job.id, org_id=ORG).state is State.COMPLETED
    assert sent == ["ada"]


def test_a_crash_after_a_send_is_resolved_by_asking_the_channel() -> None:
    mailing = Holdfast("sqlite:")
    under_test = HoldfastApp(mailing)
    channel = ScriptedChannel(under_test.clock)
    mailing.outbox.use(channel)
    try:
        mailing.outbox.post([letter()], org_id=ORG)
        with under_test.crash_after("send"):
            under_test.drain()
        assert len(channel.sends) == 1

        under_test.clock.advance(minutes=10)
        under_test.run_maintenance()
        under_test.drain()
        mailing.outbox.reconcile()

        (row,) = look(mailing.store, "SELECT state FROM holdfast.delivery")
        assert row["state"] == "sent"
        assert len(channel.sends) == 1
    finally:
        under_test.close()


def test_a_crash_that_never_came_fails_the_test(holdfast_app: HoldfastApp) -> None:
    with (
        pytest.raises(pytest.fail.Exception, match="Nothing reached 'execute'"),
        holdfast_app.crash_after("execute"),
    ):
        holdfast_app.drain()


def test_every_test_has_a_database_and_a_clock_of_its_own(holdfast_app: HoldfastApp) -> None:
    assert holdfast_app.all_enqueued() == []
    assert holdfast_app.clock.now().year == 2026
    assert app.settings.db == "sqlite:"
    assert app.clock is holdfast_app.clock
