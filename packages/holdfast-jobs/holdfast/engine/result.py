"""What a handler returns, as it is stored."""

from __future__ import annotations

from typing import Any

from holdfast.document import BadDocument, check, encode
from holdfast.engine.reference import with_refs
from holdfast.errors import ResultInvalid

RESULT_LIMIT_BYTES = 256 * 1024


def document(value: Any) -> str:
    """*value* as a document; raises BadDocument if it is none, or too large to be stored."""
    check(value)
    text = encode(value)
    if len(text) > RESULT_LIMIT_BYTES:
        raise BadDocument(
            f"is larger than {RESULT_LIMIT_BYTES} bytes; store it and return a reference"
        )
    return text


def result_document(value: Any) -> str:
    """The same for a result, in which artifacts are references; raises ResultInvalid."""
    try:
        try:
            return document(value)
        except BadDocument:
            # Perhaps there are artifacts in it. Most results have none and are not searched.
            return document(with_refs(value))
    except BadDocument as exc:
        raise ResultInvalid from exc
