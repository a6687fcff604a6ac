"""Two workers, one database, a provider that misbehaves, and the counts at the end.

Workers, database and provider use one fake clock. The provider is the simulator, over HTTP. Its
bill shows which items were paid twice. Every text has a unique word, which shows where the text was
sent.
"""

from __future__ import annotations

import io
import json
import os
import random
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from holdfast import Enqueued, FakeClock, Holdfast, Settings
from holdfast.config import RunSettings
from holdfast.engine.bounded_run import perform_run
from holdfast.engine.run_log import Trigger, TriggerKind
from holdfast.errors import SchemaInvalid
from holdfast.event import BatchAlert, BatchChanged, Event
from holdfast.operate.verify.run import SQL as VERIFY
from holdfast.telemetry import log
from holdfast_llm import Item, Reply, Request
from holdfast_llm.settings import BatchSettings, PriceSettings, ProviderSettings
from holdfast_simulator.simulator import Simulator
from tests.operate.sound import data_report_of, violations
from tests.story import ORG, OTHER_ORG, look, seal_all

SUBMITTER, COLLECTOR = "batch_submitter", "batch_collector"
JOB_TYPE = "text.shorten"
MODEL = "model-1"
KEY = "HOLDFAST_TEST_KEY"
ADAPTERS = {
    "openai": "openai_responses",
    "azure": "azure_chat",
    "gemini": "gemini_generate",
    "anthropic": "anthropic_messages",
    "mistral": "mistral_chat",
}
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
# The private columns: no other column may hold a word of them.
PRIVATE = {"job_envelope": {"payload"}, "job_outcome": {"result"}}

# An answer that is late because the machine is busy is not a fault of the provider.
PATIENCE = 30.0


class Shorten:
    """Makes a text shorter, and checks whether an answer is about it."""

    def request(self, item: Item) -> Request:
        return Request((item.payload["text"],), "Shorten the text.", schema=SCHEMA)

    def accept(self, item: Item, reply: Reply) -> Any:
        text = reply.data["text"]
        if not text.startswith("Answer to: "):
            raise SchemaInvalid
        return {"text": text}


def make_app(
    url: str,
    origin: str,
    clock: FakeClock,
    provider: str = "openai",
    *,
    seed: int = 0,
    wants_echo: bool | None = None,
    read_seconds: float = PATIENCE,
    **settings: Any,
) -> Holdfast:
    """One worker's application: the same in every process, except for the ids that it makes."""
    os.environ[KEY] = "sk-simulated-0123456789"
    paths = {"openai": "/openai/v1", "azure": "/az/openai", "gemini": "/gemini"}
    paths |= {"anthropic": "/anthropic", "mistral": "/mistral"}
    account = ProviderSettings(
        base_url=origin + paths[provider],
        credential_env=KEY,
        allow_private=True,
        read_seconds=read_seconds,
        wants_echo=wants_echo,
    )
    prices = tuple(
        PriceSettings(
            provider=provider,
            model="*",
            mode=mode,
            valid_from=date(2026, 1, 1),
            input=Decimal(price),
            cache_read=Decimal(price),
            output=Decimal(4 * price),
        )
        for mode, price in (("batch", 1), ("async", 2))
    )
    hf = Holdfast(
        settings=Settings(
            db=url,
            **{
                "providers": {provider: account},
                "prices": prices,
                "batch": BatchSettings(),
                "runs": {SUBMITTER: RunSettings(queues=("q:default",), max_jobs_per_run=1_000)},
                **settings,
            },
        ),
        clock=clock,
        rng=random.Random(seed),
    )
    route = {"provider": provider, "adapter_kind": ADAPTERS[provider], "model": MODEL}
    hf.batch(JOB_TYPE, route={**route, "source_locale": "en", "target_locale": "de"})(Shorten)
    return hf


def run(hf: Holdfast, name: str) -> Any:
    return perform_run(hf, name, trigger=Trigger(TriggerKind.CRON))


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts at the end, when no work is left."""

    paid_twice: int
    lost: int
    leaked: int
    held: int
    states: Counter[str]
    errors: Counter[str]
    # Attempts of all jobs.
    charged: int
    wrong: dict[str, list[str]]

    def row(self) -> dict[str, Any]:
        return {
            "paid_twice": self.paid_twice,
            "lost": self.lost,
            "leaked": self.leaked,
            "held": self.held,
            "violated": sorted(self.wrong),
        }


@dataclass
class House:
    """The scene of a test: its workers, its provider, its steps and its counts."""

    url: str
    clock: FakeClock
    sim: Simulator
    provider: str = "openai"
    settings: dict[str, Any] = field(default_factory=dict)
    read_seconds: float = PATIENCE
    workers: list[Holdfast] = field(default_factory=list)
    jobs: list[Enqueued] = field(default_factory=list)
    canaries: dict[str, str] = field(default_factory=dict)
    told: list[Event] = field(default_factory=list)
    said: io.StringIO = field(default_factory=io.StringIO)
    opened: int = 0

    def __enter__(self) -> House:
        log.configure_logging("debug", self.said)
        self.workers = [self.open() for _ in range(2)]
        return self

    def __exit__(self, *exc: object) -> None:
        log.uninstall()
        for hf in self.workers:
            hf.close()

    def open(self) -> Holdfast:
        """Another worker."""
        self.opened += 1
        hf = make_app(
            self.url,
            self.sim.origin,
            self.clock,
            self.provider,
            seed=self.opened,
            read_seconds=self.read_seconds,
            **self.settings,
        )
        hf.events.subscribe(self.told.append)
        hf.events.subscribe(log.log_event)
        return hf

    @property
    def hf(self) -> Holdfast:
        return self.workers[0]

    # -- steps

    def enqueue(
        self, count: int, *, orgs: Sequence[str] = (ORG, OTHER_ORG), **options: Any
    ) -> None:
        """Enqueue this many jobs, of the tenants in turn, each with a unique word."""
        for number in range(len(self.jobs), len(self.jobs) + count):
            canary = f"canary-{number:04d}x{number * 7919 % 9973:04d}"
            payload = {"text": f"Dear {canary}, please call me back about number {number}."}
            job = self.hf.enqueue(JOB_TYPE, payload, org_id=orgs[number % len(orgs)], **options)
            self.jobs.append(job)
            self.canaries[job.id] = canary

    def both(self, name: str) -> None:
        """Perform the same run with both workers at the same time."""
        barrier = threading.Barrier(len(self.workers))
        failures: list[BaseException] = []

        def work(hf: Holdfast) -> None:
            barrier.wait(30)
            try:
                run(hf, name)
            except BaseException as exc:
                failures.append(exc)

        threads = [threading.Thread(target=work, args=(hf,)) for hf in self.workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        if failures:
            raise failures[0]

    def turn(self, **length: float) -> None:
        """Both submit, time passes, both collect."""
        self.both(SUBMITTER)
        self.clock.advance(**(length or {"minutes": 15}))
        self.both(COLLECTOR)

    def go_on(self, *, days: float = 4.0) -> None:
        """Repeat the steps until no work is left, for at most this many days."""
        end = self.clock.now() + timedelta(days=days)
        turns = 0
        while self.clock.now() < end and not self.rests:
            # Within a few hours all unknown outcomes are decided; after that only windows have to
            # end.
            self.turn(minutes=15 if turns < 16 else 180)
            turns += 1
        for hf in self.workers:
            with suppress(AssertionError):
                seal_all(hf.store)

    @property
    def rests(self) -> bool:
        """Whether no further change will happen without an operator."""
        (row,) = look(
            self.hf.store,
            "SELECT (SELECT count(*) FROM holdfast.provider_batch WHERE state NOT IN"
            " ('collected', 'released', 'quarantined') OR (state <> 'quarantined'"
            " AND files_deleted_at IS NULL AND execution_mode = 'batch')) AS batches,"
            " (SELECT count(*) FROM holdfast.job AS job WHERE finished_at IS NULL AND NOT EXISTS"
            " (SELECT 1 FROM holdfast.batch_item AS item JOIN holdfast.provider_batch AS batch"
            " ON batch.id = item.batch_id WHERE item.org_id = job.org_id AND item.job_id = job.id"
            " AND item.is_open = 1 AND batch.state = 'quarantined')) AS jobs",
        )
        return not row["batches"] and not row["jobs"]

    # -- inspection

    def rows(self) -> list[dict[str, Any]]:
        return [
            dict(row)
            for row in look(
                self.hf.store,
                "SELECT id, org_id, state, attempt_count, error_class, result, not_before_at,"
                " provider_batch_id, last_error FROM holdfast.job ORDER BY created_at, id",
            )
        ]

    def batches(self) -> list[dict[str, Any]]:
        text = "SELECT * FROM holdfast.provider_batch ORDER BY created_at, id"
        return [dict(row) for row in look(self.hf.store, text)]

    @property
    def alerts(self) -> Counter[str]:
        return Counter(str(event.what) for event in self.told if isinstance(event, BatchAlert))

    @property
    def changes(self) -> Counter[str]:
        return Counter(str(event.change) for event in self.told if isinstance(event, BatchChanged))

    def tally(self) -> Tally:
        """Count all results."""
        rows = self.rows()
        held = self._held()
        unfinished = {
            row["id"] for row in rows if row["state"] not in ("completed", "failed", "canceled")
        }
        known = {job.id for job in self.jobs}
        missing = known - {row["id"] for row in rows}
        return Tally(
            paid_twice=len(self.sim.ledger.double_paid()),
            lost=len((unfinished - held) | missing) + len(self._unplaced()),
            leaked=len(self._leaks(rows)),
            held=len(held),
            states=Counter(row["state"] for row in rows),
            errors=Counter(row["error_class"] for row in rows if row["state"] == "failed"),
            charged=sum(row["attempt_count"] for row in rows),
            wrong=violations(data_report_of(self.hf, canaries=list(self.canaries.values()))),
        )

    def _held(self) -> set[str]:
        """The jobs that wait for an operator."""
        return {
            row["job_id"]
            for row in look(
                self.hf.store,
                "SELECT item.job_id FROM holdfast.batch_item AS item"
                " JOIN holdfast.provider_batch AS batch ON batch.id = item.batch_id"
                " WHERE item.is_open = 1 AND batch.state = 'quarantined'",
            )
        }

    def _unplaced(self) -> set[str]:
        """Charges with a custom id that no item has."""
        billed = {charge.custom_id for charge in self.sim.ledger.charges if charge.custom_id}
        ours = look(self.hf.store, "SELECT custom_id FROM holdfast.batch_item")
        return billed - {row["custom_id"] for row in ours}

    def _leaks(self, rows: list[dict[str, Any]]) -> list[str]:
        found = [f"{leak.where} {leak.canary} {leak.detail}" for leak in self.sim.leaks.found]
        for row in rows:
            result = json.dumps(row["result"]) if row["result"] is not None else ""
            own = self.canaries[row["id"]]
            others = [c for c in self.canaries.values() if c != own and c in result]
            found += [f"job {row['id']} has the answer of {other}" for other in others]
        words = self.said.getvalue() + repr(self.told)
        found += [f"told {canary}" for canary in self.canaries.values() if canary in words]
        for table in look(self.hf.store, VERIFY.list_tables.raw):
            name = table["name"]
            hidden = PRIVATE.get(name, set())
            for row in look(self.hf.store, f"SELECT * FROM holdfast.{name}"):
                text = repr({key: value for key, value in row.items() if key not in hidden})
                if "canary-" in text:
                    found.append(f"table {name}")
        return found


START = datetime.fromisoformat("2026-01-05T09:00:00+00:00")
