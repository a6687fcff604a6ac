"""Events of streams, and how an answer is read. Unknown fields of newer servers are ignored."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date, datetime
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

M = TypeVar("M")
N = TypeVar("N")


@dataclass(frozen=True, slots=True)
class Event:
    """One committed change. *position* resumes a stream after it."""

    id: str
    name: str
    subject: str
    job_id: str | None
    job_type: str | None
    queue: str | None
    state: str | None
    attempt: int | None
    org_id: str
    at: datetime
    position: str = ""


@dataclass(frozen=True, slots=True)
class RewriteEvent:
    """A change of one message; *role* says whether the person sent or received it."""

    rewrite_request_id: str
    role: str
    status: str
    has_failed: bool
    completed_at: datetime | None
    sender_reveal_at: datetime | None
    position: str = ""


def read(model: type[M], document: Any) -> M:
    """Read a model from a JSON object. A missing field without a default is None."""
    found = document if isinstance(document, Mapping) else {}
    hints = _HINTS.get(model) or _HINTS.setdefault(model, get_type_hints(model))
    given: dict[str, Any] = {}
    for item in fields(model):  # type: ignore[arg-type]
        if item.name in found:
            given[item.name] = _value(hints[item.name], found[item.name])
        elif item.default is MISSING:
            given[item.name] = None
    return model(**given)


def read_either(first: type[M], second: type[N], document: Any) -> M | N:
    """Read the model whose every field is in the document; otherwise the second one."""
    names = {item.name for item in fields(first)}  # type: ignore[arg-type]
    is_first = isinstance(document, Mapping) and names <= document.keys()
    return read(first, document) if is_first else read(second, document)


# The types of a model's fields, which are read once.
_HINTS: dict[type, dict[str, Any]] = {}


def _value(hint: Any, value: Any) -> Any:
    """A JSON value as the type of its field. What does not fit is left as it is."""
    if value is None:
        return None
    for kind in get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,):
        if kind in (datetime, date) and isinstance(value, str):
            return kind.fromisoformat(value)
        if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
            return read(kind, value)
        if get_origin(kind) is tuple and isinstance(value, list):
            return tuple(_value(get_args(kind)[0], one) for one in value)
    return value
