"""Alert delivery: alerts are messages of the outbox, sent by the guarded client."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from holdfast import ConfigError, FakeClock, Holdfast
from holdfast.channel import alert_webhook
from holdfast.config import AlertSettings, ChannelSettings
from holdfast.errors import StoreDown, UpstreamError
from holdfast.event import DeliveryAlert, DeliveryTrouble, JobSettled
from holdfast.outbox.delivery import Delivery, State
from holdfast.store.query import Statement
from holdfast.telemetry import log
from holdfast.telemetry.alert import Alert, alert_as_set, alert_of
from holdfast.telemetry.alert_delivery import ALERT_ORG, AlertDelivery, configured_deliveries
from holdfast.telemetry.alert_sink import AlertSink
from tests.story import ORG, make_holdfast
from tests.telemetry.receiver import receiving, says
from tests.telemetry.test_alert import ABOUT, AT, CANARY, SIX, dead

ROOT = Path(__file__).resolve().parent.parent.parent
ALERTS = Statement(
    "look",
    "many",
    "",
    "SELECT id, address, content FROM holdfast.delivery ORDER BY id",
    frozenset(),
)
SAME_TROUBLE = replace(ABOUT, job_id="job-2")
SECRET = "whsec_" + base64.b64encode(b"sixteen bytes or so").decode()


def one(found: JobSettled | DeliveryAlert | None = None) -> Alert:
    made = alert_of(found or dead(), AT)
    assert made is not None
    return made


@pytest.fixture
def opened() -> Iterator[list[Holdfast]]:
    found: list[Holdfast] = []
    yield found
    for hf in found:
        hf.close()


def delivery_to(
    opened: list[Holdfast],
    url: str,
    db: str = "sqlite:",
    clock: FakeClock | None = None,
    **more: Any,
) -> AlertDelivery:
    hf = make_holdfast(db, clock, alerts=AlertSettings(webhook=url, **more))
    opened.append(hf)
    (delivery,) = configured_deliveries(hf)
    return delivery


def stored(hf: Holdfast) -> list[Delivery]:
    rows = hf.store.read(lambda tx: tx.many(ALERTS))
    return hf.outbox.find([str(row["id"]) for row in rows], org_id=ALERT_ORG)


def signature(secret: bytes, headers: dict[str, str], body: bytes) -> str:
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


def test_an_alert_is_posted_once_signed_and_marked_as_sent(
    opened: list[Holdfast], url: str
) -> None:
    with receiving() as receiver:
        deliver = delivery_to(opened, receiver.url, url, webhook_secret=SECRET)
        deliver(one())

    ((headers, body),) = receiver.got
    assert headers["webhook-signature"] == signature(b"sixteen bytes or so", headers, body)
    assert headers["webhook-timestamp"] == str(int(FakeClock().now().timestamp()))
    assert headers["content-type"] == "application/json"
    document = json.loads(body)
    assert document["type"] == "holdfast.alert.dead_letter"
    assert document["timestamp"] == "2026-01-05T09:00:00.000Z"
    assert document["data"]["subject"].items() >= SIX.items()
    (found,) = stored(opened[0])
    assert (found.state, found.channel, found.recipient) == (
        State.SENT,
        "alerts.webhook",
        "operator",
    )


def test_a_plain_secret_signs_as_it_is_and_without_one_nothing_is_signed(
    opened: list[Holdfast],
) -> None:
    with receiving() as receiver:
        delivery_to(opened, receiver.url, webhook_secret="sixteen plain characters")(one())
        delivery_to(opened, receiver.url)(one())

    (headers, body), (unsigned, _) = receiver.got
    assert headers["webhook-signature"] == signature(b"sixteen plain characters", headers, body)
    assert "webhook-signature" not in unsigned


def test_the_address_of_the_webhook_is_not_stored(opened: list[Holdfast], url: str) -> None:
    with receiving() as receiver:
        delivery_to(opened, receiver.url, url)(one())

    rows = opened[0].store.read(lambda tx: tx.many(ALERTS))
    assert [row["address"] for row in rows] == ["operator"]
    assert "team=7" not in str(rows)


def test_an_alert_that_two_processes_raise_in_a_quiet_period_is_sent_once(
    opened: list[Holdfast], url: str
) -> None:
    with receiving() as receiver:
        first = delivery_to(opened, receiver.url, url)
        second = delivery_to(opened, receiver.url, url)
        first(one())
        second(one(dead(about=SAME_TROUBLE)))

    assert len(receiver.got) == 1


def test_what_the_receiver_does_not_accept_stays_in_the_outbox_and_is_sent_again(
    opened: list[Holdfast], url: str, clock: FakeClock
) -> None:
    def second_time(handler: BaseHTTPRequestHandler, number: int) -> None:
        says(503 if number < 2 else 200)(handler, number)

    with receiving(second_time) as receiver:
        deliver = delivery_to(opened, receiver.url, url, clock)
        with pytest.raises(UpstreamError) as failed:
            deliver(one())
        clock.advance(seconds=7_200)
        opened[0].outbox.reconcile()

    assert failed.value.context["state"] == "pending"
    assert len(receiver.got) == 2
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
    assert [found.state for found in stored(opened[0])] == [State.SENT]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(opened: list[Holdfast], status: int) -> None:
    with (
        receiving() as elsewhere,
        receiving(says(status, location=elsewhere.url)) as receiver,
        pytest.raises(UpstreamError),
    ):
        delivery_to(opened, receiver.url)(one())

    assert len(receiver.got) == 1
    assert elsewhere.got == []


def hang(handler: BaseHTTPRequestHandler, number: int) -> None:
    handler.connection.settimeout(20)
    handler.connection.recv(1)


def drip(handler: BaseHTTPRequestHandler, number: int) -> None:
    """A byte now and then, each within the timeout, without an end."""
    for _ in range(200):
        handler.wfile.write(b"H")
        handler.wfile.flush()
        time.sleep(0.05)


@pytest.mark.parametrize("answer", [hang, drip])
def test_a_receiver_that_never_ends_its_answer_is_left(
    opened: list[Holdfast], monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    monkeypatch.setattr(alert_webhook, "TIMEOUT_SECONDS", 0.3)
    with receiving(answer) as receiver:
        began = time.monotonic()
        with pytest.raises(UpstreamError):
            delivery_to(opened, receiver.url)(one())
        took = time.monotonic() - began

    assert len(receiver.got) == 1
    assert took < 3


@pytest.mark.parametrize("more", [{}, {"allow_private": True}])
def test_https_needs_a_certificate_that_is_trusted_and_a_public_address(
    opened: list[Holdfast], more: dict[str, Any]
) -> None:
    with receiving(tls=True) as receiver, pytest.raises(UpstreamError) as failed:
        delivery_to(opened, receiver.url, **more)(one())

    assert receiver.got == []
    assert failed.value.context["state"] == "pending"


def test_a_database_that_is_down_does_not_keep_an_alert_back(
    opened: list[Holdfast], monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: Any, **__: Any) -> None:
        raise StoreDown("The database does not answer.")

    with receiving() as receiver:
        deliver = delivery_to(opened, receiver.url)
        with monkeypatch.context() as patch:
            patch.setattr(opened[0].store, "write", down)
            deliver(one())

    assert len(receiver.alerts) == 1


def test_the_alert_channel_does_not_report_its_own_failures(opened: list[Holdfast]) -> None:
    with receiving() as receiver:
        deliver = delivery_to(opened, receiver.url)
        deliver(one(DeliveryAlert("alerts.webhook", DeliveryTrouble.CHANNEL_REFUSED)))
        deliver(one(DeliveryAlert("mail", DeliveryTrouble.CHANNEL_REFUSED)))

    assert [found["subject"]["channel"] for found in receiver.alerts] == ["mail"]


def test_alerts_go_to_a_configured_channel(opened: list[Holdfast], tmp_path: Path) -> None:
    mailbox = ChannelSettings(kind="mailbox", folder=str(tmp_path), sender="hf@example.com")
    hf = make_holdfast(
        "sqlite:",
        channels={"ops": mailbox},
        alerts=AlertSettings(channel="ops", address="oncall@example.com"),
    )
    opened.append(hf)
    (deliver,) = configured_deliveries(hf)
    deliver(one())

    (mail,) = (path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "oncall@example.com" in mail
    assert "A mail.send job was dead-lettered with GONE" in mail


def test_a_channel_that_is_not_configured_is_refused(opened: list[Holdfast]) -> None:
    hf = make_holdfast("sqlite:", alerts=AlertSettings(channel="ops"))
    opened.append(hf)

    with pytest.raises(ConfigError, match=r"\[channels\.ops\]"):
        alert_as_set(hf)


def test_an_address_needs_its_channel() -> None:
    with pytest.raises(ConfigError, match="address needs channel"):
        AlertSettings(address="a@example.com")


def test_a_failed_delivery_is_a_line_without_the_address(opened: list[Holdfast]) -> None:
    stream = io.StringIO()
    log.configure_logging("warning", stream)
    try:
        with receiving(says(403)) as receiver:
            outlet = AlertSink(delivery_to(opened, receiver.url))
            outlet(one())
            outlet.close()
    finally:
        log.uninstall()

    line = next(
        line
        for line in map(json.loads, stream.getvalue().splitlines())
        if line["event"] == "alert.undelivered"
    )
    assert (line["kind"], line["state"]) == ("dead_letter", "pending")
    assert outlet.failed == 1
    assert "team=7" not in stream.getvalue()
    assert "127.0.0.1" not in stream.getvalue()


@pytest.mark.req("D-04")
@pytest.mark.req("E-17")
def test_a_worker_continues_while_its_webhook_hangs(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_webhook, "TIMEOUT_SECONDS", 2.0)
    with receiving(hang) as receiver:
        hf = make_holdfast(url, alerts=AlertSettings(webhook=receiver.url))
        alerts = alert_as_set(hf)
        hf.job("bad")(lambda job, payload: 1 / 0)
        hf.job("good")(lambda job, payload: None)
        hf.enqueue("bad", {}, org_id=ORG)
        hf.enqueue_many("good", [{}] * 50, org_id=ORG)

        began = time.monotonic()
        counts = hf.worker(concurrency=4).run(until_idle=True)
        took = time.monotonic() - began
        receiver.wait()
        for target in alerts.targets:
            if isinstance(target, AlertSink):
                target.drain = 30
        alerts.close()
        hf.close()

    assert counts.outcomes == {"completed": 50, "dead": 1}
    assert took < 20


@pytest.mark.req("D-04")
def test_a_worker_process_delivers_before_it_ends(url: str, tmp_path: Path) -> None:
    source = (
        "from holdfast import Holdfast\n"
        "hf = Holdfast()\n"
        "@hf.job('mail.send', max_attempts=1)\n"
        "def send(job, payload):\n"
        f"    raise ValueError('{CANARY}' + payload['text'])\n"
    )
    (tmp_path / "alerting_app.py").write_text(source)
    with receiving() as receiver:
        with Holdfast(url) as hf:
            hf.job("mail.send")(lambda job, payload: None)
            jobs = hf.enqueue_many("mail.send", [{"text": CANARY}] * 20, org_id=ORG)
        env = {
            "HOLDFAST_DB": url,
            "HOLDFAST_ALERTS_WEBHOOK": receiver.url,
            "HOLDFAST_ALERTS_WEBHOOK_SECRET": SECRET,
            "HOLDFAST_ALERTS_MIN_SEVERITY": "error",
            "PYTHONPATH": f"{tmp_path}:{ROOT}",
        }
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "--app", "alerting_app", "worker", "--until-idle"],
            env={**os.environ, **env}, cwd=tmp_path, text=True, capture_output=True, timeout=60,
        )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert [found["count"] for found in receiver.alerts] == [1, 19]
    assert {found["subject"]["job_id"] for found in receiver.alerts} < {job.id for job in jobs}
    assert CANARY.encode() not in b"".join(body for _, body in receiver.got)
    assert CANARY not in done.stderr
    assert SECRET not in done.stderr
    logged = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["count"] for line in logged if line["event"] == "alert"] == [1, 19]
