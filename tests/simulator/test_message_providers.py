"""Message providers over HTTP: their answers, and the messages that they really accepted."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from holdfast_simulator import MESSAGE_SCRIPTS, Simulator
from holdfast_simulator.command import simulator

ADA = "ada@example.test"
SECRET = "whsec_" + base64.b64encode(b"a key of the receiver").decode()


class Client:
    """Sends one message to each of them, and looks it up, in their own formats."""

    def __init__(self, sim: Simulator, key: str = "key") -> None:
        self.sim = sim
        self.key = key
        self.http = httpx2.Client(timeout=60.0)

    def post(self, provider: str, path: str, body: Any, **headers: str) -> Any:
        return self.http.post(
            self.sim.url(provider) + path,
            json=body,
            headers={**self.headers(), **headers},
        )

    def get(self, provider: str, path: str, **query: str) -> Any:
        return self.http.get(self.sim.url(provider) + path, params=query, headers=self.headers())

    def headers(self) -> dict[str, str]:
        if not self.key:
            return {}
        return {"authorization": f"Bearer {self.key}", "x-postmark-server-token": self.key}

    def postmark(self, token: str = "tok-1", to: str = ADA, **more: Any) -> Any:
        body = {
            "From": "post@holdfast.test",
            "To": to,
            "Subject": "Hello",
            "TextBody": "Hello Ada",
            "Metadata": {"holdfast": token},
        }
        return self.post("postmark", "/email", {**body, **more})

    def postmark_find(self, token: str = "tok-1", **query: str) -> Any:
        asked = {"count": "10", "offset": "0", "metadata_holdfast": token, **query}
        return self.get("postmark", "/messages/outbound", **asked)

    def resend(self, token: str = "tok-1", **more: Any) -> Any:
        body = {
            "from": "post@holdfast.test",
            "to": [ADA],
            "subject": "Hello",
            "text": "Hello Ada",
        }
        return self.post("resend", "/emails", {**body, **more}, **{"idempotency-key": token})

    def slack(self, token: str = "tok-1", channel: str = "C024BE91L", **more: Any) -> Any:
        metadata = {"event_type": "delivery", "event_payload": {"token": token}}
        body = {"channel": channel, "text": "Hello Ada", "metadata": metadata}
        return self.post("slack", "/chat.postMessage", {**body, **more})

    def slack_find(self, channel: str = "C024BE91L", **query: str) -> Any:
        asked = {"channel": channel, "include_all_metadata": "true", **query}
        return self.get("slack", "/conversations.history", **asked).json()

    def webhook(self, token: str = "tok-1", **headers: str) -> Any:
        return self.post(
            "webhook", "/hooks/ada", {"text": "Hello"}, **{"webhook-id": token, **headers}
        )


@contextmanager
def open_client(sim: Simulator, key: str = "key") -> Iterator[Client]:
    found = Client(sim, key)
    with found.http:
        yield found


@pytest.fixture
def client(sim: Simulator) -> Iterator[Client]:
    with open_client(sim) as found:
        yield found


# -- Postmark


def test_postmark_takes_a_mail_and_finds_it_by_its_metadata(sim: Simulator, client: Client) -> None:
    sent = client.postmark(HtmlBody="<p>Hello</p>").json()
    client.postmark("tok-2")
    found = client.postmark_find().json()
    (taken,) = sim.messages.with_token("tok-1")

    assert (sent["ErrorCode"], sent["Message"], sent["MessageID"]) == (0, "OK", taken.id)
    assert found["TotalCount"] == 1
    (shown,) = found["Messages"]
    assert shown["MessageID"] == taken.id
    assert shown["Recipients"] == [ADA]
    assert shown["Metadata"] == {"holdfast": "tok-1"}
    assert shown["ReceivedAt"].endswith("-05:00")
    assert (taken.address, taken.letter.text, taken.letter.html) == (
        ADA,
        "Hello Ada",
        "<p>Hello</p>",
    )


def test_postmark_knows_no_token_again(sim: Simulator, client: Client) -> None:
    ids = {client.postmark().json()["MessageID"] for _ in range(2)}

    assert len(ids) == 2
    assert list(sim.messages.accepted_twice()) == [("tok-1", ADA)]
    assert client.postmark_find().json()["TotalCount"] == 2


def test_postmark_returns_the_details_of_a_mail(client: Client) -> None:
    message_id = client.postmark().json()["MessageID"]
    shown = client.get("postmark", f"/messages/outbound/{message_id}/details")
    unknown = client.get("postmark", "/messages/outbound/nobody/details")

    assert [event["Type"] for event in shown.json()["MessageEvents"]] == ["Delivered"]
    assert unknown.json()["ErrorCode"] == 701


def test_postmark_forgets_after_45_days(sim: Simulator, client: Client) -> None:
    client.postmark()
    sim.clock.advance(days=44)
    assert client.postmark_find().json()["TotalCount"] == 1

    sim.clock.advance(days=1)
    assert client.postmark_find().json()["TotalCount"] == 0
    assert len(sim.messages.accepted) == 1


def test_an_account_does_not_see_the_mails_of_another(sim: Simulator, client: Client) -> None:
    client.postmark()
    with open_client(sim, "another key") as other:
        assert other.postmark_find().json()["TotalCount"] == 0


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"To": "nobody"}, 300),
        ({"From": ""}, 300),
        ({"TextBody": ""}, 300),
        ({"Metadata": {"holdfast": "x" * 81}}, 300),
        ({"Metadata": {"x" * 21: "x"}}, 300),
    ],
)
def test_postmark_refuses_what_it_cannot_carry(
    sim: Simulator, client: Client, more: dict[str, Any], code: int
) -> None:
    refused = client.postmark(**more)

    assert (refused.status_code, refused.json()["ErrorCode"]) == (422, code)
    assert sim.messages.accepted == []


def test_postmark_searches_by_recipient_and_time_one_field_at_a_time(
    sim: Simulator, client: Client
) -> None:
    client.postmark()
    early = "2026-01-05T03:59:00"
    late = "2026-01-05T04:01:00"

    # Dates without a zone are in New York's, where it is four o'clock.
    assert client.postmark_find(fromdate=early, todate=late).json()["TotalCount"] == 1
    assert client.postmark_find(fromdate=late).json()["TotalCount"] == 0
    assert client.postmark_find(todate=early).json()["TotalCount"] == 0
    assert client.postmark_find(recipient="bob@example.test").json()["TotalCount"] == 0
    assert client.postmark_find(metadata_other="x").status_code == 422
    assert client.postmark_find(count="501").status_code == 422


# -- Resend


def test_resend_takes_a_token_once_and_answers_the_same(sim: Simulator, client: Client) -> None:
    first, again = client.resend().json(), client.resend().json()
    (taken,) = sim.messages.accepted

    assert first == again == {"id": taken.id}
    assert len(taken.repeats) == 1
    assert taken.repeats[0].body_hash == taken.letter.body_hash


def test_resend_accepts_a_token_again_after_a_day(sim: Simulator, client: Client) -> None:
    client.resend()
    sim.clock.advance(hours=23, minutes=59)
    client.resend()
    assert len(sim.messages.accepted) == 1

    sim.clock.advance(minutes=1)
    client.resend()
    assert list(sim.messages.accepted_twice()) == [("tok-1", ADA)]


def test_resend_refuses_another_mail_under_the_same_token(sim: Simulator, client: Client) -> None:
    client.resend()
    refused = client.resend(text="Hello Bob")

    assert refused.status_code == 409
    assert refused.json()["name"] == "invalid_idempotent_request"
    assert len(sim.messages.accepted) == 1


def test_resend_knows_a_mail_by_its_own_id(client: Client) -> None:
    message_id = client.resend().json()["id"]
    shown = client.get("resend", f"/emails/{message_id}").json()
    unknown = client.get("resend", "/emails/nobody")

    assert (shown["id"], shown["to"], shown["last_event"]) == (message_id, [ADA], "delivered")
    assert (unknown.status_code, unknown.json()["name"]) == (404, "not_found")


def test_resend_lists_the_newest_first_in_pages(sim: Simulator, client: Client) -> None:
    ids = [client.resend(f"tok-{number}").json()["id"] for number in range(3)]
    first = client.get("resend", "/emails", limit="2").json()
    rest = client.get("resend", "/emails", limit="2", after=ids[1]).json()

    assert [shown["id"] for shown in first["data"]] == [ids[2], ids[1]]
    assert first["has_more"] is True
    assert [shown["id"] for shown in rest["data"]] == [ids[0]]
    assert rest["has_more"] is False


@pytest.mark.parametrize(
    ("token", "more", "status", "name"),
    [
        ("x" * 257, {}, 400, "invalid_idempotency_key"),
        ("tok-1", {"to": "nobody"}, 422, "validation_error"),
        ("tok-1", {"to": []}, 422, "validation_error"),
        ("tok-1", {"subject": ""}, 422, "validation_error"),
        ("tok-1", {"text": ""}, 422, "validation_error"),
    ],
)
def test_resend_refuses_what_it_cannot_carry(
    sim: Simulator, client: Client, token: str, more: dict[str, Any], status: int, name: str
) -> None:
    refused = client.resend(token, **more)

    assert (refused.status_code, refused.json()["name"]) == (status, name)
    assert sim.messages.accepted == []


# -- Slack


def test_slack_posts_and_shows_the_token_in_the_history(sim: Simulator, client: Client) -> None:
    posted = client.slack().json()
    (taken,) = sim.messages.accepted
    history = client.slack_find()

    assert (posted["ok"], posted["channel"], posted["ts"]) == (True, "C024BE91L", taken.id)
    (message,) = history["messages"]
    assert message["ts"] == taken.id
    assert message["metadata"]["event_payload"] == {"token": "tok-1"}
    assert (taken.token, taken.address) == ("tok-1", "C024BE91L")


def test_slack_leaves_metadata_out_unless_it_is_asked_for(client: Client) -> None:
    client.slack()

    assert "metadata" not in client.slack_find(include_all_metadata="false")["messages"][0]


def test_slack_reads_back_by_id_and_not_by_name(client: Client) -> None:
    posted = client.slack(channel="#reviews").json()

    assert posted["channel"].startswith("C")
    assert len(client.slack_find(posted["channel"])["messages"]) == 1
    assert client.slack_find("#reviews") == {"ok": False, "error": "channel_not_found"}


def test_slack_pages_from_the_newest_to_the_oldest_that_is_wanted(
    sim: Simulator, client: Client
) -> None:
    stamps = []
    for number in range(4):
        stamps.append(client.slack(f"tok-{number}").json()["ts"])
        sim.clock.advance(seconds=1)
    first = client.slack_find(oldest=stamps[0], limit="2")
    rest = client.slack_find(
        oldest=stamps[0], limit="2", cursor=first["response_metadata"]["next_cursor"]
    )

    assert [message["ts"] for message in first["messages"]] == [stamps[3], stamps[2]]
    assert [message["ts"] for message in rest["messages"]] == [stamps[1]]
    assert rest["has_more"] is False
    assert len(client.slack_find(oldest=stamps[0], inclusive="true")["messages"]) == 4


def test_slack_says_no_with_status_200(sim: Simulator, client: Client) -> None:
    assert client.slack(text="").json() == {"ok": False, "error": "invalid_arguments"}
    assert client.slack(channel="").status_code == 200
    assert sim.messages.accepted == []


# -- webhooks


def test_a_receiver_takes_a_token_once(sim: Simulator, client: Client) -> None:
    first, again = client.webhook().json(), client.webhook().json()
    (taken,) = sim.messages.accepted

    assert first == again == {"id": taken.id}
    assert taken.address == sim.url("webhook") + "/hooks/ada"
    assert len(taken.repeats) == 1


def test_a_gateway_finds_the_recipient_in_the_body(sim: Simulator, client: Client) -> None:
    body = {"to": "+49 30 1234", "text": "Hello"}
    client.post("webhook", "/hooks/sms", body, **{"idempotency-key": "tok-1"})

    assert [taken.token for taken in sim.messages.to("+49 30 1234")] == ["tok-1"]


def test_a_receiver_says_what_it_knows_of_a_token(sim: Simulator, client: Client) -> None:
    received = client.webhook().json()["id"]
    known = client.get("webhook", "/status/tok-1").json()

    assert known == {
        "id": received,
        "to": sim.url("webhook") + "/hooks/ada",
        "at": sim.clock.now().isoformat(),
        "status": "received",
    }
    assert client.get("webhook", "/status/tok-2").status_code == 404


def test_a_receiver_with_a_secret_takes_only_what_is_signed(sim: Simulator, client: Client) -> None:
    sim.messages.webhook_secret = SECRET
    stamp = str(int(sim.clock.now().timestamp()))
    body = b'{"text":"Hello"}'
    told = f"tok-1.{stamp}.".encode() + body
    signed = hmac.new(b"a key of the receiver", told, hashlib.sha256).digest()
    headers = {
        "webhook-id": "tok-1",
        "webhook-timestamp": stamp,
        "webhook-signature": "v1,b2xk v1," + base64.b64encode(signed).decode(),
    }
    url = sim.url("webhook") + "/hooks/ada"

    assert client.webhook().status_code == 401
    assert client.http.post(url, content=b"{}", headers=headers).status_code == 401
    assert client.http.post(url, content=body, headers=headers).status_code == 200
    sim.clock.advance(minutes=6)
    assert client.http.post(url, content=body, headers=headers).status_code == 401
    assert len(sim.messages.accepted) == 1


# -- all of them


@pytest.mark.parametrize("provider", ["postmark", "resend", "slack"])
def test_sending_requires_a_key(sim: Simulator, provider: str) -> None:
    with open_client(sim, "") as stranger:
        answer = getattr(stranger, provider)()

    assert answer.status_code == (200 if provider == "slack" else 401)
    assert sim.messages.accepted == []


def test_the_journal_keeps_no_key(sim: Simulator) -> None:
    with open_client(sim, "a-secret-key") as found:
        found.postmark()
        found.resend()

    assert "a-secret-key" not in str([entry.headers for entry in sim.journal.entries])


def test_a_message_without_a_token_is_known_by_its_text(sim: Simulator, client: Client) -> None:
    for _ in range(2):
        client.postmark(Metadata={})
    client.postmark(Metadata={}, TextBody="Another text")

    assert [len(several) for several in sim.messages.accepted_twice().values()] == [2]


def test_the_control_plane_shows_accepted_messages_without_texts(
    sim: Simulator, client: Client
) -> None:
    for _ in range(2):
        client.postmark(Subject="Secret subject")
    told = client.http.get(f"{sim.origin}/_sim/messages")
    pem = client.http.get(f"{sim.origin}/_sim/certificate").json()["pem"]

    assert [taken["token"] for taken in told.json()["accepted"]] == ["tok-1", "tok-1"]
    assert len(told.json()["accepted_twice"]) == 1
    assert ADA not in told.text
    assert "Secret" not in told.text
    assert pem == sim.smtp.certificate


def test_a_reset_forgets_what_was_taken(sim: Simulator, client: Client) -> None:
    client.resend()
    sim.reset()

    assert sim.messages.accepted == []
    assert client.get("resend", "/emails").json()["data"] == []


def test_the_command_line_prints_every_fault_of_messages() -> None:
    done = CliRunner().invoke(simulator, ["--list-faults"])

    assert [name for name in MESSAGE_SCRIPTS if name not in done.output] == []


def test_a_mail_port_in_use_is_reported() -> None:
    with Simulator() as other:
        taken = CliRunner().invoke(simulator, ["--port", "0", "--smtp-port", str(other.smtp.port)])

    assert "Choose another --smtp-port" in taken.output
