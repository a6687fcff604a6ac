"""Prepare: turn claimed jobs into items of batches, stored before anything is sent.

This is the first transaction of every batch. After it, a crash leaves a batch that the next run
sends. Before it, a crash leaves claims that are rescued.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from holdfast.clock import ms
from holdfast.engine.execute import Execution, name_stage, outcome_of_error, resolve
from holdfast.engine.job import Actor, Canceled, Claimed, Outcome, Released
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.quarantine import quarantine_job
from holdfast.engine.settle import Settled, settle_in
from holdfast.errors import ConfigError, ConfigInvalid, RuleBroken, SchemaInvalid, Signal
from holdfast.store import Statements, Tx
from holdfast_llm.batch.budget import Hold, Want, alert_of, hold_over_budget
from holdfast_llm.batch.circuit import find_open_circuits
from holdfast_llm.batch.failure import StepBudgetExceeded
from holdfast_llm.batch.group import (
    LONGEST_ID,
    BatchKey,
    Draft,
    Placed,
    Placement,
    Wanted,
    batch_key_of,
    custom_id,
    fits_nowhere,
    place,
    secret_of,
    smaller_batch_size,
    unit_of_item,
)
from holdfast_llm.batch.item_outcome import NAMED, NOT_NAMED, OutcomeRules, schema_hash
from holdfast_llm.batch.lease import BatchLeases
from holdfast_llm.batch.load import ItemLoader, Loaded, item_of
from holdfast_llm.batch.missing_accounts import MissingAccounts
from holdfast_llm.batch.price import Prices
from holdfast_llm.batch.release import CIRCUIT_OPEN, OVERFLOW, BatchReleaser
from holdfast_llm.batch.rendered_request import RequestRenderer
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.batch.step_budget import refuse_over_step_budget
from holdfast_llm.batch.work import Item
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.reply import Failure, FailureKind
from holdfast_llm.provider.route import ExecutionMode

SQL = Statements("holdfast_llm.batch", "submit.sql")

JOB_SQL = Statements("holdfast.engine", "job.sql")

Ended = tuple[Claimed, Outcome]
Drafts = Mapping[BatchKey, Draft]


@dataclass(slots=True)
class PlannedJobs:
    """A page of claimed jobs: requests ready to be placed, and jobs that settle without one."""

    wanted: list[Wanted] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    missing: MissingAccounts = field(default_factory=MissingAccounts)


@dataclass(slots=True)
class Prepared:
    """The batches after a page: those that may take more, and those that are full."""

    drafts: dict[BatchKey, Draft]
    full: list[Draft] = field(default_factory=list)
    counts: PassCounts = field(default_factory=PassCounts)


class PagePreparer:
    """Turns claimed jobs into items of batches."""

    def __init__(
        self,
        resources: BatchResources,
        leases: BatchLeases,
        loader: ItemLoader,
        requests: RequestRenderer,
        outcomes: OutcomeRules,
        releaser: BatchReleaser,
    ) -> None:
        self.resources = resources
        self.store = resources.store
        self.settings = resources.settings
        self.registry = resources.registry
        self.ids = resources.ids
        self.accounts = resources.accounts
        self.events = resources.events
        self.rng = resources.rng
        self.leases = leases
        self.loader = loader
        self.requests = requests
        self.outcomes = outcomes
        self.releaser = releaser

    # -- planning

    def plan_page(self, claimed: Sequence[Claimed], prices: Prices) -> PlannedJobs:
        """Build the request of every job; jobs without one settle here."""
        page = PlannedJobs()
        stopped = self.store.read(find_open_circuits)
        suspects = self._find_suspects(claimed)
        loaded = self.loader.load(claimed)
        for job in claimed:
            job = name_stage(job, self.registry)
            found = self._plan(job, stopped, prices, loaded, page.missing, suspects.get(job.id))
            if isinstance(found, Wanted):
                page.wanted.append(found)
            else:
                page.ended.append((job, found))
        return page

    def _find_suspects(self, claimed: Sequence[Claimed]) -> dict[str, int]:
        """The jobs that may have made a batch fail, with the size of their next batch.

        They are sent separately, in smaller and smaller batches.
        """
        # The first claim of a job has no earlier batch.
        again = [job for job in claimed if job.lease_token > 1]
        if not again:
            return {}
        jobs = [{"org_id": job.org_id, "job_id": job.id} for job in again]
        left = {str(job.id): max(1, job.max_attempts - job.attempt_count) for job in again}
        most: dict[str, int] = {}
        for row in self.store.many(SQL.find_failed, jobs=jobs):
            job_id, items = str(row["job_id"]), int(row["items"])
            if row["error_code"] == NAMED:
                found = 1
            elif row["error_code"] == NOT_NAMED:
                found = max(1, items // 2)
            else:
                found = smaller_batch_size(items, left[job_id])
            most[job_id] = min(found, most.get(job_id, found))
        return most

    def _plan(
        self,
        job: Claimed,
        stopped: set[str],
        prices: Prices,
        loaded: Loaded,
        missing: MissingAccounts,
        most_items: int | None,
    ) -> Wanted | Outcome:
        patience = timedelta(seconds=self.settings.unknown_type_patience_seconds)
        planned = resolve(job, self.registry, self.store.clock, patience=patience)
        if not isinstance(planned, Execution):
            return planned
        try:
            item = _item_of(job, loaded)
            if (known := self.outcomes.of_reuse(job, item)) is not None:
                return known
            try:
                account = self.accounts.for_route(item.route)
            except ConfigError as exc:
                return missing.release(item.route.provider, exc, self.resources.overflow_ms)
            if not account.capabilities.supports_batches:
                raise ConfigInvalid(provider=item.route.provider, missing="supports_batches")
            if account.key in stopped:
                return Released(CIRCUIT_OPEN, ms(self.settings.batch.circuit_seconds))
            return self._want(job, item, account, prices, most_items)
        except (Signal, SystemExit, Exception) as exc:
            return outcome_of_error(exc, job, planned.stage, self.rng)

    def _want(
        self,
        job: Claimed,
        item: Item,
        account: Account,
        prices: Prices,
        most_items: int | None,
    ) -> Wanted | Outcome:
        rendered = self.requests.render(item, account)
        request = rendered.request
        size = len(account.adapter.line(item.route, LONGEST_ID, rendered.body))
        if fits_nowhere(size, request.input_tokens, account.limits):
            too_large = Failure(FailureKind.INVALID, "request_too_large")
            return self.outcomes.of_failure(job, too_large).outcome
        return Wanted(
            job,
            batch_key_of(
                item.route,
                account,
                merge=self.settings.batch.merge_groups,
                most_items=most_items,
                # Without an echo, only separate batches keep tenants' answers apart.
                org_id=None if rendered.echo else job.org_id,
            ),
            item.route.group_key,
            account.limits,
            size,
            request.input_tokens,
            rendered.echo,
            prices.reserve(item.route, request, self.store.clock.now().date()),
            schema_hash(request),
        )

    # -- storing

    def prepare_page(
        self,
        planned: PlannedJobs,
        drafts: Drafts,
        *,
        owner: str,
        claim_ms: int,
        actor: Actor,
    ) -> Prepared:
        """Store the items of a page and settle the other jobs, in one transaction.

        A row that violates a constraint is found by bisecting the page. It is dead-lettered; the
        others continue.
        """
        writing = _PageWriter(
            self.resources,
            self.leases.lease_ms,
            planned,
            drafts,
            owner,
            claim_ms,
            actor,
            self.ids.take(len(planned.wanted)),
        )
        try:
            written = self.store.write(writing.write)
        except RuleBroken as exc:
            if len(planned.wanted) + len(planned.ended) > 1:
                return self._prepare_halves(
                    planned, drafts, owner=owner, claim_ms=claim_ms, actor=actor
                )
            job = planned.wanted[0].job if planned.wanted else planned.ended[0][0]
            settled = quarantine_job(self.store, job, rule=exc.rule, actor=actor)
            return Prepared(dict(drafts), counts=self.releaser.report([settled]))
        counts = self.releaser.report(written.settled)
        for (account, model, reason), jobs in written.held.items():
            self.events.emit(alert_of(account, model, reason, jobs))
        return Prepared(written.placement.drafts, written.placement.full, counts)

    def _prepare_halves(self, planned: PlannedJobs, drafts: Drafts, **given: Any) -> Prepared:
        whole = Prepared(dict(drafts))
        half_wanted, half_ended = len(planned.wanted) // 2, len(planned.ended) // 2
        if len(planned.wanted) and len(planned.ended):
            halves = [PlannedJobs(planned.wanted, []), PlannedJobs([], planned.ended)]
        else:
            halves = [
                PlannedJobs(planned.wanted[:half_wanted], planned.ended[:half_ended]),
                PlannedJobs(planned.wanted[half_wanted:], planned.ended[half_ended:]),
            ]
        for half in halves:
            found = self.prepare_page(half, whole.drafts, **given)
            whole.drafts = found.drafts
            whole.full += found.full
            whole.counts.add(found.counts)
        return whole


def _item_of(job: Claimed, loaded: Loaded) -> Item:
    if job.routing_decision is None:
        raise SchemaInvalid(missing="routing_decision")
    try:
        item = item_of(job, loaded)
    except ValueError as exc:
        raise SchemaInvalid(field="routing_decision") from exc
    if item.route.execution_mode is not ExecutionMode.BATCH:
        raise SchemaInvalid(field="execution_mode")
    return item


@dataclass(frozen=True, slots=True)
class _Written:
    placement: Placement
    settled: list[Settled]
    # The number of jobs over budget, by account, model and reason.
    held: Counter[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class _PageWriter:
    """Stores one page; may be run again with the same ids."""

    resources: BatchResources
    lease_ms: int
    page: PlannedJobs
    drafts: Drafts
    owner: str
    claim_ms: int
    actor: Actor
    ids: list[str]

    def write(self, tx: Tx) -> _Written:
        ended = list(self.page.ended)
        wanted = self._still_ours(tx, ended)
        wanted, held = self._within_budget(tx, wanted, ended)
        reserves = self._sum_reserves(tx, wanted)
        placement = place(wanted, self._hold_drafts(tx, wanted), reserves, iter(self.ids))
        pause = self.resources.overflow_ms
        ended += [(one.job, Released(OVERFLOW, pause)) for one in placement.overflow]
        self._write_rows(tx, placement)
        stores = self.resources.registry.stores_of
        settled = settle_in(tx, ended, actor=self.actor, stores=stores) if ended else []
        return _Written(placement, settled, held)

    def _still_ours(self, tx: Tx, ended: list[Ended]) -> list[Wanted]:
        """Lock the claims until the end, so that no job is rescued while its item is stored."""
        wanted = self.page.wanted
        if not wanted:
            return []
        claims = [_claim(one.job) for one in wanted]
        rows = tx.many(JOB_SQL.renew_leases, held=claims, lease_ms=self.claim_ms)
        held = {row["id"] for row in rows}
        # Rows of an earlier run of this transaction are not other items.
        mine = {*self.ids, *(draft.id for draft in self.drafts.values())}
        canceled, taken = set(), set()
        for row in tx.many(SQL.find_open_units, units=[_unit(one) for one in wanted]):
            if row["requested_at"] is not None:
                canceled.add(row["job_id"])
            if row["batch_id"] is not None and str(row["batch_id"]) not in mine:
                taken.add(row["job_id"])
        ours = []
        for one in wanted:
            if one.job.id not in held:
                continue
            if one.job.id in canceled:
                ended.append((one.job, Canceled()))
            elif one.job.id in taken:
                ended.append((one.job, Released("unit_in_flight", self.resources.overflow_ms)))
            else:
                ours.append(one)
        return ours

    def _within_budget(
        self, tx: Tx, wanted: list[Wanted], ended: list[Ended]
    ) -> tuple[list[Wanted], Counter[tuple[str, str, str]]]:
        wants = [
            Want(one.job.id, one.job.org_id, one.reserve_pico, one.job.replay_of) for one in wanted
        ]
        holds = hold_over_budget(tx, self.resources.settings, wants)
        rest = [want for want in wants if want.job_id not in holds]
        refused = refuse_over_step_budget(tx, rest)
        now = self.resources.store.clock.now()
        held: Counter[tuple[str, str, str]] = Counter()
        for one in wanted:
            if (hold := holds.get(one.job.id)) is not None:
                ended.append((one.job, Released(hold.reason, max(ms(hold.until - now), 1000))))
                held[one.key.account, one.key.model, hold.reason] += 1
            elif (no := refused.get(one.job.id)) is not None:
                ended.append((one.job, self._outcome_of(no, one.job)))
        return [one for one in wanted if one.job.id not in (holds | refused)], held

    def _outcome_of(self, refused: Hold | StepBudgetExceeded, job: Claimed) -> Outcome:
        if isinstance(refused, Hold):
            now = self.resources.store.clock.now()
            return Released(refused.reason, max(ms(refused.until - now), 1000))
        stage = self.resources.registry.get(job.job_type).stages[0]
        return outcome_of_error(refused, job, stage, self.resources.rng)

    def _sum_reserves(self, tx: Tx, wanted: Sequence[Wanted]) -> dict[tuple[str, str], int]:
        """The used tokens of the accounts, locked until the end of the transaction."""
        limited = {one.key.reserve for one in wanted if one.limits.enqueued_tokens is not None}
        if not limited:
            return {}
        tx.lock_units([f"reserve:{account}:{model}" for account, model in limited])
        accounts = [{"account": account} for account in sorted({name for name, _ in limited})]
        return {
            (row["account"], row["model"]): int(row["input_tokens"])
            for row in tx.many(SQL.sum_reserves, accounts=accounts)
        }

    def _hold_drafts(self, tx: Tx, wanted: Sequence[Wanted]) -> dict[BatchKey, Draft]:
        """The batches that can still be filled; those leased by another worker are left out."""
        needed = {one.key for one in wanted}
        rows = [
            {"batch_id": draft.id, "was": draft.fence}
            for key, draft in self.drafts.items()
            if key in needed
        ]
        if not rows:
            return dict(self.drafts)
        found = tx.many(SQL.hold_drafts, drafts=rows, lease_ms=self.lease_ms)
        held = {str(row["id"]) for row in found}
        return {
            key: draft
            for key, draft in self.drafts.items()
            if key not in needed or draft.id in held
        }

    def _write_rows(self, tx: Tx, placement: Placement) -> None:
        if not placement.placed:
            return
        begun = [draft for draft in placement.changed if draft.id in placement.begun]
        grown = [draft for draft in placement.changed if draft.id not in placement.begun]
        if begun:
            rows = [_batch_row(draft) for draft in begun]
            lease = {"owner": self.owner, "lease_ms": self.lease_ms}
            tx.affected(SQL.insert_batches, batches=rows, **lease)
        if grown:
            tx.affected(SQL.grow_batches, batches=[_grown_row(draft) for draft in grown])
        key = self.resources.settings.batch.key
        tx.affected(SQL.insert_items, items=[_item_row(key, placed) for placed in placement.placed])


def _claim(job: Claimed) -> dict[str, Any]:
    return {"org_id": job.org_id, "id": job.id, "lease_token": job.lease_token}


def _unit(wanted: Wanted) -> dict[str, Any]:
    org_id, job_type, unit = wanted.unit
    return {"org_id": org_id, "job_type": job_type, "unit": unit, "job_id": wanted.job.id}


def _batch_row(draft: Draft) -> dict[str, Any]:
    key = draft.key
    return {
        "id": draft.id,
        "account": key.account,
        "provider": key.provider,
        "adapter_kind": key.adapter_kind,
        "model": key.model,
        "group_key": key.group_key,
        "items": draft.items,
        "bytes": draft.bytes,
        "input_tokens": draft.input_tokens,
    }


def _grown_row(draft: Draft) -> dict[str, Any]:
    return {
        "batch_id": draft.id,
        "held": draft.items,
        "size": draft.bytes,
        "tokens": draft.input_tokens,
    }


def _item_row(key: str, placed: Placed) -> dict[str, Any]:
    one, job = placed.wanted, placed.wanted.job
    secret = secret_of(key, one.key.account)
    return {
        "batch_id": placed.batch_id,
        "batch_item_index": placed.index,
        "org_id": job.org_id,
        "job_id": job.id,
        "job_type": job.job_type,
        "unit": unit_of_item(job),
        "attempt": job.attempt,
        "lease_token": job.lease_token,
        "custom_id": custom_id(secret, placed.batch_id, placed.index, job.id, job.attempt),
        "echo": one.echo,
        "schema_hash": one.schema_hash,
        "group_key": one.group_key,
        "input_tokens": one.input_tokens,
        "reserve_pico": one.reserve_pico,
    }
