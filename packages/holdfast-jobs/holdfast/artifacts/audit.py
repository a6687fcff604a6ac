"""Audit events of artifacts, in the transaction of the change; one statement for any number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.actor import Actor
from holdfast.document import encode
from holdfast.store import Row, Statements, Tx

SQL = Statements("holdfast.artifacts", "artifact.sql")


def record_artifacts(
    tx: Tx, actor: Actor, name: str, artifacts: Sequence[tuple[Row, Mapping[str, Any]]]
) -> None:
    """Record an event for each of these artifacts; each is a row with its tenant and id."""
    if not artifacts:
        return
    events = [
        {
            "org_id": str(row["org_id"]),
            "id": str(row["id"]),
            "detail": encode({"artifact_id": str(row["id"]), **detail}),
        }
        for row, detail in artifacts
    ]
    tx.affected(
        SQL.insert_artifact_events,
        events=events,
        name=name,
        actor_type=actor.type,
        actor_id=actor.id,
    )
