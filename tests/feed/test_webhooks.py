"""Webhooks: every committed change reaches its endpoint once, signed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import FakeClock, Forbidden, Holdfast
from holdfast.outbox.delivery import State
from holdfast.store import Row
from holdfast.webhooks.operator import WebhookNotFound, WebhookSecret
from holdfast.webhooks.pump import pump, pump_once
from holdfast.webhooks.settings import WebhookSettings
from tests.provider.plain_server import plain_server, say
from tests.story import ORG, OTHER_ORG, look, make_holdfast

URL = "http://127.0.0.1:8099/hooks"


@pytest.fixture
def hf(url: str, clock: FakeClock) -> Iterator[Holdfast]:
    made = make_holdfast(url, clock, webhooks=WebhookSettings(allow_private=True))
    made.extensions.enable_named(["webhooks"])
    made.job("mail")(lambda job, payload: None)
    yield made
    made.close()


def operator(hf: Holdfast, org_id: str | None = ORG, role: str = "operator") -> Any:
    return hf.operate(actor="user:ada", role=role, org_id=org_id).webhooks


def add(hf: Holdfast, url: str = URL, org_id: str | None = ORG, **options: Any) -> WebhookSecret:
    role = "operator" if org_id else "admin"
    made: WebhookSecret = operator(hf, org_id, role).add(url, reason="test", **options)
    return made


def stored(hf: Holdfast) -> list[Row]:
    return look(
        hf.store,
        "SELECT org_id, recipient, CAST(content AS text) AS content FROM holdfast.delivery"
        " WHERE channel = 'feed.webhook' ORDER BY created_at, id",
    )


def told(hf: Holdfast) -> list[tuple[str, str]]:
    """The endpoint and the job of each stored delivery."""
    return sorted(
        (row["recipient"], json.loads(row["content"])["data"]["data"]["job_id"])
        for row in stored(hf)
    )


def signature(secret: str, head: dict[str, str], body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{head['webhook-id']}.{head['webhook-timestamp']}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def test_a_change_is_posted_once_with_the_signatures_of_both_secrets_during_a_rotation(
    hf: Holdfast,
) -> None:
    with plain_server(say(200, b"{}"), say(200, b"{}")) as server:
        first = add(hf, f"{server.url}/hooks", events=["job.enqueued"])
        job = hf.enqueue("mail", {"text": "never shown"}, org_id=ORG)
        second = operator(hf).rotate(first.endpoint.id, reason="yearly")
        assert pump(hf) == 1
        hf.worker().run(until_idle=True)
        assert pump(hf) == 0

    (request,) = server.requests
    top, body = request.split(b"\r\n\r\n", 1)
    lines = (line.partition(": ") for line in top.decode().split("\r\n")[1:])
    head = {name.lower(): value for name, _, value in lines}
    document = json.loads(body)
    assert set(document) == {"type", "timestamp", "data"}
    assert (document["type"], document["data"]["job_id"]) == ("job.enqueued", job.id)
    assert b"never shown" not in request
    assert head["webhook-signature"].split(" ") == [
        signature(second.secret, head, body),
        signature(first.secret, head, body),
    ]
    (found,) = hf.operate(actor="user:1", role="admin").deliveries.list(with_ended=True)
    assert found.state is State.SENT


def test_endpoints_get_the_changes_of_their_tenant_that_they_asked_for(hf: Holdfast) -> None:
    own = add(hf).endpoint.id
    other = add(hf, org_id=OTHER_ORG).endpoint.id
    everybody = add(hf, org_id=None, events=["job.enq*"]).endpoint.id
    add(hf, events=["dead_letter.*", "delivery.sent"])
    mine = hf.enqueue("mail", {}, org_id=ORG).id
    foreign = hf.enqueue("mail", {}, org_id=OTHER_ORG).id
    pump(hf)

    assert {one for one in told(hf) if one[1]} == {
        (f"webhook:{own}", mine),
        (f"webhook:{other}", foreign),
        (f"webhook:{everybody}", mine),
        (f"webhook:{everybody}", foreign),
    }


def test_deliveries_of_webhooks_cause_no_further_webhooks(hf: Holdfast) -> None:
    with plain_server(say(200, b"{}")) as server:
        add(hf, f"{server.url}/hooks", events=["job.*", "delivery.*"])
        hf.enqueue("mail", {}, org_id=ORG)
        assert pump(hf) == 1
        hf.worker().run(until_idle=True)
    pump(hf)
    pump(hf)

    names = [json.loads(row["content"])["subject"] for row in stored(hf)]
    assert sorted(names) == ["job.enqueued", "job.started", "job.succeeded"]


def test_a_pass_that_fails_stores_nothing_and_the_next_one_stores_everything(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(hf)
    jobs = [one.id for one in hf.enqueue_many("mail", [{}] * 3, org_id=ORG)]
    steps: list[int] = []
    real = hf.outbox.post_in

    def broken(*args: Any, **options: Any) -> Any:
        steps.append(1)
        real(*args, **options)
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(hf.outbox, "post_in", broken)
        with pytest.raises(ZeroDivisionError):
            pump_once(hf)
    assert steps
    assert stored(hf) == []

    while pump_once(hf, limit=1)[1]:
        pass
    assert [job for _, job in told(hf)] == sorted(jobs)
    pump(hf)
    assert len(stored(hf)) == 3


def test_an_endpoint_gets_nothing_from_before_its_registration_or_from_its_pause(
    hf: Holdfast,
) -> None:
    hf.enqueue("mail", {}, org_id=ORG)
    first = add(hf)
    hf.enqueue("mail", {}, org_id=ORG)
    second = add(hf)
    assert operator(hf).pause(first.endpoint.id, reason="test")
    last = hf.enqueue("mail", {}, org_id=ORG).id
    pump(hf)
    assert [one for one in told(hf) if one[0] == f"webhook:{second.endpoint.id}"] == [
        (f"webhook:{second.endpoint.id}", last)
    ]

    assert operator(hf).resume(first.endpoint.id, reason="test")
    assert not operator(hf).resume(first.endpoint.id, reason="test")
    pump(hf)
    assert not [one for one in told(hf) if one[0] == f"webhook:{first.endpoint.id}"]


def test_a_message_to_a_removed_endpoint_is_not_sent(hf: Holdfast) -> None:
    with plain_server() as server:
        made = add(hf, f"{server.url}/hooks", events=["job.enqueued"])
        hf.enqueue("mail", {}, org_id=ORG)
        pump(hf)
        assert operator(hf).remove(made.endpoint.id, reason="test")
        hf.worker().run(until_idle=True)

    assert server.requests == []
    (found,) = hf.operate(actor="user:1", role="admin").deliveries.list(with_ended=True)
    assert (found.state, found.reason) == (State.FAILED, "endpoint_removed")


def test_a_foreign_endpoint_is_not_found_and_a_member_may_not_register(hf: Holdfast) -> None:
    made = add(hf)
    assert made.secret not in repr(made)
    assert [one.id for one in operator(hf).list()] == [made.endpoint.id]
    assert list(operator(hf, OTHER_ORG).list()) == []
    for verb in ("rotate", "pause", "resume", "remove"):
        for wrong in (made.endpoint.id, "0198c0de-0000-7000-8000-00000000dead", "x"):
            with pytest.raises(WebhookNotFound):
                getattr(operator(hf, OTHER_ORG), verb)(wrong, reason="test")
    with pytest.raises(Forbidden):
        operator(hf, role="member").add(URL, reason="test")
    with pytest.raises(Forbidden):
        operator(hf).add(URL, reason="test", org_id=OTHER_ORG)
