"""Verify: check every invariant on one snapshot of a store.

All checks use the same snapshot, so they may run while workers run. Nothing is written, and only
the violations that are shown are kept in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.actor import Role
from holdfast.clock import read_instant
from holdfast.errors import ConfigError, Forbidden, NotFound
from holdfast.extension import components_of
from holdfast.ids import read_named_id
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.verify import CHECKS
from holdfast.operate.verify.check import Check, VerifyContext, Violation, join
from holdfast.store import CORE, Statements, Tx

SQL = Statements("holdfast.operate.verify", "run.sql")

SHOWN = 20
SUBJECT = "store"
SHORTEST_CANARY = 8


class Status(StrEnum):
    """The status of a check."""

    OK = "ok"
    VIOLATED = "violated"
    BROKEN = "broken"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and its result: *count* violations, of which the first are kept.

    *why* is the reason if a check does not apply or failed.
    """

    id: str
    name: str
    status: Status
    count: int = 0
    violations: tuple[Violation, ...] = ()
    why: str = ""

    @property
    def is_violated(self) -> bool:
        """Whether this invariant is violated or could not be checked."""
        return self.status in (Status.VIOLATED, Status.BROKEN)


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all checks at one moment, in order."""

    at: datetime
    org_id: str | None
    findings: tuple[Finding, ...]

    @property
    def violated(self) -> tuple[Finding, ...]:
        """The findings with a violated invariant. Their number is the exit code."""
        return tuple(finding for finding in self.findings if finding.is_violated)


def verify(
    context: OperatorContext,
    *,
    only: Collection[str] = (),
    shown: int = SHOWN,
    org_id: str | None = None,
    canaries: Sequence[str] = (),
) -> Report:
    """Check every invariant, or *only* those named, on one snapshot of the store.

    An operator may verify one tenant, an admin also all. At most *shown* violations of each check
    are kept; all are counted. *canaries* must not be found anywhere (I31).
    """
    tenant = context.org_id if org_id is None else read_named_id(org_id)
    context.check(Action.VERIFY, org_id=tenant, subject=SUBJECT)
    if tenant is None and context.role is not Role.ADMIN:
        error = Forbidden("Only an admin verifies every tenant. Name the one to verify: --org.")
        context.refuse(Action.VERIFY, error, org_id=None, subject=SUBJECT)
    checks = pick_checks(only, checks_of(context))
    if any(len(canary) < SHORTEST_CANARY for canary in canaries):
        raise ConfigError(f"A canary must have at least {SHORTEST_CANARY} characters.")
    return verify_with(checks, context, shown=shown, org_id=tenant, canaries=canaries)


def pick_checks(only: Collection[str], known: Sequence[Check] = CHECKS) -> tuple[Check, ...]:
    """Return the checks with these ids in their own order; by default all."""
    wanted = {name.strip().upper() for name in only}
    strangers = sorted(wanted - {check.id for check in known})
    if strangers:
        there = f"{known[0].id} to {known[-1].id}"
        raise NotFound(f"There is no check {strangers[0][:20]!r}. There are {there}.")
    return tuple(check for check in known if not wanted or check.id in wanted)


def checks_of(context: OperatorContext) -> tuple[Check, ...]:
    """Return the checks of the core and of the extensions, in the order of their ids.

    A check of an extension with the id of a core check adds its violations to that one.
    """
    found = {check.id: check for check in CHECKS}
    for extension in context.migrated_extensions:
        for check in extension.verify_checks():
            found[check.id] = join(found[check.id], check) if check.id in found else check
    return tuple(sorted(found.values(), key=_by_id))


def _by_id(check: Check) -> tuple[str, int, str]:
    """Sort key of ids such as I9 and I10: by number."""
    letters = check.id.rstrip("0123456789")
    return letters, int(check.id[len(letters) :] or 0), check.id


def verify_with(
    checks: Sequence[Check],
    context: OperatorContext,
    *,
    shown: int = SHOWN,
    org_id: str | None = None,
    canaries: Sequence[str] = (),
) -> Report:
    """Run these checks on one snapshot. The caller checks the permission."""

    def work(tx: Tx) -> Report:
        tx.affected(SQL.trust_nothing)
        now = read_instant(tx.one(SQL.read_moment)["now"])
        known = {found.name: found for found in components_of(context.available_extensions)}
        here = [row["component"] for row in tx.many(SQL.list_components)]
        look = VerifyContext(
            tx,
            context.settings,
            context.registry,
            now,
            org_id,
            tuple(canaries),
            tuple(known[name] for name in here if name in known),
            has_others=any(name not in known and name != CORE.name for name in here),
        )
        tables = {row["name"] for row in tx.many(SQL.list_tables)}
        findings = [_make(check, look, tables, shown) for check in checks]
        return Report(now, org_id, tuple(findings))

    return context.store.read(work)


def _make(check: Check, context: VerifyContext, tables: Collection[str], shown: int) -> Finding:
    why = _why_not(check, context, tables)
    if why is not None:
        return Finding(check.id, check.name, Status.NOT_APPLICABLE, why=why)
    tx = context.tx
    tx.affected(SQL.set_mark)
    try:
        return _count(check, context, shown)
    except Exception as exc:
        # An invalid row may break the code that reads it. That is a finding too, and the other
        # checks still run. If the connection is lost, this statement fails as well, and the store
        # runs all checks again.
        tx.affected(SQL.return_to_mark)
        # Without the message: it may contain stored data.
        why = f"the check failed: {type(exc).__name__}"
        return Finding(check.id, check.name, Status.BROKEN, why=why)
    finally:
        tx.affected(SQL.drop_mark)


def _why_not(check: Check, context: VerifyContext, tables: Collection[str]) -> str | None:
    if check.find is None:
        return f"this database has no {' and '.join(check.needs)}"
    missing = [table for table in check.needs if table not in tables]
    if missing:
        return f"there is no table {', '.join(missing)}"
    if check.is_of_store and context.org_id is not None:
        return "it covers the whole database, not a single tenant"
    return None


def _count(check: Check, context: VerifyContext, shown: int) -> Finding:
    assert check.find is not None
    count = 0
    kept: list[Violation] = []
    for violation in check.find(context):
        if context.org_id is not None and violation.org_id != context.org_id:
            continue
        count += 1
        if len(kept) < shown:
            kept.append(violation)
    status = Status.VIOLATED if count else Status.OK
    return Finding(check.id, check.name, status, count, tuple(kept))


def as_document(report: Report) -> Mapping[str, Any]:
    """Return a report as a JSON document."""
    return {
        "at": report.at,
        "org_id": report.org_id,
        "violated": len(report.violated),
        "checks": [
            {
                "id": finding.id,
                "name": finding.name,
                "status": finding.status,
                "why": finding.why or None,
                "violations": finding.count,
                "first": [
                    {"org_id": item.org_id, "subject": item.subject, "detail": item.detail}
                    for item in finding.violations
                ],
            }
            for finding in report.findings
        ],
    }
