"""Keys that are made from the payload of a job: ``limit_key="customer:{customer}"``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import Formatter
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError, InvalidJob

if TYPE_CHECKING:
    from holdfast.engine.handler import Handler
    from holdfast.engine.request import JobRequest

    Items = Sequence[tuple[Mapping[str, Any], JobRequest]]


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """A key in which fields of the payload replace names in braces."""

    option: str
    # Plain text, and the name of the field that follows it, if any.
    parts: tuple[tuple[str, str | None], ...]

    def key_of(self, payload: Mapping[str, Any]) -> str:
        """The key of a job. Raises InvalidJob if the payload lacks a field."""
        text = ""
        for plain, name in self.parts:
            text += plain
            if name is None:
                continue
            value = payload.get(name) if isinstance(payload, Mapping) else None
            if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
                says = f"needs the field {name!r} of the payload, as text or a whole number"
                raise InvalidJob({self.option: says})
            text += str(value)
        return text


def read_template(job_type: str, option: str, given: object) -> KeyTemplate | None:
    """Read the template of a declaration. Raises ConfigError."""
    if given is None:
        return None
    try:
        if not isinstance(given, str):
            raise TypeError
        parts = list(Formatter().parse(given))
        is_plain = all(not spec and not change for _, _, spec, change in parts)
        names = [name for _, name, _, _ in parts if name is not None]
        if not parts or not is_plain or not all(name.isidentifier() for name in names):
            raise ValueError
    except (TypeError, ValueError):
        raise ConfigError(
            f"Job type {job_type!r}: {option}= must be text such as 'customer:{{customer}}', with"
            " names of fields of the payload in braces."
        ) from None
    return KeyTemplate(option, tuple((plain, name) for plain, name, _, _ in parts))


def with_keys(handler: Handler, items: Items) -> Items:
    """The requests with the keys that their job type declares; a key of the caller's own wins."""
    if handler.limit_key is None and handler.unique_key is None:
        return items
    found = []
    for payload, request in items:
        if handler.limit_key is not None and request.limit_key is None:
            request = replace(request, limit_key=handler.limit_key.key_of(payload))
        is_keyed = (request.unique_key or request.idempotency_key) is not None
        if handler.unique_key is not None and not is_keyed:
            request = replace(request, unique_key=handler.unique_key.key_of(payload))
        found.append((payload, request))
    return found
