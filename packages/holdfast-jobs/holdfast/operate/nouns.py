"""The nouns of the operator API, found by name.

A noun is a class that is constructed with an :class:`OperatorContext` and whose public methods are
its verbs. A distribution adds its own with :func:`register`; it is imported at first use.
"""

from __future__ import annotations

import importlib
from typing import Any

_PLACES: dict[str, str] = {
    "artifacts": "holdfast.operate.artifacts:OperatorArtifacts",
    "audit": "holdfast.operate.audit:AuditTrail",
    "batches": "holdfast.operate.batches:Batches",
    "costs": "holdfast.operate.costs:Costs",
    "dead_letters": "holdfast.operate.dead_letters:DeadLetters",
    "deliveries": "holdfast.operate.deliveries:Deliveries",
    "jobs": "holdfast.operate.jobs:Jobs",
    "limit_keys": "holdfast.operate.limit_keys:LimitKeys",
    "queues": "holdfast.operate.queues:OperatorQueues",
    "runs": "holdfast.operate.runs:OperatorRuns",
    "schedules": "holdfast.operate.schedules:Schedules",
    "tenants": "holdfast.operate.tenants:Tenants",
}


def register(name: str, place: str) -> None:
    """Make the class at *place* (``module:Class``) reachable as ``operator.<name>``.

    Registering the same place again changes nothing. Raises ValueError if the name is taken.
    """
    if _PLACES.setdefault(name, place) != place:
        raise ValueError(f"The operator API has a noun {name!r} already: {_PLACES[name]}.")


def names() -> list[str]:
    """Every noun, in order of names."""
    return sorted(_PLACES)


def find(name: str) -> type[Any] | None:
    """The class of a noun, imported now; None if there is no such noun."""
    place = _PLACES.get(name)
    if place is None:
        return None
    module, _, attribute = place.partition(":")
    found: type[Any] = getattr(importlib.import_module(module), attribute)
    return found
