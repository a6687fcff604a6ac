"""A check of the store, and the snapshot that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from holdfast.clock import write_instant
from holdfast.config import Settings
from holdfast.engine.handler import Registry
from holdfast.store import Component, Statement, Tx


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation of an invariant.

    *subject* names it, like ``job:…``; *detail* describes the problem without repeating a payload.
    """

    org_id: str
    subject: str
    detail: str


@dataclass(frozen=True, slots=True)
class VerifyContext:
    """One snapshot of the store for all checks: of the tenant *org_id*, or of all tenants.

    *canaries* are planted texts that must not appear anywhere.
    """

    tx: Tx
    settings: Settings
    registry: Registry
    now: datetime
    org_id: str | None = None
    canaries: tuple[str, ...] = ()
    # The components of extensions that are in the database and that this process knows.
    components: tuple[Component, ...] = ()
    # Whether the database has components that this process does not know.
    has_others: bool = False

    def find(self, statement: Statement, **params: Any) -> Iterator[Violation]:
        """Yield the violations that a statement selects as org_id, subject and detail.

        It may also take ``:org_id`` (NULL for all tenants) and ``:moment``, which is
        *now* as text. It does not take ``{now}``: the clock advances during the check.
        """
        given = {"org_id": self.org_id, "moment": write_instant(self.now), **params}
        for row in self.tx.stream(statement, **given):
            yield Violation(str(row["org_id"]), row["subject"], row["detail"])


Find = Callable[[VerifyContext], Iterator[Violation]]


@dataclass(frozen=True, slots=True)
class Check:
    """One invariant of ``holdfast verify``: *find* yields every violation.

    *needs* are the tables that the check requires. A check without *find* does not apply yet. With
    *is_of_store* the check concerns no single tenant, and is skipped when only one tenant is
    verified.
    """

    id: str
    name: str
    find: Find | None = None
    needs: tuple[str, ...] = ()
    is_of_store: bool = False


def selects(*statements: Statement) -> Find:
    """Build a check from statements that each select violations."""

    def find(context: VerifyContext) -> Iterator[Violation]:
        for statement in statements:
            yield from context.find(statement)

    return find


def join(one: Check, other: Check) -> Check:
    """Return a check that yields the violations of both."""

    def find(context: VerifyContext) -> Iterator[Violation]:
        for part in (one, other):
            if part.find is not None:
                yield from part.find(context)

    return replace(one, find=find, needs=(*one.needs, *other.needs))
