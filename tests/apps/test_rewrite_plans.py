"""What runs every minute finds its rows by an index, however many rewrites there are."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from holdfast.store import Store
from holdfast.store.query import Statement
from holdfast_rewrite import directory, erase, finish, intake, show, work
from tests.apps.household import HOME, RECIPIENT, SENDER
from tests.story import by_hand

MANY, HOMES = 20_000, 2_000
KEYS = [{"org_id": HOME, "id": f"0198c0de-0000-7000-9000-{number:012x}"} for number in range(1, 6)]
ASKED = [{"org_id": key["org_id"], "rewrite_request_id": key["id"]} for key in KEYS]
PEOPLE = {"org_id": HOME, "sender_user_id": SENDER, "recipient_user_id": RECIPIENT}

_SENTENCE = "Please take the bins out. " * 12
_NUMBERS = (
    "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :many)"
)
_ID = (
    "'0198c0de-0000-7000-9000-' || {only sqlite}printf('%012x', n){end}"
    "{only postgres}lpad(to_hex(n), 12, '0'){end}"
)
_HOME = _ID.replace("9000", "a000").replace("n)", "n % :homes)")


@pytest.fixture
def crowded(store: Store) -> Store:
    """Many ended and reported rewrites, each with its text; nothing is left to do."""
    by_hand(
        store,
        "INSERT INTO holdfast.rewrite_request (org_id, rewrite_request_id, sender_user_id,"
        " recipient_user_id, surface, iso_week_year, iso_week, step, status, failure_code,"
        " request_id, correlation_id, created_at, failed_at, concluded_at, updated_at)"
        f" {_NUMBERS} SELECT CAST({_HOME} AS {{uuid}}), CAST({_ID} AS {{uuid}}),"
        " CAST(:sender AS {uuid}), CAST(:recipient AS {uuid}), 'other', 2026, 1, 'failed',"
        " 'failed', 'defect', 'r', 'c', {now}, {now}, {now}, {now} FROM numbers",
        many=MANY,
        homes=HOMES,
        sender=SENDER,
        recipient=RECIPIENT,
    )
    by_hand(
        store,
        "INSERT INTO holdfast.rewrite_message (org_id, rewrite_request_id, original_text,"
        " created_at) SELECT org_id, rewrite_request_id, :said, {now}"
        " FROM holdfast.rewrite_request",
        said=_SENTENCE,
    )
    if store.dialect.name == "postgres":
        # Its own housekeeping would do so soon; SQLite plans by the shape of its indexes.
        by_hand(store, "ANALYZE")
    return store


def plan(store: Store, statement: Statement, **params: Any) -> str:
    word = "EXPLAIN QUERY PLAN " if store.dialect.name == "sqlite" else "EXPLAIN "
    explained = replace(statement, raw=word + statement.raw)
    rows = store.write(lambda tx: tx.many(explained, **params))
    return "\n".join(str(row.get("detail", row.get("QUERY PLAN"))) for row in rows)


def whole_tables(text: str) -> list[str]:
    """The crowded tables of which the plan reads every row, by whatever name."""
    found = re.findall(r"Seq Scan on (rewrite_request|rewrite_message)", text)
    lines = [line for line in text.splitlines() if re.search(r"\bSCAN\b", line)]
    return found + [
        line
        for line in lines
        if re.search(r"SCAN (request|message|mine|other|status|holdfast_rewrite_\w+)\b", line)
        and not re.search(r"rewrite_(request_un|message_kept|output_kept)", line)
    ]


MINUTELY: list[tuple[Any, dict[str, Any]]] = [
    (intake.SQL.count_unfinished, {"abandoned_ms": 1, "most": 10}),
    (intake.SQL.take_unfinished, {"abandoned_ms": 1, "lease_ms": 1, "limit": 500}),
    (finish.SQL.count_to_finish, {"most": 10}),
    (finish.SQL.list_ended, {"limit": 500}),
    (finish.SQL.list_due, {"limit": 500}),
    (erase.SQL.count_overdue, {"original_ms": 86_400_000, "rewritten_ms": 1, "most": 10}),
    (erase.SQL.list_overdue_originals, {"original_ms": 86_400_000, "limit": 500}),
    (erase.SQL.list_overdue_rewritten, {"rewritten_ms": 86_400_000, "limit": 500}),
    (finish.SQL.finish_requests, {"ended": [key | {"sender_reveal_at": None} for key in KEYS]}),
    (finish.SQL.reveal_requests, {"due": KEYS}),
    (erase.SQL.forget_requests, {"gone": KEYS}),
    (erase.SQL.erase_messages, {"gone": KEYS}),
    (erase.SQL.erase_outputs, {"gone": KEYS}),
    (intake.SQL.lock_requests, {"asked": ASKED}),
    (intake.SQL.find_over_cadence, {"asked": ASKED}),
    (work.SQL.load_requests, {"items": [{"org_id": HOME, "job_id": key["id"]} for key in KEYS]}),
    (directory.SQL.look, {"asked": [{"place": 0, **PEOPLE}, {"place": 1, **PEOPLE}]}),
    (show.SQL.find_sent, {"org_id": HOME, "id": KEYS[0]["id"], "user_id": SENDER}),
]


def test_no_pass_of_every_minute_reads_what_has_ended(crowded: Store) -> None:
    plans = {statement.name: plan(crowded, statement, **params) for statement, params in MINUTELY}

    assert {name: text for name, text in plans.items() if whole_tables(text)} == {}
    # One that does read them all is noticed.
    everything = "SELECT * FROM holdfast.rewrite_request WHERE failure_code = :code"
    statement = Statement("everything", "many", "", everything, frozenset())
    assert whole_tables(plan(crowded, statement, code="defect"))
