"""The nouns of the operator API, found by name.

A noun is a class that is constructed with an :class:`OperatorContext` and whose public methods are
its actions. Extensions add theirs with ``Extension.nouns``. An extension's noun with the name of a
core noun is a subclass of it, and adds methods. A noun is imported at first use.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from holdfast.config.extensions import installed
from holdfast.errors import ConfigError
from holdfast.extension import Extension

_PLACES: dict[str, str] = {
    "api_keys": "holdfast.operate.api_keys:ApiKeys",
    "audit": "holdfast.operate.audit:AuditTrail",
    "bulk_actions": "holdfast.operate.bulk_actions:BulkActions",
    "changes": "holdfast.operate.changes:OperatorChanges",
    "dead_letters": "holdfast.operate.dead_letters:DeadLetters",
    "deliveries": "holdfast.operate.deliveries:Deliveries",
    "jobs": "holdfast.operate.jobs:Jobs",
    "limit_keys": "holdfast.operate.limit_keys:LimitKeys",
    "overview": "holdfast.operate.overview:Overview",
    "queues": "holdfast.operate.queues:OperatorQueues",
    "runs": "holdfast.operate.runs:OperatorRuns",
    "schedules": "holdfast.operate.schedules:Schedules",
    "tenants": "holdfast.operate.tenants:Tenants",
    "workers": "holdfast.operate.workers:Workers",
}


def names(extensions: Iterable[Extension] | None = None) -> list[str]:
    """Return the nouns of the core and of *extensions*, by default the installed ones."""
    return sorted(_places(extensions))


def find(name: str, extensions: Iterable[Extension] | None = None) -> type[Any] | None:
    """Import and return the class of a noun; None if there is no such noun."""
    place = _places(extensions).get(name)
    if place is None:
        return None
    found = _load(place)
    if name in _PLACES and not issubclass(found, _load(_PLACES[name])):
        raise ConfigError(f"{place} must be a subclass of {_PLACES[name]} to extend {name!r}.")
    return found


def _load(place: str) -> type[Any]:
    module, _, attribute = place.partition(":")
    found: type[Any] = getattr(importlib.import_module(module), attribute)
    return found


def _places(extensions: Iterable[Extension] | None) -> dict[str, str]:
    known = installed().values() if extensions is None else extensions
    added = {name: place for one in known for name, place in one.nouns.items()}
    return {**_PLACES, **added}
