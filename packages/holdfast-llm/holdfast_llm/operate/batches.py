"""Provider batches: list them, and resolve those that need an operator.

A batch holds items of many tenants, so only an operator for all tenants has access. Cancel ends a
batch at the provider; its finished items are collected and paid for. A quarantined batch needs a
decision: adopt if it exists at the provider, release if its jobs should be requeued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, TypedDict, Unpack

from holdfast.arguments import anything, checked, instance, text
from holdfast.clock import read_instant
from holdfast.engine import audit
from holdfast.errors import Conflict
from holdfast.ids import read_named_id, read_uuid
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.dead_letter_input import read_texts
from holdfast.operate.page import NEWEST, Page, check_limit, page_of, read_filter
from holdfast.operate.refusal import BatchNotFound, BatchRefused, InvalidAction
from holdfast.operate.runs import BoundedRun, OperatorRuns
from holdfast.operate.short_ids import IdSpace
from holdfast.store import Row, Statements, Tx
from holdfast_llm.batch.accept_kept import Accepted, AnswerFilter, KeptCount
from holdfast_llm.batch.circuit import allow_probe
from holdfast_llm.batch.group import key_of
from holdfast_llm.batch.item_outcome import safe_code
from holdfast_llm.batch.outstanding import count_outstanding, count_remaining, poll_now
from holdfast_llm.batch.service import BatchService
from holdfast_llm.provider.account import Accounts
from holdfast_llm.provider.reply import ProviderRefused, ProviderUnsure
from holdfast_llm.settings import collector_of, submitter_of

SQL = Statements("holdfast_llm.operate", "batches.sql")

LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class BatchRow:
    """The row of a batch. It contains no request or answer text."""

    id: str
    account: str
    provider: str
    adapter_kind: str
    model: str
    execution_mode: str
    group_key: str
    state: str
    items: int
    bytes: int
    input_tokens: int
    create_attempt: int
    rounds: int
    polls: int
    provider_batch_id: str | None
    provider_status: str | None
    error_class: str | None
    error_code: str | None
    next_at: datetime
    deadline_at: datetime | None
    cancel_requested_at: datetime | None
    created_at: datetime
    submitted_at: datetime | None
    ended_at: datetime | None
    collected_at: datetime | None
    files_deleted_at: datetime | None

    @classmethod
    def from_row(cls, row: Row) -> BatchRow:
        return cls(**_read(row, [item.name for item in fields(cls)]))


@dataclass(frozen=True, slots=True)
class BatchFilter:
    """A filter of batches; a field that is None matches every batch."""

    state: str | None = None
    mode: str | None = None

    def check(self) -> BatchFilter:
        """Return the filter. Raises InvalidAction with every invalid field."""
        return read_filter(self, {"state": text, "mode": text})


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item of a batch with its outcome."""

    batch_item_index: int
    org_id: str
    job_id: str
    job_type: str
    attempt: int
    custom_id: str
    state: str
    error_class: str | None
    error_code: str | None
    provider_request_id: str | None
    submitted_at: datetime | None
    finished_at: datetime | None
    recorded_at: datetime | None

    @classmethod
    def from_row(cls, row: Row) -> ItemRow:
        return cls(**_read(row, [item.name for item in fields(cls)]))


@dataclass(frozen=True, slots=True)
class BatchView:
    """A batch, its item counts by state, and a page of items."""

    batch: BatchRow
    counts: Mapping[str, int]
    items: tuple[ItemRow, ...]


__all__ = ["AnswerFilter", "BatchFilter", "BatchRow", "Batches"]

ALL_KEPT = AnswerFilter()
# The maximum number of jobs of one run.
EVERYTHING = 100_000


class PassOptions(TypedDict, total=False):
    """The options of :meth:`OperatorRuns.prepare`."""

    reason: str
    by_timer: bool
    max_jobs: int | None
    concurrency: int
    async_concurrency: int


@dataclass(frozen=True, slots=True)
class AcceptReport:
    """The kept answers that match a filter, and the outcomes; no outcomes in a dry run."""

    is_dry_run: bool
    matched: tuple[KeptCount, ...]
    done: Accepted

    @property
    def answers(self) -> int:
        """The number of matching answers."""
        return sum(one.answers for one in self.matched)


def _read(row: Row, names: list[str]) -> dict[str, Any]:
    return {
        name: read_instant(row[name])
        if name.endswith("_at") and row[name] is not None
        else row[name]
        for name in names
    }


@checked(
    InvalidAction,
    checks={
        "account": text,
        "provider_batch_id": text,
        "reason": anything,
        "wanted": instance(BatchFilter),
        "where": instance(AnswerFilter),
    },
)
class Batches:
    """The provider batches that *context* may see and change."""

    id_space = IdSpace("batch", SQL.find_ids, SQL.find_ids_beside)

    def __init__(self, context: OperatorContext, service: BatchService | None = None) -> None:
        self.context = context
        self._service = service

    def __call__(self, service: BatchService) -> Batches:
        """The same actions on another batch service."""
        if not isinstance(service, BatchService):
            raise InvalidAction({"service": "must be a batch service"})
        return Batches(self.context, service)

    @property
    def service(self) -> BatchService:
        """The batch service; by default that of the application."""
        if self._service is not None:
            return self._service
        app: Any = self.context.app
        service: BatchService = app.batch.service
        return service

    @property
    def accounts(self) -> Accounts:
        """The provider accounts that this process has credentials for."""
        return self.service.accounts

    # -- reading

    def list(
        self,
        wanted: BatchFilter | None = None,
        *,
        with_ended: bool = False,
        limit: int = 50,
        before: str = NEWEST,
    ) -> Page[BatchRow]:
        """List batches, newest first; ended ones only *with_ended*."""
        self.context.check(Action.LOOK, org_id=None, subject="batches")
        wanted = (wanted or BatchFilter()).check()
        params = {
            "state": wanted.state,
            "mode": wanted.mode,
            "limit": check_limit(limit) + 1,
            "before": before,
        }
        rows = self.context.store.read(
            lambda tx: tx.many(SQL.list_batches, with_ended=int(with_ended), **params)
        )
        return page_of([BatchRow.from_row(row) for row in rows], limit, lambda batch: batch.id)

    def show(self, batch_id: str, *, limit: int = 50, after: int = -1) -> BatchView:
        """Return one batch with its items, page by page."""
        self.context.check(Action.LOOK, org_id=None, subject=f"batch:{batch_id[:36]}")
        batch_id = _id(batch_id)

        def look(tx: Tx) -> BatchView:
            batch = _find(tx, batch_id)
            counts = {row["state"]: row["items"] for row in tx.many(SQL.count_items, id=batch_id)}
            rows = tx.many(SQL.list_items, id=batch_id, after=after, limit=limit)
            return BatchView(batch, counts, tuple(ItemRow.from_row(row) for row in rows))

        return self.context.store.read(look)

    def remaining(self) -> Mapping[str, int]:
        """The number of jobs that wait to be submitted, due and not yet due."""
        self.context.check(Action.LOOK, org_id=None, subject="batches")
        return count_remaining(self.context.store)

    def outstanding(self) -> Mapping[str, int]:
        """The number of batches and items at a provider."""
        self.context.check(Action.LOOK, org_id=None, subject="batches")
        return count_outstanding(self.context.store)

    # -- passes

    def submitter(self, **options: Unpack[PassOptions]) -> BoundedRun:
        """The run that submits waiting jobs, to perform in this process."""
        if options.get("max_jobs") is None and not options.get("by_timer"):
            options["max_jobs"] = EVERYTHING
        return OperatorRuns(self.context).prepare(submitter_of(self.context.settings), **options)

    def collector(self, **options: Unpack[PassOptions]) -> BoundedRun:
        """The run that collects answers, to perform in this process.

        It polls every batch at a provider now; the scheduled run polls only due batches.
        """
        run = OperatorRuns(self.context).prepare(collector_of(self.context.settings), **options)
        if not options.get("by_timer"):
            poll_now(self.context.store)
        return run

    # -- actions

    def cancel(self, batch_id: str, *, reason: str) -> BatchRow:
        """Cancel a batch at the provider. Finished items are paid and collected."""
        batch_id, reason = self._admit(Action.CANCEL_BATCH, batch_id, reason)

        def work(tx: Tx) -> BatchRow:
            batch = _find(tx, batch_id)
            if not tx.affected(SQL.request_cancel, id=batch_id):
                says = "only a batch that is submitted is canceled"
                raise BatchRefused(batch_id, batch.state, says)
            self._audit(tx, "batch.cancel_requested", batch_id, reason=reason)
            return _find(tx, batch_id)

        return self._do(Action.CANCEL_BATCH, batch_id, lambda: self.context.store.write(work))

    def can_reach(self, batch_id: str) -> bool:
        """Whether this process has a credential for the account of a batch."""
        account = self.show(batch_id, limit=1).batch.account
        return self.service.accounts.in_place_of(account) is not None

    def adopt(
        self, batch_id: str, *, reason: str, provider_batch_id: str | None = None
    ) -> BatchRow:
        """Adopt a quarantined batch that exists at the provider.

        The provider is queried first. An unknown batch, or one that belongs to another row, is
        refused. *provider_batch_id* is required if none is recorded.
        """
        batch_id, reason = self._admit(Action.ADOPT_BATCH, batch_id, reason)

        def act() -> BatchRow:
            batch = self.context.store.read(lambda tx: _find(tx, batch_id))
            name = self._name_of(batch, provider_batch_id)
            detail = {"reason": reason, "provider_batch_id": name}
            self.service.recovery.adopt_quarantined(
                batch_id,
                name,
                actor=self.context.actor,
                decided=lambda tx: self._audit(tx, "batch.adopted", batch_id, **detail),
            )
            return self.context.store.read(lambda tx: _find(tx, batch_id))

        return self._do(Action.ADOPT_BATCH, batch_id, act)

    def release(self, batch_id: str, *, reason: str) -> BatchRow:
        """Release the jobs of a quarantined batch. They may be paid again."""
        batch_id, reason = self._admit(Action.RELEASE_BATCH, batch_id, reason)

        def act() -> BatchRow:
            self.context.store.read(lambda tx: _find(tx, batch_id))
            self.service.recovery.release_quarantined(
                batch_id,
                actor=self.context.actor,
                decided=lambda tx: self._audit(tx, "batch.released", batch_id, reason=reason),
            )
            return self.context.store.read(lambda tx: _find(tx, batch_id))

        return self._do(Action.RELEASE_BATCH, batch_id, act)

    # -- kept answers

    def kept(self, where: AnswerFilter = ALL_KEPT) -> tuple[KeptCount, ...]:
        """Return how many paid answers are stored, by job type and error of the application."""
        self.context.check(Action.LOOK, org_id=None, subject="batches")
        return self.service.kept_answers.count_kept(_checked(where))

    def accept(
        self, where: AnswerFilter = ALL_KEPT, *, reason: str, dry_run: bool = False
    ) -> AcceptReport:
        """Pass stored answers to the application again, after its code was fixed.

        The provider is not called, so it costs nothing. *dry_run* only counts.
        """
        subject = f"batch:{where.batch_id[:36]}" if where.batch_id else "batches"
        self.context.check(Action.ACCEPT_ANSWERS, org_id=None, subject=subject)
        (reason,) = read_texts(reason=(reason, LONGEST_REASON))
        where = _checked(where)
        matched = self.service.kept_answers.count_kept(where)
        done = Accepted()
        for batch_id in () if dry_run else self.service.kept_answers.list_batches(where):
            accepted = self.service.kept_answers.accept_batch(
                batch_id, where, done, actor=self.context.actor
            )
            self._audit_accepted(batch_id, accepted, reason)
        return AcceptReport(dry_run, matched, done)

    def _audit_accepted(self, batch_id: str, accepted: int, reason: str) -> None:
        detail = {"reason": reason, "answers": accepted}
        self.context.store.write(
            lambda tx: self._audit(tx, "batch.answers_accepted", batch_id, **detail)
        )

    def probe(self, account: str, *, reason: str) -> None:
        """Allow one request to an account with an open circuit."""
        subject = f"account:{account[:200]}"
        self.context.check(Action.PROBE_ACCOUNT, org_id=None, subject=subject)

        def work(tx: Tx) -> None:
            if not allow_probe(tx, account):
                says = "must be one that is left alone, as holdfast doctor names it"
                raise InvalidAction({"account": says})
            audit.record_action(
                tx,
                self.context.actor,
                subject=subject,
                name="account.probe_allowed",
                detail={"role": self.context.role, "reason": reason},
            )

        try:
            (reason,) = read_texts(reason=(reason, LONGEST_REASON))
            self.context.store.write(work)
        except InvalidAction as exc:
            self.context.refuse(Action.PROBE_ACCOUNT, exc, org_id=None, subject=subject)

    def _name_of(self, batch: BatchRow, given: str | None) -> str:
        """The provider's id of a batch, if it has one."""
        name = given or batch.provider_batch_id
        if batch.state != "quarantined":
            raise BatchRefused(batch.id, batch.state, "only a quarantined batch can be adopted")
        if name is None:
            raise BatchRefused(batch.id, batch.state, "pass the provider's batch id")
        if batch.provider_batch_id not in (None, name):
            raise BatchRefused(
                batch.id, batch.state, "another provider batch id is already recorded"
            )
        account = self.service.resolve_account(batch.account, batch.id, name)
        if account is None:
            says = "no configured account has the batch; adopt it where its account is configured"
            raise BatchRefused(batch.id, batch.state, says)
        try:
            seen = account.adapter.get(account.client, name)
        except (ProviderRefused, ProviderUnsure) as exc:
            code = exc.failure.code if isinstance(exc, ProviderRefused) else exc.reason
            says = f"the provider does not show such a batch ({safe_code(code)})"
            raise BatchRefused(batch.id, batch.state, says) from exc
        if seen.key not in (None, key_of(batch.id)):
            raise BatchRefused(
                batch.id, batch.state, "the provider's batch belongs to another Holdfast batch"
            )
        return name

    def _do(self, action: Action, batch_id: str, act: Callable[[], BatchRow]) -> BatchRow:
        """Run the action; a refusal is audited."""
        try:
            return act()
        except Conflict as exc:
            self.context.refuse(action, exc, org_id=None, subject=f"batch:{batch_id}")

    def _admit(self, action: Action, batch_id: str, reason: str) -> tuple[str, str]:
        """Check that the actor is allowed to act, and gives a reason."""
        subject = f"batch:{batch_id[:36]}"
        self.context.check(action, org_id=None, subject=subject)
        try:
            (reason,) = read_texts(reason=(reason, LONGEST_REASON))
        except InvalidAction as exc:
            self.context.refuse(action, exc, org_id=None, subject=subject)
        return _id(batch_id), reason

    def _audit(self, tx: Tx, name: str, batch_id: str, **detail: Any) -> None:
        detail = {"role": self.context.role, **detail}
        audit.record_action(
            tx, self.context.actor, subject=f"batch:{batch_id}", name=name, detail=detail
        )


def _find(tx: Tx, batch_id: str) -> BatchRow:
    row = tx.maybe(SQL.find_batch, id=batch_id)
    if row is None:
        raise BatchNotFound(batch_id)
    return BatchRow.from_row(row)


def _checked(where: AnswerFilter) -> AnswerFilter:
    """The filter with ids in stored form. Raises InvalidAction."""
    found: dict[str, str] = {}
    for name in ("batch_id", "job_id", "org_id"):
        value = getattr(where, name)
        if value is None:
            continue
        try:
            found[name] = read_named_id(value) if name == "org_id" else read_uuid(value)
        except ValueError as exc:
            raise InvalidAction({name: str(exc)}) from None
    return replace(where, **found)


def _id(text: str) -> str:
    try:
        return read_uuid(text)
    except ValueError:
        raise InvalidAction({"batch_id": "must be the id of a batch, as list prints it"}) from None
