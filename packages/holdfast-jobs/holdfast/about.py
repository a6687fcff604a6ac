"""The fields that identify a job in every event, log line and audit row."""

from __future__ import annotations

from dataclasses import dataclass


# Not frozen, like the events of a job: a frozen object takes three times as long to make.
@dataclass(slots=True)
class About:
    """The job that an event is about. Never changed."""

    job_id: str
    job_type: str
    org_id: str
    project_id: str | None
    request_id: str
    correlation_id: str
