"""Hand-written deliveries, inserted without the outbox, for tests that only read them."""

from __future__ import annotations

import itertools
from typing import Any

from holdfast import Actor, Holdfast
from holdfast.clock import write_instant
from holdfast.engine import audit
from holdfast.ids import IdSource
from tests.engine.planting import plant
from tests.story import ORG, by_hand, look

_numbers = itertools.count(1)

ENDED = ("sent", "dropped", "failed")


def plant_delivery(
    hf: Holdfast,
    state: str = "pending",
    *,
    org_id: str = ORG,
    recipient: str | None = None,
    subject: str = "change-1",
    version: int = 1,
    channel: str = "mail",
    job_id: str | None = None,
    tries: tuple[tuple[str, str | None], ...] = (),
    is_required: bool = True,
) -> str:
    """A delivery in *state* with *tries*, each a reason and an outcome, as the outbox stores it."""
    number = next(_numbers)
    delivery_id = IdSource(hf.clock).new()
    by_hand(
        hf.store,
        "INSERT INTO holdfast.delivery (org_id, id, subject, recipient, version, channel, address,"
        " token, content, content_hash, is_required, job_id, request_id, correlation_id,"
        " created_at, updated_at) VALUES (:org_id, :id, :subject, :recipient, :version, :channel,"
        " 'canary@example.com', :token, '{}', 'h1', :is_required, CAST(:job_id AS {uuid}), 'r',"
        " 'c', {now}, {now}) RETURNING id",
        org_id=org_id,
        id=delivery_id,
        subject=subject,
        recipient=recipient or f"somebody-{number}",
        version=version,
        channel=channel,
        token=f"hf_{number:040x}",
        is_required=int(is_required),
        job_id=job_id,
    )
    for place, (reason, outcome) in enumerate(tries, start=1):
        plant_try(hf, delivery_id, place, reason, outcome, org_id=org_id)
    if state == "sent":
        change(hf, delivery_id, "state = 'sent', notified_at = {now}, notification_id = 'm-1',"
               " ended_at = {now}")  # fmt: skip
    elif state != "pending":
        ended = ", ended_at = {now}" if state in ENDED else ""
        change(hf, delivery_id, f"state = '{state}', reason = 'unknown'{ended}")
    if state != "pending":
        tell(hf, delivery_id, state, org_id=org_id)
    return delivery_id


def tell(hf: Holdfast, delivery_id: str, name: str, *, org_id: str = ORG) -> None:
    """The event of a change of a delivery."""
    actor = Actor.read("user:op")
    hf.store.write(
        lambda tx: audit.record_action(
            tx,
            actor,
            subject=f"delivery:{delivery_id}",
            name=f"delivery.{name}",
            detail={"planted": True},
            org_id=org_id,
        )
    )


def plant_try(
    hf: Holdfast,
    delivery_id: str,
    number: int,
    reason: str,
    outcome: str | None,
    *,
    org_id: str = ORG,
    provider_id: str | None = None,
    body_hash: str = "h1",
) -> None:
    """An attempt of a delivery; an accepted one has an id of its channel."""
    if outcome == "accepted" and provider_id is None:
        provider_id = "m-1"
    by_hand(
        hf.store,
        "INSERT INTO holdfast.delivery_attempt (org_id, delivery_id, number, reason, fence,"
        " worker_id, body_hash, began_at, outcome, code, provider_id, ended_at)"
        " VALUES (:org_id, :id, :number, :reason, 1, 'w1', :body_hash, {now},"
        " CAST(:outcome AS text), NULL, CAST(:provider_id AS text),"
        " CASE WHEN CAST(:outcome AS text) IS NULL THEN NULL ELSE {now} END)"
        " RETURNING delivery_id",
        org_id=org_id,
        id=delivery_id,
        number=number,
        reason=reason,
        outcome=outcome,
        provider_id=provider_id,
        body_hash=body_hash,
    )
    change(hf, delivery_id, f"attempts = {number}")


def plant_evidence(
    hf: Holdfast,
    delivery_id: str,
    source: str,
    verdict: str,
    *,
    after: int = 1,
    provider_id: str | None = None,
    org_id: str = ORG,
) -> None:
    """An event about a delivery."""
    by_hand(
        hf.store,
        "INSERT INTO holdfast.delivery_evidence (org_id, delivery_id, source, verdict, provider_id,"
        " after_attempt, at) VALUES (:org_id, :id, :source, :verdict,"
        " CAST(:provider_id AS text), :after, {now}) RETURNING id",
        org_id=org_id,
        id=delivery_id,
        source=source,
        verdict=verdict,
        provider_id=provider_id,
        after=after,
    )


def change(hf: Holdfast, delivery_id: str, changes: str, **params: Any) -> None:
    """Change a delivery within the constraints."""
    by_hand(
        hf.store,
        f"UPDATE holdfast.delivery SET {changes}, updated_at = {{now}} WHERE id = :id RETURNING id",
        id=delivery_id,
        **params,
    )


def spoil(hf: Holdfast, delivery_id: str, changes: str, **params: Any) -> None:
    """Change a delivery without constraints."""
    if "{now}" in changes or "{later" in changes:
        params["now"] = write_instant(hf.clock.now())
    plant(hf, f"UPDATE holdfast.delivery SET {changes} WHERE id = :id", id=delivery_id, **params)


def states(hf: Holdfast) -> list[str]:
    rows = look(hf.store, "SELECT state FROM holdfast.delivery ORDER BY created_at, id")
    return [row["state"] for row in rows]
