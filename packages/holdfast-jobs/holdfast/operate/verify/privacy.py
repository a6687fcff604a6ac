"""I31 and I32: no secrets in displayed data, and only the hashes of API keys and sessions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.document import decode
from holdfast.operate.verify.check import Check, VerifyContext, Violation
from holdfast.redact import harmless
from holdfast.secret import find_secret, may_hold_secret
from holdfast.store import Statement, Statements

SQL = Statements("holdfast.operate.verify", "privacy.sql")

# The mark that redaction leaves.
_MARK = re.compile(r"\[[a-z]{1,20}\]")


def _find_secrets(context: VerifyContext) -> Iterator[Violation]:
    told = (SQL.list_told, SQL.list_letters, SQL.list_errors, SQL.list_remarks, SQL.list_deliveries)
    return find_secrets_in(context, told)


def find_secrets_in(context: VerifyContext, statements: Sequence[Statement]) -> Iterator[Violation]:
    """Yield secrets and canaries in the selected org_id, subject, words and document."""
    canaries = [forms_of(text) for text in context.canaries]
    for statement in statements:
        for row in context.tx.stream(statement, org_id=context.org_id):
            for problem in _problems(row["words"], row["document"], canaries):
                yield Violation(str(row["org_id"]), row["subject"], problem)


def _find_plain_keys(context: VerifyContext) -> Iterator[Violation]:
    # The stored text is not shown: it may be the key itself.
    for row in context.tx.stream(SQL.list_plain_keys, org_id=context.org_id):
        yield Violation(str(row["org_id"]), row["subject"], "secret_hash is not a SHA-256")


def _problems(
    words: str | None, document: str | None, canaries: list[tuple[str, str]]
) -> Iterator[str]:
    for text, is_document in ((words, False), (document, True)):
        if not text:
            continue
        if may_hold_secret(text):
            place = find_secret(_unmarked(_read(text)) if is_document else text)
            if place is not None:
                yield f"something shaped like a secret at {harmless(place, 100)}"
        for number, forms in enumerate(canaries, 1):
            if any(form in text for form in forms):
                yield f"canary {number}"


def forms_of(canary: str) -> tuple[str, str]:
    """Return a canary as plain text and as JSON text."""
    return canary, json.dumps(canary, ensure_ascii=False)[1:-1]


def _read(text: str) -> Any:
    try:
        return decode(text)
    except ValueError:
        return text


def _unmarked(value: Any) -> Any:
    """Return *value* without redaction marks, which do not count as secrets."""
    if isinstance(value, str):
        return "" if _MARK.fullmatch(value) else value
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    return value


CHECKS = (
    Check(
        "I31",
        "The audit, dead letters, errors and notes contain no secrets and no canaries.",
        _find_secrets,
    ),
    Check("I32", "API keys and sessions are stored as hashes only.", _find_plain_keys),
)
