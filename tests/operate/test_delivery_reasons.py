"""Deliveries in explain and the doctor: why a job waits for them, and the remedy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast import Enqueued, FakeClock, Holdfast, Snooze
from holdfast.config import ChannelSettings
from holdfast.operate.doctor import Finding, Limits, Severity, examine
from holdfast.operate.explain import Explanation, Reason, explain_job
from tests.outbox.planted import plant_delivery, spoil
from tests.outbox.scripted import DUMB, ScriptedChannel, letter, outbox_with
from tests.story import ORG, look

OK, NOTICE, WARNING, PROBLEM = Severity
SENT = (("first", "accepted"),)


@pytest.fixture
def snoozed(hf: Holdfast) -> Enqueued:
    """A job that checks its deliveries again in a minute."""

    @hf.job("text.tell")
    def tell(job: Any, payload: Any) -> None:
        raise Snooze(60)

    job = hf.enqueue("text.tell", {}, org_id=ORG)
    hf.worker().run_once()
    return job


def explain(hf: Holdfast, job: Enqueued) -> Explanation:
    return explain_job(hf.operate(actor="user:op", role="admin").context, job.id)


def found(hf: Holdfast, check: str, **limits: Any) -> list[Finding]:
    """The doctor's finding about one subject; None if it is healthy."""
    context = hf.operate(actor="user:op", role="admin").context
    every = [one for one in examine(context, replace(Limits(), **limits)) if one.check == check]
    bad = [one for one in every if one.severity is not OK]
    assert every
    assert all(one.remedy and one.seen for one in bad)
    return bad


# -- explain


def test_a_job_whose_deliveries_are_sent_waits_for_its_time(
    hf: Holdfast, snoozed: Enqueued
) -> None:
    plant_delivery(hf, "sent", tries=SENT, job_id=snoozed.id)
    plant_delivery(hf, job_id=snoozed.id)
    plant_delivery(hf, "held", tries=(("first", None),))

    assert explain(hf, snoozed).reason is Reason.NOT_DUE


def test_a_job_waits_for_a_channel_that_did_not_take_its_delivery(
    hf: Holdfast, snoozed: Enqueued
) -> None:
    plant_delivery(hf, tries=(("first", "throttled"),), job_id=snoozed.id)

    told = explain(hf, snoozed)

    assert told.reason is Reason.AWAITS_CHANNEL
    assert told.line == "1 delivery was attempted but not sent; waiting for mail."
    assert told.until is not None
    assert told.facts == {"channels": ["mail"], "tried": 1, "unsure": 0}


def test_a_job_waits_until_the_channel_says_what_it_took(hf: Holdfast, snoozed: Enqueued) -> None:
    for outcome in (None, "unsure"):
        plant_delivery(hf, tries=(("first", outcome),), job_id=snoozed.id)

    told = explain(hf, snoozed)

    assert told.reason is Reason.AWAITS_CHANNEL
    assert "unknown whether mail accepted 2 of them" in told.line
    assert told.next.startswith("outbox_reconciler looks them up at the channel")


def test_a_job_waits_for_a_person_who_decides(hf: Holdfast, snoozed: Enqueued) -> None:
    plant_delivery(hf, tries=(("first", "throttled"),), job_id=snoozed.id)
    plant_delivery(hf, "held", tries=(("first", None),), job_id=snoozed.id)

    told = explain(hf, snoozed)

    assert told.reason is Reason.DELIVERY_HELD
    assert "holdfast deliveries list" in told.next
    assert "canary@example.com" not in repr(told)


def test_a_job_that_ended_says_what_of_it_is_not_delivered(hf: Holdfast) -> None:
    hf.job("text.tell")(lambda job, payload: None)
    job = hf.enqueue("text.tell", {}, org_id=ORG)
    hf.worker().run_once()
    plant_delivery(hf, "sent", tries=SENT, job_id=job.id)
    assert "deliveries" not in explain(hf, job).line

    plant_delivery(hf, job_id=job.id)
    plant_delivery(hf, "held", tries=(("first", None),), job_id=job.id)

    told = explain(hf, job)
    assert told.reason is Reason.COMPLETED
    assert told.line.endswith("; deliveries: 1 pending and 1 held.")


@pytest.mark.parametrize(
    ("state", "tries", "line"),
    [
        ("pending", (("first", "unsure"),), "unknown whether mail accepted 1 of them"),
        ("pending", (), "1 delivery was not attempted; waiting for mail."),
        ("held", (("first", None),), "It is unknown whether 1 delivery was sent by mail"),
    ],
)
def test_the_job_of_the_outbox_waits_for_what_it_was_posted_for(
    hf: Holdfast, clock: FakeClock, state: str, tries: Any, line: str
) -> None:
    posted = plant_delivery(hf, state, tries=tries)
    waiting = plant_delivery(hf)
    spoil(hf, waiting, "not_before_at = {later(86400000)}")
    job = hf.enqueue("outbox.deliver", {"deliveries": [posted, waiting]}, org_id=ORG)
    if not tries:
        spoil(hf, waiting, "state = 'dropped', reason = 'x', ended_at = {now}")
    hf.worker().run_once()

    assert line in explain(hf, job).line


def test_the_job_of_the_outbox_that_ended_names_what_a_person_decides(hf: Holdfast) -> None:
    held = plant_delivery(hf, "held", tries=(("first", None),))
    job = hf.enqueue("outbox.deliver", {"deliveries": [held]}, org_id=ORG)
    hf.worker().run_once()

    told = explain(hf, job)

    assert told.reason is Reason.COMPLETED
    assert told.line.endswith("; deliveries: 1 held.")
    assert "holdfast deliveries list --state held" in told.next


# -- doctor


def test_an_outbox_without_work_is_well(hf: Holdfast) -> None:
    plant_delivery(hf, "sent", tries=SENT)

    assert found(hf, "deliveries") == []
    assert found(hf, "channels") == []


def test_held_deliveries_are_a_problem_at_once(hf: Holdfast) -> None:
    plant_delivery(hf, "held", tries=(("first", None),))
    plant_delivery(hf, "held", tries=(("first", None),), channel="pager")

    mail, pager = found(hf, "deliveries")

    assert (mail.severity, pager.facts["channel"]) == (PROBLEM, "pager")
    assert "1 delivery by mail held, the oldest since" in mail.seen
    assert "holdfast deliveries confirm" in mail.remedy


def test_abandoned_deliveries_are_a_problem(hf: Holdfast, clock: FakeClock) -> None:
    later = plant_delivery(hf)
    spoil(hf, later, "not_before_at = {later(86400000)}")
    plant_delivery(hf)
    plant_delivery(hf, tries=(("first", None),))
    clock.advance(minutes=29)
    assert found(hf, "deliveries") == []

    clock.advance(minutes=2)

    (told,) = found(hf, "deliveries")
    assert told.severity is PROBLEM
    assert "2 deliveries by mail overdue for 31 min, 1 of them attempted" in told.seen
    assert "outbox_reconciler never ran" in told.seen


def test_an_unconfigured_channel_is_named(hf: Holdfast) -> None:
    plant_delivery(hf, channel="in_app")
    plant_delivery(hf, channel="carrier-pigeon")

    (told,) = found(hf, "channels")

    assert told.severity is WARNING
    assert "[channels.carrier-pigeon]" in told.remedy


def test_a_channel_whose_credential_is_missing_is_named_with_its_variable(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = ChannelSettings(kind="slack", credential_env="TEAM_TOKEN")
    hf.settings = replace(hf.settings, channels={"team": team})
    plant_delivery(hf, channel="team")
    monkeypatch.delenv("TEAM_TOKEN", raising=False)

    (told,) = found(hf, "channels")

    assert (told.severity, told.facts["channel"]) == (WARNING, "team")
    assert "TEAM_TOKEN" in told.remedy
    monkeypatch.setenv("TEAM_TOKEN", "xoxb-1")
    assert found(hf, "channels") == []


# -- channels that refuse all messages


def refuse(hf: Holdfast, word: str = "unauthorized") -> tuple[ScriptedChannel, str]:
    """A stored message whose channel does not accept it, and the job that waits for it."""
    channel = outbox_with(hf, DUMB)
    channel.otherwise = word
    hf.outbox.post([letter()], org_id=ORG)
    hf.worker().run_once()
    (job,) = look(hf.store, "SELECT id FROM holdfast.job")
    return channel, str(job["id"])


@pytest.mark.req("R-07")
def test_a_job_waits_because_its_channel_refuses_us(hf: Holdfast) -> None:
    _, job_id = refuse(hf)

    told = explain_job(hf.operate(actor="user:op", role="admin").context, job_id)

    assert told.reason is Reason.CHANNEL_REFUSED
    assert told.line == (
        "1 delivery waits: channel post rejects the credential, permission or address (status_401)."
    )
    assert told.facts == {"channel": "post", "code": "status_401", "deliveries": 1}


@pytest.mark.req("R-07")
def test_the_doctor_names_a_channel_that_refuses_us_until_it_takes_a_message(
    hf: Holdfast, clock: FakeClock
) -> None:
    channel, _ = refuse(hf)
    hf.settings = replace(hf.settings, channels={"post": ChannelSettings(kind="webhook")})

    (problem,) = found(hf, "channels")
    hf.settings = replace(hf.settings, channels={})
    channel.otherwise, channel.fingerprint = "accepted", "key-2"
    hf.outbox.use(channel)
    clock.advance(minutes=5)
    hf.outbox.reconcile()

    assert problem.severity is PROBLEM
    assert "post: credential, permission or address rejected" in problem.seen
    assert "(status_401); 1 delivery waits." in problem.seen
    assert found(hf, "channels") == []


def test_the_doctor_takes_notice_of_a_channel_that_is_away(hf: Holdfast) -> None:
    refuse(hf, "unreachable")
    hf.settings = replace(hf.settings, channels={"post": ChannelSettings(kind="webhook")})

    (notice,) = found(hf, "channels")

    assert notice.severity is NOTICE
    assert "unreachable or throttled" in notice.seen
