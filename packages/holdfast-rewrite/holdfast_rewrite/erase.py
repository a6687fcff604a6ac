"""Erase the texts and preferences of a person or a home.

Opaque ids, codes, versions and times of requests remain, because the audit, the costs and the
weekly limit need them. Each page is one transaction with a fixed number of statements. An
interrupted erasure can be repeated and continues.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from holdfast.actor import Actor
from holdfast.engine.audit import PLATFORM_ORG, Deed, record_actions
from holdfast.ids import read_uuid
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.store import Row, Statements, Tx
from holdfast_rewrite.failure import InvalidRewrite

SQL = Statements("holdfast_rewrite", "erase.sql")

PAGE = 500
# Sorts before every home and every request.
FIRST = ("00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000")


@dataclass(frozen=True, slots=True)
class Whose:
    """The target: a person in one home or in all, or a whole home."""

    user_id: str | None = None
    home_id: str | None = None

    @classmethod
    def read(cls, user_id: str | None, home_id: str | None) -> Whose:
        """Return the target with both ids validated. Raises InvalidRewrite."""
        bad: dict[str, str] = {}
        found: dict[str, str] = {}
        for name, value in (("user_id", user_id), ("home_id", home_id)):
            if value is None:
                continue
            try:
                found[name] = read_uuid(value)
            except ValueError:
                bad[name] = "must be a UUID"
        if user_id is None and home_id is None:
            bad["user_id"] = "is needed, or home_id, or both"
        if bad:
            raise InvalidRewrite(bad)
        return cls(**found)

    @property
    def subject(self) -> str:
        """Return the name for the audit."""
        return f"user:{self.user_id}" if self.user_id else f"home:{self.home_id}"

    @property
    def params(self) -> dict[str, str | None]:
        return {"org_id": self.home_id, "user_id": self.user_id}


@dataclass(frozen=True, slots=True)
class Erased:
    """The counts of an erasure."""

    requests: int
    members: int
    answers: int
    blocks: int


def erase_data(
    context: OperatorContext, *, user_id: str | None = None, home_id: str | None = None, reason: str
) -> Erased:
    """Erase the data of a person, in one home or in all, or of a whole home. For admins.

    A rewrite in progress ends without output. Audited with *reason* for each request.
    """
    whose = Whose.read(user_id, home_id)
    context.check(Action.ERASE, org_id=whose.home_id, subject=whose.subject)
    if not reason.strip():
        raise InvalidRewrite({"reason": "is required; it is recorded in the audit"})
    requests, after = 0, FIRST
    while True:
        erase = partial(_erase_page, whose=whose, actor=context.actor, after=after)
        taken = context.store.write(erase)
        requests += len(taken)
        if len(taken) < PAGE:
            break
        after = taken[-1]["org_id"], taken[-1]["rewrite_request_id"]
    return context.store.write(lambda tx: _erase_rest(tx, whose, context.actor, requests, reason))


def _erase_page(tx: Tx, *, whose: Whose, actor: Actor, after: tuple[str, str]) -> list[Row]:
    after_org, after_id = after
    page = {"after_org": after_org, "after_id": after_id, "limit": PAGE}
    rows = tx.many(SQL.list_to_erase, **page, **whose.params)
    if not rows:
        return []
    gone = ids_of(rows)
    tx.affected(SQL.erase_requests, gone=gone)
    tx.affected(SQL.erase_messages, gone=gone)
    tx.affected(SQL.erase_outputs, gone=gone)
    tx.affected(SQL.erase_drafts, gone=gone)
    tx.affected(SQL.delete_kept_answers, gone=gone)
    tx.affected(SQL.delete_preference_snapshots, gone=gone)
    record_actions(tx, [deed_of(row, actor, "rewrite_erased", {}) for row in rows])
    return rows


def _erase_rest(tx: Tx, whose: Whose, actor: Actor, requests: int, reason: str) -> Erased:
    answers = tx.affected(SQL.delete_answers, **whose.params)
    members = tx.affected(SQL.delete_members, **whose.params)
    blocks = tx.affected(SQL.delete_blocks, **whose.params)
    if whose.user_id is None:
        tx.affected(SQL.delete_home, org_id=whose.home_id)
    erased = Erased(requests, members, answers, blocks)
    detail = {
        "reason": reason.strip()[:200],
        "requests": requests,
        "members": members,
        "answers": answers,
        "blocks": blocks,
    }
    record_actions(
        tx,
        [
            Deed(
                actor,
                whose.home_id or PLATFORM_ORG,
                whose.subject,
                "rewrite_data_erased",
                detail,
            )
        ],
    )
    return erased


def ids_of(rows: list[Row]) -> list[dict[str, str]]:
    """Return the ids of these rows as statement parameters."""
    return [{"org_id": row["org_id"], "id": row["rewrite_request_id"]} for row in rows]


def deed_of(row: Row, actor: Actor, name: str, detail: dict[str, object]) -> Deed:
    """Return the audit entry of one request."""
    return Deed(
        actor,
        row["org_id"],
        f"rewrite:{row['rewrite_request_id']}",
        name,
        detail,
        row["request_id"],
        row["correlation_id"],
    )
