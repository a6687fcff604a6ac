"""Models that several resources share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Header
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from holdfast.ids import read_named_id
from holdfast.operate import audit

Reason = Annotated[
    str, Field(min_length=1, max_length=1_000, description="Reason recorded in the audit.")
]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern="^[ -~]*$",
        description="Idempotency key: requests of a tenant with the same key are one.",
    ),
]


_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
NamedId = Annotated[
    str,
    Field(
        max_length=68,
        description="A UUID, or a name such as name:acme.",
        # Only documented: the validator below has a clearer error.
        json_schema_extra={"pattern": f"^({_UUID}|name:[A-Za-z0-9][A-Za-z0-9._-]{{0,62}})$"},
    ),
    AfterValidator(read_named_id),
]
"""The id of a tenant or a project."""


class Model(BaseModel):
    """A typed document of an answer."""

    model_config = ConfigDict(from_attributes=True)


class Body(BaseModel):
    """A typed document of a request. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Action(Body):
    """A change, and the reason for it."""

    reason: Reason


class Done(Model):
    """Whether a change had an effect; False if everything was so already."""

    changed: bool


class AuditEvent(Model):
    """One event of the audit."""

    id: int
    org_id: str
    job_id: str
    job_type: str
    name: str
    attempt: int
    actor: str
    request_id: str
    correlation_id: str
    at: datetime
    detail: dict[str, Any] | None

    @classmethod
    def from_item(cls, event: audit.AuditEvent) -> AuditEvent:
        """Render an event of the operator API."""
        detail = None if event.detail is None else dict(event.detail)
        return cls(
            id=event.id,
            org_id=event.org_id,
            job_id=event.job_id,
            job_type=event.job_type,
            name=event.name,
            attempt=event.attempt,
            actor=f"{event.actor.type}:{event.actor.id}",
            request_id=event.request_id,
            correlation_id=event.correlation_id,
            at=event.at,
            detail=detail,
        )
