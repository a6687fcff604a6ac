"""The stored form of handler results."""

from __future__ import annotations

from typing import Any

from holdfast.document import BadDocument, check, encode
from holdfast.engine.reference import with_refs
from holdfast.errors import ResultInvalid

RESULT_LIMIT_BYTES = 256 * 1024


def document(value: Any) -> str:
    """Encode *value* as a document; raises BadDocument if it cannot be stored or is too large."""
    check(value)
    text = encode(value)
    if len(text) > RESULT_LIMIT_BYTES:
        raise BadDocument(
            f"is larger than {RESULT_LIMIT_BYTES} bytes; store it and return a reference"
        )
    return text


def result_document(value: Any) -> str:
    """Encode a result, with artifacts as references; raises ResultInvalid."""
    try:
        try:
            return document(value)
        except BadDocument:
            # It may contain artifacts. Most results contain none and are not searched.
            return document(with_refs(value))
    except BadDocument as exc:
        raise ResultInvalid from exc
