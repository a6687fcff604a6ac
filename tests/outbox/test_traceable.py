"""The actor, the request and the project of a message."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import FakeClock, Holdfast
from holdfast.cli import cli
from holdfast.document import decode
from holdfast.outbox.failure import InvalidDelivery
from holdfast.store import Row
from holdfast.telemetry import log
from tests.outbox.scripted import letter, outbox_with, state_of
from tests.story import ORG, PROJECT, look

GIVEN: dict[str, Any] = {
    "request_id": "req-7",
    "correlation_id": "corr-7",
    "actor": "user:42",
    "project_id": PROJECT,
}


def audited(hf: Holdfast, name: str = "delivery.%") -> list[Row]:
    return look(
        hf.store,
        "SELECT name, project_id, actor_type, actor_id, request_id, correlation_id, attempt,"
        " CAST(detail AS text) AS detail FROM holdfast.job_event WHERE name LIKE :name ORDER BY id",
        name=name,
    )


@pytest.mark.req("A-09", "E-16")
@pytest.mark.parametrize("word", ["accepted", "refused", "lost_answer"])
def test_what_is_given_to_post_is_on_the_delivery_its_audit_and_its_log(
    hf: Holdfast, clock: FakeClock, word: str
) -> None:
    channel = outbox_with(hf)
    channel.script(word)
    written = io.StringIO()
    log.configure_logging("info", written)
    hf.events.subscribe(log.log_event)
    try:
        (one,) = hf.outbox.post([letter()], org_id=ORG, **GIVEN)
        hf.worker().run_once()
        clock.advance(minutes=5)
        hf.worker().run_once()
    finally:
        log.uninstall()

    (job,) = look(hf.store, "SELECT id FROM holdfast.job")
    stands = state_of(hf, one)
    assert (stands.request_id, stands.correlation_id) == ("req-7", "corr-7")
    assert (stands.project_id, stands.actor) == (PROJECT, "user:42")
    assert stands.deliver_job_id == str(job["id"])
    intended, *events = audited(hf)
    assert intended["name"] == "delivery.intended"
    assert (str(intended["project_id"]), intended["request_id"]) == (PROJECT, "req-7")
    assert (intended["actor_type"], intended["actor_id"]) == ("user", "42")
    assert len(events) == 1
    for row in events:
        assert (row["request_id"], row["correlation_id"]) == ("req-7", "corr-7")
        assert str(row["project_id"]) == PROJECT
        detail = decode(row["detail"])
        assert (detail["actor"], detail["job_id"]) == ("user:42", str(job["id"]))
        # A user requested it, and the system sent it.
        assert row["actor_type"] == "system"
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    told = [line for line in lines if line["event"].startswith("delivery.")]
    assert {"delivery.intended"} < {line["event"] for line in told}
    for line in told:
        assert (line["request_id"], line["correlation_id"]) == ("req-7", "corr-7"), line
        assert (line["project_id"], line["job_id"]) == (PROJECT, str(job["id"])), line
        assert line["actor"] == "user:42", line


@pytest.mark.req("A-09")
def test_what_an_operator_decides_names_the_same_request(hf: Holdfast) -> None:
    channel = outbox_with(hf)
    channel.script("refused")
    (one,) = hf.outbox.post([letter()], org_id=ORG, **GIVEN)
    hf.worker().run_once()

    hf.operate(actor="user:op", role="operator").deliveries.confirm(one.id, reason="it is there")

    (row,) = audited(hf, "delivery.confirmed")
    assert (row["request_id"], row["correlation_id"]) == ("req-7", "corr-7")
    assert (str(row["project_id"]), row["actor_id"]) == (PROJECT, "op")


def test_a_job_that_intends_lends_its_own(hf: Holdfast) -> None:
    outbox_with(hf)

    @hf.job("text.tell")
    def tell(job: Any, payload: Any) -> None:
        (made,) = hf.outbox.intend([letter()])
        hf.outbox.deliver([made.id], org_id=job.org_id)

    job = hf.enqueue("text.tell", {}, org_id=ORG, **GIVEN)
    hf.worker().run_once()

    (stands,) = hf.outbox.list_of_job(job)
    assert (stands.request_id, stands.correlation_id) == ("req-7", "corr-7")
    assert (stands.project_id, stands.actor, stands.job_id) == (PROJECT, "user:42", job.id)
    assert {str(row["project_id"]) for row in audited(hf)} == {PROJECT}


def test_a_post_without_a_request_shares_that_of_its_job(hf: Holdfast) -> None:
    outbox_with(hf)
    (one,) = hf.outbox.post([letter()], org_id=ORG)

    (job,) = look(hf.store, "SELECT id, request_id, correlation_id FROM holdfast.job")
    stands = state_of(hf, one)
    assert stands.request_id == job["request_id"] == str(job["id"])
    assert stands.correlation_id == job["correlation_id"]
    assert stands.actor == "system:holdfast"


def test_a_job_that_posts_lends_its_own_except_for_what_is_stated(hf: Holdfast) -> None:
    outbox_with(hf)

    @hf.job("text.tell")
    def tell(job: Any, payload: Any) -> None:
        hf.outbox.post([letter()], org_id=job.org_id, correlation_id="corr-8")

    job = hf.enqueue("text.tell", {}, org_id=ORG, **GIVEN)
    hf.worker().run_once()

    (stands,) = hf.outbox.list_of_job(job)
    assert (stands.request_id, stands.correlation_id) == ("req-7", "corr-8")
    assert (stands.project_id, stands.actor, stands.job_id) == (PROJECT, "user:42", job.id)


def test_what_is_given_to_notify_is_on_the_delivery_and_its_audit(hf: Holdfast) -> None:
    outbox_with(hf)
    hf.outbox.template("welcome", subject="Hello", text="Hello {{ name }}")

    one = hf.outbox.notify(
        "welcome", "user:9", {"name": "Ada"}, channel="post", org_id=ORG, **GIVEN
    )
    assert one is not None
    again = asyncio.run(
        hf.outbox.anotify("welcome", "user:9", {"name": "Bea"}, channel="post", org_id=ORG, **GIVEN)
    )
    assert again is not None
    hf.worker().run_once()

    for made in (one, again):
        stands = state_of(hf, made)
        assert (stands.request_id, stands.correlation_id) == ("req-7", "corr-7")
        assert (stands.project_id, stands.actor) == (PROJECT, "user:42")
    events = audited(hf)
    assert [row["name"] for row in events].count("delivery.sent") == 2
    assert {(row["request_id"], row["correlation_id"]) for row in events} == {("req-7", "corr-7")}
    assert {str(row["project_id"]) for row in events} == {PROJECT}


def test_what_is_given_to_intend_is_on_the_delivery(hf: Holdfast) -> None:
    outbox_with(hf)
    (one,) = hf.outbox.intend([letter()], org_id=ORG, **GIVEN)
    stands = state_of(hf, one)
    assert (stands.request_id, stands.correlation_id) == ("req-7", "corr-7")
    assert (stands.project_id, stands.actor) == (PROJECT, "user:42")
    with pytest.raises(InvalidDelivery, match="request_id"):
        hf.outbox.intend([letter("second")], org_id=ORG, request_id="a\nb")
    misspelt: dict[str, Any] = {"requestid": "a"}
    with pytest.raises(InvalidDelivery, match="requestid"):
        hf.outbox.intend([letter("second")], org_id=ORG, **misspelt)


def test_the_command_line_shows_who_asked_for_a_delivery(hf: Holdfast, url: str) -> None:
    outbox_with(hf)
    (one,) = hf.outbox.post([letter()], org_id=ORG, **GIVEN)

    def called(*arguments: str) -> Any:
        made = CliRunner().invoke(cli, ["--db", url, "deliveries", *arguments, "--json"])
        assert made.exit_code == 0, made.output
        return json.loads(made.output)

    shown = called("show", one.id)["delivery"]
    (listed,) = called("list")
    for row in (shown, listed):
        assert (row["request_id"], row["correlation_id"]) == ("req-7", "corr-7")
        assert (row["project_id"], row["actor_type"], row["actor_id"]) == (PROJECT, "user", "42")
        assert row["deliver_job_id"]
