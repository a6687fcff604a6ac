"""Export all stored data of a person or a home.

A person gets the messages they wrote, the rewrites that they may read, and the data stored about
them. No person gets another's original or learns of a message that was not delivered. The export of
a home contains everything and is for the person responsible for the home.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from holdfast.clock import read_instant, write_instant
from holdfast.document import decode
from holdfast.engine.audit import PLATFORM_ORG, Deed, record_actions
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.store import Row, Statement, Statements, Store, Tx
from holdfast_rewrite.erase import FIRST, Whose

SQL = Statements("holdfast_rewrite", "export.sql")

_DOCUMENTS = frozenset(
    {
        "topics",
        "classifier_result",
        "context_pack",
        "policy",
        "eval_result",
        "findings",
        "preference_payload",
    }
)
_NOTED = (
    ("membership", SQL.list_memberships),
    ("answer", SQL.list_answers),
    ("block", SQL.list_blocks),
)
_NOTED_OF_PERSON = (*_NOTED, ("preferences_used", SQL.list_noted))
_OF_PERSON = (("sent", SQL.list_sent), ("received", SQL.list_received))
_OF_HOME = (("rewrite", SQL.list_of_home),)
PAGE = 500


def export_data(
    context: OperatorContext, *, user_id: str | None = None, home_id: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield all data as documents, each with its ``kind``. For admins; audited before the first.

    They are read page by page, so memory use is constant.
    """
    whose = Whose.read(user_id, home_id)
    context.check(Action.EXPORT, org_id=whose.home_id, subject=whose.subject)
    org_id = whose.home_id or PLATFORM_ORG
    deed = Deed(context.actor, org_id, whose.subject, "rewrite_data_exported")
    context.store.write(lambda tx: record_actions(tx, [deed]))
    return _read(context.store, whose)


def _read(store: Store, whose: Whose) -> Iterator[dict[str, Any]]:
    for kind, statement in _NOTED_OF_PERSON if whose.user_id else _NOTED:
        for row in store.read(partial(_page, statement=statement, params=whose.params)):
            yield _document(kind, row)
    for kind, statement in _OF_PERSON if whose.user_id else _OF_HOME:
        for row in _pages(store, statement, whose):
            yield _document(kind, row)


def _pages(store: Store, statement: Statement, whose: Whose) -> Iterator[Row]:
    after_org, after_id = FIRST
    while True:
        params = {**whose.params, "after_org": after_org, "after_id": after_id, "limit": PAGE}
        rows = store.read(partial(_page, statement=statement, params=params))
        yield from rows
        if len(rows) < PAGE:
            return
        after_org, after_id = rows[-1]["home_id"], rows[-1]["rewrite_request_id"]


def _page(tx: Tx, *, statement: Statement, params: dict[str, Any]) -> list[Row]:
    return tx.many(statement, **params)


def _document(kind: str, row: Row) -> dict[str, Any]:
    return {"kind": kind, **{name: _value(name, value) for name, value in row.items()}}


def _value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _DOCUMENTS:
        return decode(value)
    return write_instant(read_instant(value)) if name.endswith("_at") else value
