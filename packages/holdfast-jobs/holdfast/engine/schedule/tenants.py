"""The option ``tenants`` of a schedule. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from holdfast.ids import MalformedId, read_uuid

Listing = Callable[[], Iterable[Any]]
"""Returns the tenants of a schedule at a tick."""


def read_tenants(given: Iterable[Any]) -> list[str]:
    """Ids of tenants, each once. Raises ValueError."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ValueError("must be a list of tenants")
    try:
        return list(dict.fromkeys(read_uuid(one) for one in given))
    except MalformedId as exc:
        raise ValueError(f"each tenant {exc}") from None


def read_option(given: object, errors: dict[str, str]) -> tuple[str | None, Listing | None]:
    """The option ``tenants``: "all", a list of tenants, or a function that returns one."""
    if given is None or given == "all":
        return (None if given is None else "all"), None
    if callable(given):
        return "declared", given
    try:
        found = read_tenants(given)  # type: ignore[arg-type]
    except ValueError as exc:
        errors["tenants"] = f'must be "all", a list or a function that returns one; {exc}'
        return None, None
    return "declared", lambda: found
