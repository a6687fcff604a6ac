"""Validation of operator input: every bad field is reported. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from holdfast.arguments import instant
from holdfast.clock import ms, read_instant, write_instant
from holdfast.ids import read_named_id, read_uuid
from holdfast.operate.dead_letter import CHECKLISTS, DeadLetterKind, DeadLetterState
from holdfast.operate.refusal import InvalidAction
from holdfast.secret import find_secret

LONGEST_REASON = 1_000
LONGEST_NOTE = 4_000
LONGEST_REFERENCE = 500

# Line breaks and tabs are allowed; other control characters could move a cursor or cannot be
# stored.
_UNFIT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def read_text(name: str, value: object, longest: int, errors: dict[str, str]) -> str:
    """Return text that may be stored and displayed; problems are added to *errors*."""
    text = value.strip() if isinstance(value, str) else ""
    if not 1 <= len(text) <= longest:
        errors[name] = f"must be text of 1 to {longest} characters"
    elif _UNFIT.search(text):
        errors[name] = "must not contain control characters or lone surrogates"
    elif find_secret({name: text}):
        errors[name] = (
            "contains something that looks like a secret; refer to where it is stored instead"
        )
    return text


def read_texts(**given: tuple[object, int]) -> list[str]:
    """Return several texts, each with its maximum length; raises InvalidAction with all errors."""
    errors: dict[str, str] = {}
    texts = [read_text(name, value, longest, errors) for name, (value, longest) in given.items()]
    if errors:
        raise InvalidAction(errors)
    return texts


def read_kind(value: str) -> DeadLetterKind:
    """Return the kind of a triage."""
    if value not in tuple(DeadLetterKind):
        raise InvalidAction({"kind": f"must be one of {', '.join(DeadLetterKind)}"})
    return DeadLetterKind(value)


def read_checklist(kind: DeadLetterKind, done: Collection[str]) -> dict[str, bool]:
    """Return the completed checklist of *kind*; raises InvalidAction if a point is missing."""
    wanted = CHECKLISTS[kind]
    missing = [f"{name} ({says})" for name, says in wanted.items() if name not in done]
    if missing:
        listed = ", ".join(missing)
        raise InvalidAction({"done": f"not confirmed for kind {kind}: {listed}"})
    if set(done) - set(wanted):
        raise InvalidAction({"done": f"kind {kind} has only these checks: {', '.join(wanted)}"})
    return dict.fromkeys(wanted, True)


def place_of(row: Mapping[str, Any]) -> str:
    """Return the cursor of the next page."""
    at = row["created_at"]
    return f"{at if isinstance(at, str) else at.isoformat()}/{row['job_id']}"


def read_place(before: str | None) -> dict[str, str | None]:
    """Parse a cursor of :func:`place_of`; raises InvalidAction for anything else."""
    if before is None:
        return {"before_at": None, "before_id": None}
    at, _, job_id = before.partition("/")
    try:
        read_instant(at)
        return {"before_at": at, "before_id": read_uuid(job_id)}
    except ValueError:
        raise InvalidAction(
            {"before": ("must be the value of next from the previous page")}
        ) from None


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters; a field that is None matches every one."""

    org_id: str | None = None
    job_type: str | None = None
    error_class: str | None = None
    queue: str | None = None
    stage: str | None = None
    kind: DeadLetterKind | str | None = None
    state: DeadLetterState | str | None = None
    older_than: timedelta | None = None
    # Those whose last failure is not earlier.
    since: datetime | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The conditions that are set."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        return ", ".join(f"{name}={str(value)[:100]!r}" for name, value in self.given.items())

    def check(self) -> DeadLetterFilter:
        """Return the filter in stored form; raises InvalidAction with every bad field."""
        errors: dict[str, str] = {}
        for name in ("job_type", "error_class", "queue", "stage"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not 0 < len(value) <= 200):
                errors[name] = "must be text of 1 to 200 characters"
            elif value is not None and _UNFIT.search(value):
                errors[name] = "must not contain control characters or lone surrogates"
        if self.kind is not None and self.kind not in tuple(DeadLetterKind):
            errors["kind"] = f"must be one of {', '.join(DeadLetterKind)}"
        if self.state is not None and self.state not in tuple(DeadLetterState):
            errors["state"] = f"must be one of {', '.join(DeadLetterState)}"
        if self.older_than is not None and not (
            isinstance(self.older_than, timedelta)
            and timedelta(0) < self.older_than <= _LONGEST_AGE
        ):
            errors["older_than"] = "must be a positive timedelta of at most 10 years"
        if self.since is not None:
            try:
                instant(self.since)
            except ValueError as exc:
                errors["since"] = str(exc)
        org_id = None
        if self.org_id is not None:
            try:
                org_id = read_named_id(self.org_id)
            except ValueError as exc:
                errors["org_id"] = str(exc)
        if errors:
            raise InvalidAction(errors)
        return DeadLetterFilter(**{**self.given, "org_id": org_id})

    def params(self, org_id: str | None) -> dict[str, Any]:
        """Return the parameters of a filtering statement; *org_id* restricts it to one tenant."""
        return {
            "org_id": org_id,
            "job_type": self.job_type,
            "error_class": self.error_class,
            "queue": self.queue,
            "stage": self.stage,
            "kind": None if self.kind is None else DeadLetterKind(self.kind).value,
            "state": None if self.state is None else DeadLetterState(self.state).value,
            "older_ms": None if self.older_than is None else ms(self.older_than),
            "since": None if self.since is None else write_instant(self.since),
        }


_LONGEST_AGE = timedelta(days=3660)
