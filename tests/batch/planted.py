"""Batches that a provider already runs, inserted by hand, for tests of the collector."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any

from holdfast import Enqueued, FakeClock, Holdfast
from holdfast.engine.claim import claim_jobs
from holdfast.engine.job import SYSTEM, Claimed, Submitted
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.settle import settle
from holdfast.event import BatchAlert, BatchChanged, Event
from holdfast.store import Row, Store
from holdfast_llm.batch.group import custom_id, name_of, secret_of, unit_of_item
from holdfast_llm.batch.service import BatchService
from holdfast_llm.batch.work import Item
from holdfast_llm.provider.reply import Reply
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import Route
from holdfast_llm.settings import PriceSettings
from tests.batch.scripted import ScriptedAccounts, ScriptedProvider, StoredBatch
from tests.story import ORG, by_hand, look

ACCOUNT = "openai|https://openai.test/v1|abc123def456"
ROUTE = Route("openai", "scripted", "model-1", source_locale="en", target_locale="de")
PRICE = PriceSettings(
    provider="openai",
    model="model-*",
    mode="batch",
    valid_from=date(2020, 1, 1),
    input=Decimal(1),
    output=Decimal(2),
)
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}


class Shout:
    """Returns a text in capitals."""

    def request(self, item: Item) -> Request:
        return Request((item.payload["text"],), "Shout.", schema=SCHEMA)

    def accept(self, item: Item, reply: Reply) -> Any:
        return {"said": reply.data["text"]}


@dataclass(slots=True)
class Planted:
    """A batch, the jobs that wait for it, and its data at the provider."""

    id: str
    at_provider: StoredBatch
    jobs: list[Enqueued]
    names: list[str]
    echoes: list[str]


@dataclass(slots=True)
class Stage:
    """An application with the batch service, a scripted provider, and the emitted events."""

    hf: Holdfast
    clock: FakeClock
    provider: ScriptedProvider
    service: BatchService
    told: list[Event] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def store(self) -> Store:
        return self.service.resources.store

    def plant(
        self,
        *texts: str,
        org_id: str | Sequence[str] = ORG,
        with_echo: bool = True,
        job_type: str = "text.shout",
        **options: Any,
    ) -> Planted:
        """Jobs for these texts in a batch that the provider runs."""
        orgs = [org_id] * len(texts) if isinstance(org_id, str) else list(org_id)
        jobs = [
            self.hf.enqueue(job_type, {"text": text}, org_id=org, **options)
            for text, org in zip(texts, orgs, strict=True)
        ]
        return self.hand_over(jobs, with_echo=with_echo)

    def hand_over(self, jobs: list[Enqueued], *, with_echo: bool = True) -> Planted:
        """These jobs in a batch that the provider runs."""
        taken = claim_jobs(
            self.store,
            queue="q:default",
            worker_id="submitter",
            limit=len(jobs),
            lease_ms=60_000,
            of_batch=True,
        )
        by_id = {job.id: job for job in taken}
        return self._hand_over([by_id[job.id] for job in jobs], jobs, with_echo)

    def _hand_over(self, claimed: list[Claimed], jobs: list[Enqueued], with_echo: bool) -> Planted:
        batch_id = self.hf.ids.new()
        secret = secret_of("", ACCOUNT)
        names = [
            custom_id(secret, batch_id, place, job.id, job.attempt)
            for place, job in enumerate(claimed)
        ]
        echoes = [f"echo{place:04d}" if with_echo else "" for place in range(len(claimed))]
        data = b""
        for job, name, echo in zip(claimed, names, echoes, strict=True):
            request = self.service.resources.registry.get(job.job_type).work.request(
                Item.from_job(job)
            )
            body = self.provider.body(ROUTE, request.with_echo(echo) if echo else request)
            data += self.provider.line(ROUTE, name, body)
        file = self.provider._store_file(f"in-{batch_id}", data)
        made = self.provider._make_batch(ROUTE, name_of(batch_id, 1, "main"), file.id, b"")
        self._write(batch_id, made, claimed, names, echoes)
        outcome = Submitted(made.id)
        settle(self.store, [(job, outcome) for job in claimed], actor=SYSTEM)
        return Planted(batch_id, made, jobs, names, echoes)

    def _write(
        self,
        batch_id: str,
        made: StoredBatch,
        claimed: list[Claimed],
        names: list[str],
        echoes: list[str],
    ) -> None:
        by_hand(
            self.store,
            "INSERT INTO holdfast.provider_batch (id, account, provider, adapter_kind, model,"
            " execution_mode, group_key, state, items, bytes, input_tokens, create_attempt,"
            " creating_at, input_file_id, provider_batch_id, next_at, deadline_at, submitted_at,"
            " created_at, updated_at) VALUES (:id, :account, 'openai', 'scripted', 'model-1',"
            " 'batch', :group_key, 'submitted', :items, 1, 1, 1, {now}, :file, :made, {now},"
            " {later(90000000)}, {now}, {now}, {now})",
            id=batch_id,
            account=ACCOUNT,
            group_key=ROUTE.group_key,
            items=len(claimed),
            file=made.file_id,
            made=made.id,
        )
        for place, (job, name, echo) in enumerate(zip(claimed, names, echoes, strict=True)):
            by_hand(
                self.store,
                "INSERT INTO holdfast.batch_item (batch_id, batch_item_index, org_id, job_id,"
                " job_type, execution_mode, unit, attempt, lease_token, custom_id, echo,"
                " group_key, input_tokens, submitted_at, created_at) VALUES (:batch_id, :place,"
                " :org_id, :job_id, :job_type, 'batch', :unit, :attempt, :token, :name, :echo,"
                " :group_key, 1, {now}, {now})",
                batch_id=batch_id,
                place=place,
                org_id=job.org_id,
                job_id=job.id,
                job_type=job.job_type,
                unit=unit_of_item(job),
                attempt=job.attempt,
                token=job.lease_token,
                name=name,
                echo=echo,
                group_key=ROUTE.group_key,
            )

    def collect(self, *, minutes: float = 0, worker_id: str = "w1", **options: Any) -> PassCounts:
        """Let time pass, then one pass of a collector."""
        self.clock.advance(minutes=minutes)
        return self.service.collector.run_once(worker_id=worker_id, **options)

    def job(self, job: Enqueued) -> Any:
        return self.hf.get(job.id, org_id=job.org_id)

    def states(self, planted: Planted) -> list[str]:
        return [str(self.job(job).state) for job in planted.jobs]

    def batch(self, planted: Planted) -> Row:
        (row,) = look(
            self.store, "SELECT * FROM holdfast.provider_batch WHERE id = :id", id=planted.id
        )
        return row

    def items(self, planted: Planted) -> list[Row]:
        return look(
            self.store,
            "SELECT * FROM holdfast.batch_item WHERE batch_id = :id ORDER BY batch_item_index",
            id=planted.id,
        )

    def calls(self, planted: Planted) -> list[Row]:
        return look(
            self.store,
            "SELECT * FROM holdfast.provider_call WHERE batch_id = :id ORDER BY batch_item_index",
            id=planted.id,
        )

    def results(self, planted: Planted, data: bytes | None = None) -> bytes:
        """The contents of a batch's first result file; *data* replaces them."""
        file = self.provider.files[planted.at_provider.result_files[0]]
        if data is not None:
            file.data = data
        return file.data

    @property
    def alerts(self) -> list[tuple[str, int]]:
        found = [event for event in self.told if isinstance(event, BatchAlert)]
        return [(str(event.what), event.count) for event in found]

    @property
    def changes(self) -> list[str]:
        return [str(event.change) for event in self.told if isinstance(event, BatchChanged)]

    def other_service(self, store: Store) -> BatchService:
        """The same batch service in another process."""
        return BatchService(replace(self.service.resources, store=store))


def set_stage(hf: Holdfast, clock: FakeClock) -> Stage:
    provider = ScriptedProvider(clock)
    hf.batch.accounts = ScriptedAccounts(provider)
    hf.batch("text.shout", route=ROUTE, max_attempts=3)(Shout)
    resources = hf.batch.service.resources
    settings = replace(hf.settings, prices=(PRICE,))
    service = BatchService(replace(resources, rng=random.Random(7), settings=settings))
    stage = Stage(hf, clock, provider, service)
    hf.events.subscribe(stage.told.append)
    return stage


def line_of(custom_id: str, text: str, echo: str = "", **extra: Any) -> bytes:
    """A hand-written line of results."""
    data = {"text": text, **({"rid": echo} if echo else {})}
    found = {
        "custom_id": custom_id,
        "text": json.dumps(data),
        "model": "model-1",
        "data": None,
        "request_id": None,
        **extra,
    }
    return json.dumps(found).encode() + b"\n"
