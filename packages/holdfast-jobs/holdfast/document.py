"""JSON documents: strict parsing, bounded size, one canonical text, one stable hash.

Values that PostgreSQL's jsonb rejects (NUL, lone surrogates, NaN) are rejected here, so that both
databases accept exactly the same documents.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.clock import write_instant

MAX_DEPTH = 32
MAX_NODES = 10_000
# Longer integers are valid JSON, but Python refuses to print them and parsers round them.
MAX_INTEGER_DIGITS = 308


class BadDocument(ValueError):
    """A value that cannot be stored as a document; the message names the location and problem."""


_COMPACT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def encode(value: object) -> str:
    """Compact JSON of a value that :func:`check` accepts."""
    return _COMPACT.encode(value)


_CANONICAL = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, sort_keys=True
)
_LONG_INTEGER = re.compile(rf"\d{{{MAX_INTEGER_DIGITS}}}")


def canonical(value: object) -> str:
    """The canonical text of a document: checked, compact, keys sorted. Raises BadDocument.

    The encoder runs in C. The slow check runs only if the text gives cause: an escaped NUL, a lone
    surrogate, deep nesting, a huge integer, or a key that the encoder would coerce.
    """
    try:
        text = _CANONICAL.encode(value)
    except (TypeError, ValueError, RecursionError):
        check(value)
        raise
    opened = text.count("{") + text.count("[")
    if (
        opened > MAX_DEPTH
        or text.count(",") + opened >= MAX_NODES
        or "\\u0000" in text
        or (len(text) >= MAX_INTEGER_DIGITS and _LONG_INTEGER.search(text))
        or not _has_plain_keys(value)
        or not (text.isascii() or _is_unicode(text))
    ):
        check(value)
    return text


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_plain_keys(value: object) -> bool:
    """Whether all containers are plain with text keys; the encoder would coerce others."""
    todo = [value]
    for node in todo:
        if type(node) is dict:
            for key, item in node.items():
                if type(key) is not str:
                    return False
                if isinstance(item, (dict, list, tuple)):
                    todo.append(item)
        elif type(node) is list:
            todo.extend(item for item in node if isinstance(item, (dict, list, tuple)))
        elif isinstance(node, (dict, list, tuple)):
            return False
    return True


_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def decode(text: str) -> Any:
    """The value of a stored document."""
    # The C scanner alone takes 0.7 us for a small document, json.loads 1.7.
    try:
        value, end = _scan(text, 0)
        if end == len(text):
            return value
    except StopIteration:
        pass
    return json.loads(text)


def check(value: object) -> None:
    """Raise BadDocument unless *value* is plain JSON that both databases can store."""
    nodes = 0
    todo: list[tuple[str, object, int]] = [("", value, 1)]
    while todo:
        path, node, depth = todo.pop()
        nodes += 1
        if nodes > MAX_NODES:
            raise BadDocument(f"has more than {MAX_NODES} values")
        if depth > MAX_DEPTH:
            raise BadDocument(
                f"is nested deeper than {MAX_DEPTH} levels at {path[:80] or 'the top'}"
            )
        if node is None or node is True or node is False:
            continue
        if isinstance(node, str):
            _check_text(node, path)
        elif isinstance(node, int):
            if abs(node) >= 10**MAX_INTEGER_DIGITS:
                raise BadDocument(f"has an integer of over {MAX_INTEGER_DIGITS} digits at {path}")
        elif isinstance(node, float):
            if node != node or node in (float("inf"), float("-inf")):
                raise BadDocument(f"has a number that JSON cannot hold (NaN or infinity) at {path}")
        elif isinstance(node, dict):
            for key, item in node.items():
                if not isinstance(key, str):
                    raise BadDocument(f"has a key that is not text at {path or 'the top'}")
                _check_text(key, path)
                todo.append((f"{path}.{key}" if path else key, item, depth + 1))
        elif isinstance(node, (list, tuple)):
            for index, item in enumerate(node):
                todo.append((f"{path}[{index}]", item, depth + 1))
        else:
            raise BadDocument(
                f"has a {type(node).__name__} at {path or 'the top'};"
                " use text, numbers, lists and objects"
            )


def _check_text(text: str, path: str) -> None:
    # A regular expression took 24 microseconds for a text of 3 KiB; this takes 0.1.
    if "\0" in text or not (text.isascii() or _is_unicode(text)):
        raise BadDocument(f"has a NUL or a lone surrogate at {path or 'the top'}")


def parse(text: str | bytes) -> Any:
    """Parse external JSON: UTF-8 only, no duplicate keys, no NaN. Raises BadDocument."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as exc:
            raise BadDocument("is not UTF-8") from exc

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise BadDocument("has the same key twice in one object")
        return found

    def refuse(constant: str) -> Any:
        raise BadDocument(f"has {constant}, which JSON cannot hold")

    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except RecursionError as exc:
        raise BadDocument(f"is nested deeper than {MAX_DEPTH} levels") from exc
    except BadDocument:
        raise
    except ValueError as exc:
        raise BadDocument(f"is not JSON: {exc}") from exc
    check(value)
    return value


def stable_hash(*inputs: object) -> str:
    """A hash of normalized inputs: sorted JSON, canonical timestamps. Equal inputs, equal hash.

    Whole floats equal their integers, because a round trip through a database may convert one to
    the other.
    """
    text = json.dumps(
        [_normal(item) for item in inputs],
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _normal(value: object) -> object:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise BadDocument("has a timestamp without a time zone")
        return write_instant(value.astimezone(UTC))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _normal(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_normal(item) for item in value]
    return value
