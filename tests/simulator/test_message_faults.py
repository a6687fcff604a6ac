"""Every fault of message providers: the sender's view, and the messages really accepted."""

from __future__ import annotations

import smtplib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from holdfast_simulator import MESSAGE_SCRIPTS, SCRIPTS, Simulator
from tests.simulator.test_message_providers import ADA, Client, open_client
from tests.simulator.test_smtp import client as smtp_client
from tests.simulator.test_smtp import mail

HTTP = ["postmark", "resend", "slack", "webhook"]
ALL = [*HTTP, "smtp"]


@pytest.fixture
def client(sim: Simulator) -> Iterator[Client]:
    with open_client(sim) as found:
        yield found


class Lost(Exception):
    """The sender has no readable answer."""


def send(sim: Simulator, client: Client, provider: str, token: str = "tok-1") -> int:
    """The status or code of the answer; Lost without one."""
    try:
        if provider != "smtp":
            answer = getattr(client, provider)(token)
            answer.json()
            return int(answer.status_code)
        with smtp_client(sim) as smtp:
            smtp.send_message(mail(token))
        return 250
    except smtplib.SMTPResponseException as exc:
        if exc.smtp_code >= 400:
            return exc.smtp_code
        raise Lost from exc
    except (httpx2.TransportError, ValueError, smtplib.SMTPException, OSError) as exc:
        raise Lost from exc


def test_each_fault_has_its_test_and_a_name_of_its_own() -> None:
    text = Path(__file__).read_text()

    assert [name for name in MESSAGE_SCRIPTS if f'"{name}"' not in text] == []
    assert set(MESSAGE_SCRIPTS).isdisjoint(SCRIPTS)


# -- sending


@pytest.mark.parametrize("provider", ALL)
@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("accept_then_drop", 1),
        ("truncated_answer", 1),
        ("drop_before_accept", 0),
        # Faults of the model providers that also apply to sending.
        ("accept_then_reset", 1),
        ("reset_before", 0),
    ],
)
def test_a_lost_answer_leaves_open_whether_it_was_taken(
    sim: Simulator, client: Client, provider: str, name: str, taken: int
) -> None:
    sim.faults.add(name, provider=provider, op="send")

    with pytest.raises(Lost):
        send(sim, client, provider)
    assert len(sim.messages.accepted) == taken
    assert sim.journal.find(provider=provider)[0].fault == name
    assert send(sim, client, provider, "tok-2") in (200, 250)


@pytest.mark.parametrize("provider", ALL)
@pytest.mark.parametrize("name", ["answer_hangs", "accept_then_hang"])
def test_an_answer_that_never_comes_leaves_it_open_too(
    sim: Simulator, client: Client, provider: str, name: str
) -> None:
    sim.faults.add(name, provider=provider, op="send", seconds=0.05)

    with pytest.raises(Lost):
        send(sim, client, provider)
    assert len(sim.messages.accepted) == 1


@pytest.mark.parametrize("provider", ALL)
def test_an_error_may_come_after_it_was_taken(
    sim: Simulator, client: Client, provider: str
) -> None:
    sim.faults.add("error_after_accept", provider=provider)

    assert send(sim, client, provider) == (421 if provider == "smtp" else 500)
    assert len(sim.messages.accepted) == 1


def test_the_status_of_such_an_error_can_be_chosen(sim: Simulator, client: Client) -> None:
    sim.faults.add("error_after_accept", status=502)

    assert send(sim, client, "postmark") == 502


@pytest.mark.parametrize(
    ("provider", "taken"),
    [("postmark", 2), ("slack", 2), ("smtp", 2), ("resend", 1), ("webhook", 1)],
)
def test_a_request_that_arrives_twice_is_one_message_only_where_tokens_are_known_again(
    sim: Simulator, client: Client, provider: str, taken: int
) -> None:
    sim.faults.add("duplicate_on_the_wire")

    assert send(sim, client, provider) in (200, 250)
    assert len(sim.messages.accepted) == taken
    assert len({found.id for found in sim.messages.accepted}) == taken


@pytest.mark.parametrize("provider", ["resend", "webhook"])
def test_a_repeat_after_the_window_is_taken_again(
    sim: Simulator, client: Client, provider: str
) -> None:
    sim.faults.add("window_expired", nth=3)

    send(sim, client, provider)
    send(sim, client, provider)
    assert len(sim.messages.accepted) == 1
    send(sim, client, provider)
    assert list(sim.messages.accepted_twice()) == [sim.messages.accepted[0].letter.unit]
    send(sim, client, provider)
    assert len(sim.messages.accepted) == 2


@pytest.mark.parametrize("provider", ALL)
def test_a_throttled_sender_knows_that_nothing_was_accepted(
    sim: Simulator, client: Client, provider: str
) -> None:
    sim.faults.add("throttled", provider=provider)

    assert send(sim, client, provider) == (452 if provider == "smtp" else 429)
    assert sim.messages.accepted == []
    assert send(sim, client, provider) in (200, 250)


@pytest.mark.parametrize("value", ["0", "3600", "Mon, 05 Jan 2026 10:00:00 GMT", "soon"])
def test_the_retry_delay_is_reported_as_configured(
    sim: Simulator, client: Client, value: str
) -> None:
    sim.faults.add("throttled", retry_after=value)

    assert client.postmark().headers["retry-after"] == value


@pytest.mark.parametrize(
    ("provider", "status"),
    [("postmark", 422), ("resend", 422), ("slack", 200), ("webhook", 410), ("smtp", 550)],
)
def test_a_recipient_may_be_refused_for_good(
    sim: Simulator, client: Client, provider: str, status: int
) -> None:
    sim.faults.add("refused", provider=provider)

    assert send(sim, client, provider) == status
    assert sim.messages.accepted == []


def test_the_words_of_a_refusal_are_the_providers(sim: Simulator, client: Client) -> None:
    sim.faults.add("refused", times=None)

    assert client.postmark().json()["ErrorCode"] == 406
    assert client.resend().json()["name"] == "validation_error"
    assert client.slack().json() == {"ok": False, "error": "channel_not_found"}


@pytest.mark.parametrize("provider", ALL)
def test_what_is_answered_as_taken_may_be_lost(
    sim: Simulator, client: Client, provider: str
) -> None:
    sim.faults.add("lost_after_accept", provider=provider)

    assert send(sim, client, provider) in (200, 250)
    assert sim.messages.accepted == []
    send(sim, client, provider)
    assert len(sim.messages.accepted) == 1


def test_a_message_that_is_stuck_on_its_way_may_arrive_later(
    sim: Simulator, client: Client
) -> None:
    sim.faults.add("zombie_create", op="send", minutes=10)

    with pytest.raises(Lost):
        send(sim, client, "postmark")
    assert sim.messages.accepted == []
    sim.clock.advance(minutes=10)
    assert len(sim.messages.accepted) == 1


@pytest.mark.parametrize(
    ("op", "name", "error"),
    [
        ("connect", "throttled", smtplib.SMTPConnectError),
        ("connect", "drop_before_accept", OSError),
        ("recipient", "refused", smtplib.SMTPRecipientsRefused),
        ("recipient", "throttled", smtplib.SMTPRecipientsRefused),
        ("recipient", "drop_before_accept", smtplib.SMTPServerDisconnected),
    ],
)
def test_a_mail_server_may_say_no_before_the_mail(
    sim: Simulator, op: str, name: str, error: type[Exception]
) -> None:
    sim.faults.add(name, provider="smtp", op=op)

    with pytest.raises(error), smtp_client(sim) as smtp:
        smtp.send_message(mail())
    assert sim.messages.accepted == []


def test_one_recipient_of_two_may_be_refused(sim: Simulator) -> None:
    sim.faults.add("refused", op="recipient", key="bob")
    with smtp_client(sim) as smtp:
        refused = smtp.sendmail("a@example.test", ["bob@example.test", ADA], mail().as_bytes())

    assert list(refused) == ["bob@example.test"]
    assert [taken.address for taken in sim.messages.accepted] == [ADA]


@pytest.mark.parametrize("provider", ALL)
def test_a_fault_can_be_aimed_at_one_token(sim: Simulator, client: Client, provider: str) -> None:
    sim.faults.add("lost_after_accept", key="tok-2", times=None)

    for token in ("tok-1", "tok-2", "tok-3"):
        send(sim, client, provider, token)
    assert [taken.token for taken in sim.messages.accepted] == ["tok-1", "tok-3"]


# -- lookups


def found_of(client: Client, provider: str, sent_id: str) -> list[str]:
    """The ids that a lookup finds."""
    match provider:
        case "postmark":
            return [shown["MessageID"] for shown in client.postmark_find().json()["Messages"]]
        case "slack":
            return [shown["ts"] for shown in client.slack_find()["messages"]]
        case "resend":
            shown = client.get("resend", f"/emails/{sent_id}")
            return [shown.json()["id"]] if shown.status_code == 200 else []
        case _:
            shown = client.get("webhook", "/status/tok-1")
            if shown.status_code == 404:
                return []
            told = shown.json()
            return [one["id"] for one in told.get("matches", [told])]


@pytest.mark.parametrize("provider", HTTP)
def test_a_message_may_be_found_only_later(sim: Simulator, client: Client, provider: str) -> None:
    sim.faults.add("lookup_lag", provider=provider, seconds=60)
    send(sim, client, provider)
    (taken,) = sim.messages.accepted

    assert found_of(client, provider, taken.id) == []
    sim.clock.advance(seconds=59)
    assert found_of(client, provider, taken.id) == []
    sim.clock.advance(seconds=1)
    assert found_of(client, provider, taken.id) == [taken.id]


@pytest.mark.parametrize("provider", HTTP)
def test_a_question_may_not_be_answered(sim: Simulator, client: Client, provider: str) -> None:
    questions: dict[str, Callable[[], int]] = {
        "postmark": lambda: client.postmark_find().status_code,
        "resend": lambda: client.get("resend", "/emails/x").status_code,
        "slack": lambda: client.get("slack", "/conversations.history").status_code,
        "webhook": lambda: client.get("webhook", "/status/x").status_code,
    }
    sim.faults.add("lookup_down", provider=provider)

    assert send(sim, client, provider) == 200
    assert questions[provider]() == 503
    assert questions[provider]() != 503


@pytest.mark.parametrize("provider", ["postmark", "slack", "webhook"])
def test_a_question_may_find_two(sim: Simulator, client: Client, provider: str) -> None:
    sim.faults.add("two_matches", provider=provider)
    send(sim, client, provider)
    (taken,) = sim.messages.accepted
    found = found_of(client, provider, taken.id)

    assert len(set(found)) == 2
    assert taken.id in found
    assert found_of(client, provider, taken.id) == [taken.id]


def test_a_lookup_may_find_a_message_of_another_sender(sim: Simulator, client: Client) -> None:
    sim.faults.add("another_recipient", times=2)
    client.postmark()
    message_id = client.resend().json()["id"]

    assert client.postmark_find().json()["Messages"][0]["Recipients"] != [ADA]
    assert client.get("resend", f"/emails/{message_id}").json()["to"] != [ADA]
    assert client.postmark_find().json()["Messages"][0]["Recipients"] == [ADA]


def test_an_accepted_message_may_bounce(sim: Simulator, client: Client) -> None:
    sim.faults.add("given_up", times=3)
    resent = client.resend().json()["id"]
    posted = client.postmark().json()["MessageID"]
    client.webhook()

    assert client.get("resend", f"/emails/{resent}").json()["last_event"] == "bounced"
    shown = client.get("postmark", f"/messages/outbound/{posted}/details").json()
    assert [event["Type"] for event in shown["MessageEvents"]] == ["Bounced"]
    assert client.get("webhook", "/status/tok-1").json()["status"] == "failed"
    assert [taken.is_given_up for taken in sim.messages.accepted] == [True] * 3
