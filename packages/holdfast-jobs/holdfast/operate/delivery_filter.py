"""The filter of deliveries for listings and decisions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from holdfast.clock import write_instant
from holdfast.ids import read_named_id, read_uuid
from holdfast.operate.refusal import InvalidAction
from holdfast.outbox.delivery import State as State

_LONGEST = 500
_TEXTS = ("channel", "reason", "recipient", "subject")


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """Which deliveries; a field that is None matches every one.

    *reason* is why a delivery is held, failed or dropped, such as ``unknown``. A *subject* that
    ends with ``*`` is a prefix. *since* and *until* refer to the creation time of a delivery.
    """

    org_id: str | None = None
    state: State | str | None = None
    channel: str | None = None
    reason: str | None = None
    recipient: str | None = None
    subject: str | None = None
    job_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The conditions that are set."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        """Text for the audit and for errors, without the recipient, which may be an address."""
        return ", ".join(
            name if name == "recipient" else f"{name}={str(value)[:100]!r}"
            for name, value in self.given.items()
        )

    def check(self) -> DeliveryFilter:
        """Return the filter in stored form; raises InvalidAction with every bad field."""
        bad: dict[str, str] = {}
        read: dict[str, Any] = dict(self.given)
        for name in _TEXTS:
            value = read.get(name)
            is_text = isinstance(value, str) and 0 < len(value) <= _LONGEST and value.isprintable()
            if value is not None and not is_text:
                bad[name] = f"must be one line of 1 to {_LONGEST} characters"
        if self.state is not None and self.state not in tuple(State):
            bad["state"] = f"must be one of {', '.join(State)}"
        for name in ("org_id", "job_id"):
            try:
                if name in read:
                    read_one = read_named_id if name == "org_id" else read_uuid
                    read[name] = read_one(read[name])
            except ValueError as exc:
                bad[name] = str(exc)
        for name in ("since", "until"):
            value = read.get(name)
            if value is not None and (not isinstance(value, datetime) or value.tzinfo is None):
                bad[name] = "must be a datetime with a time zone"
        if bad:
            raise InvalidAction(bad)
        return DeliveryFilter(**read)

    def params(self, org_id: str | None) -> dict[str, Any]:
        """Return the parameters of a filtering statement; *org_id* restricts it to one tenant."""
        subject: str | None = self.subject
        prefix: str | None = None
        if subject is not None and subject.endswith("*"):
            prefix = subject[:-1]
            subject = None
        return {
            "org_id": org_id,
            "state": None if self.state is None else State(self.state).value,
            "channel": self.channel,
            "reason": self.reason,
            "recipient": self.recipient,
            "subject": subject,
            "subject_prefix": prefix,
            "job_id": self.job_id,
            "since": None if self.since is None else write_instant(self.since),
            "until": None if self.until is None else write_instant(self.until),
        }
