"""Render a template with data. The result is deterministic. Pure.

A missing value is an error. Errors name the place and never the value.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.document import BadDocument, canonical
from holdfast.outbox.delivery import Content
from holdfast.outbox.failure import InvalidDelivery
from holdfast.outbox.template import Parts, Section, Template, Value
from holdfast.redact import harmless, redact

LONGEST_DATA = 64_000
LONGEST_TEXT = 500_000
LONGEST_SUBJECT = 300

# URLs that a link may have: an allowed scheme, and no character that browsers skip.
_ADDRESS = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x1f\x7f]+", re.IGNORECASE)
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_MISSING = object()


def render(template: Template, data: Mapping[str, Any]) -> Content:
    """Render *template* with *data*. Raises InvalidDelivery that names every invalid place."""
    _check(data)
    errors: dict[str, str] = {}
    subject = _Writer(data, errors, is_line=True).write(template.subject)
    text = _Writer(data, errors).write(template.text)
    marked = None
    if template.html is not None:
        marked = _Writer(data, errors, is_html=True).write(template.html)
    if not errors and not 1 <= len(subject.strip()) <= LONGEST_SUBJECT:
        errors["subject"] = f"must become 1 to {LONGEST_SUBJECT} characters"
    if errors:
        raise InvalidDelivery(errors)
    return Content(subject.strip(), text, marked, data)


def _check(data: object) -> None:
    if not isinstance(data, Mapping):
        raise InvalidDelivery({"data": f"must be an object, not {type(data).__name__}"})
    try:
        text = canonical(dict(data))
    except BadDocument as exc:
        # The message names a place by the caller's keys, so it is redacted.
        raise InvalidDelivery({"data": redact(harmless(str(exc)), 300)}) from None
    if len(text) > LONGEST_DATA:
        says = f"is {len(text)} characters long, the limit is {LONGEST_DATA}; pass a link instead"
        raise InvalidDelivery({"data": says})


class _Writer:
    """Writes the parts of one text, and collects errors by place."""

    def __init__(
        self,
        data: Mapping[str, Any],
        errors: dict[str, str],
        *,
        is_html: bool = False,
        is_line: bool = False,
    ) -> None:
        self.errors = errors
        self.is_html = is_html
        self.is_line = is_line
        # Names are resolved in the innermost item first.
        self.around: list[Any] = [data]
        self.room = LONGEST_TEXT
        self.written: list[str] = []

    def write(self, parts: Parts) -> str:
        self._parts(parts)
        return "".join(self.written)

    def _parts(self, parts: Parts) -> None:
        for part in parts:
            if self._is_full():
                return
            if isinstance(part, str):
                self._say(part)
            elif isinstance(part, Value):
                self._value(part)
            else:
                self._section(part)

    def _is_full(self) -> bool:
        """Whether the limit is reached. Nested lists can expand little data into long texts."""
        if self.room >= 0:
            return False
        self.errors["data"] = f"makes a text of more than {LONGEST_TEXT} characters"
        return True

    def _say(self, text: str) -> None:
        self.room -= len(text)
        self.written.append(text)

    def _value(self, value: Value) -> None:
        found = self._find(value.path)
        if isinstance(found, bool) or not isinstance(found, str | int | float):
            says = "is missing" if found is _MISSING else "must be text or a number"
            self.errors.setdefault(_place(value.path), says)
            return
        said = str(found)
        if value.is_address and not _ADDRESS.fullmatch(said):
            says = "must be an address that begins with https:, http: or mailto:"
            self.errors.setdefault(_place(value.path), says)
            return
        if self.is_line:
            # A line break in a subject would start the next header.
            said = _BREAKS.sub(" ", said)
        self._say(html.escape(said) if self.is_html else said)

    def _section(self, section: Section) -> None:
        found = self._find(section.path)
        if found is _MISSING:
            self.errors.setdefault(_place(section.path), "is missing")
            return
        is_empty = found is None or found is False or found in ("", 0, [], {}, ())
        if section.is_inverted:
            if is_empty:
                self._parts(section.parts)
            return
        if is_empty:
            return
        is_list = isinstance(found, Sequence) and not isinstance(found, str)
        for item in found if is_list else (found,):
            # An item counts as one character. Otherwise nested sections without text would have no
            # limit.
            self.room -= 1
            if self._is_full():
                return
            self.around.append(item)
            self._parts(section.parts)
            self.around.pop()

    def _find(self, path: tuple[str, ...]) -> Any:
        if not path:
            return self.around[-1]
        first, *rest = path
        for item in reversed(self.around):
            if isinstance(item, Mapping) and first in item:
                found = item[first]
                for name in rest:
                    found = found.get(name, _MISSING) if isinstance(found, Mapping) else _MISSING
                return found
        return _MISSING


def _place(path: tuple[str, ...]) -> str:
    return "data." + ".".join(path) if path else "data"
