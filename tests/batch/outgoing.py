"""Jobs before and during submission: an application, a scripted provider, and killed workers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from holdfast import Enqueued, FakeClock, Holdfast, Job
from holdfast.config import RunProfile
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.periodic_task import RunBudget
from holdfast.engine.retry import RetryPolicy
from holdfast.event import BatchAlert, BatchChanged, Event
from holdfast.store import Row
from holdfast_llm.batch.maintenance import SQL as MAINTENANCE
from holdfast_llm.batch.service import BatchService
from holdfast_llm.batch.work import Item
from holdfast_llm.provider.reply import Reply
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import Route
from tests.batch.scripted import ScriptedAccounts, ScriptedProvider
from tests.failpoints import BatchPoint as Point
from tests.failpoints import watched
from tests.story import ORG, look, make_holdfast

JOB_TYPE = "text.shout"
ROUTE = Route(
    "openai", "scripted", "model-1", prompt_version="v3", source_locale="en", target_locale="de"
)
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}


class Died(BaseException):
    """Simulates a worker that is killed by kill -9: nothing after the point runs."""


class Shout:
    """Requests a text in capitals. The test selects the error that a text raises."""

    raises: dict[str, BaseException]

    def __init__(self) -> None:
        self.raises = {}

    def request(self, item: Item) -> Request:
        text = item.payload["text"]
        if text in self.raises:
            raise self.raises[text]
        return Request((text,), "Shout.", schema=SCHEMA)

    def accept(self, item: Item, reply: Reply) -> Any:
        return {"text": reply.data["text"]}


@dataclass(slots=True)
class Outgoing:
    """An application, its provider, and the emitted events."""

    hf: Holdfast
    clock: FakeClock
    provider: ScriptedProvider
    accounts: ScriptedAccounts
    work: Shout
    told: list[Event] = field(default_factory=list)

    # -- steps

    def enqueue(
        self, *texts: str, org_id: str = ORG, route: Route | None = None, **options: Any
    ) -> list[Enqueued]:
        decision = None if route is None else route.decision
        return [
            self.hf.enqueue(
                JOB_TYPE, {"text": text}, org_id=org_id, routing_decision=decision, **options
            )
            for text in texts
        ]

    def service(self) -> BatchService:
        return self.hf.batch.service_with(RunProfile().retry_backoff_seconds)

    def _dying(
        self, dies_at: Point | Callable[[Point], None] | None
    ) -> AbstractContextManager[BatchService]:
        def reached(point: Point) -> None:
            if point is dies_at:
                raise Died(point)

        if dies_at is None:
            return nullcontext(self.service())
        return watched(self.service(), reached if isinstance(dies_at, Point) else dies_at)

    def budget(self, owner: str = "run-1", **profile: Any) -> RunBudget:
        given = RunProfile(**{"max_jobs_per_run": 10_000, **profile})
        made = RunBudget(owner, self.hf.known_queues, (), given, self.clock)
        made.deadline = self.clock.monotonic() + given.max_runtime_seconds
        return made

    def submit(
        self,
        *,
        owner: str = "run-1",
        dies_at: Point | Callable[[Point], None] | None = None,
        **profile: Any,
    ) -> PassCounts:
        with self._dying(dies_at) as service:
            return service.submit_once(self.budget(owner, **profile))

    def die(self, at: Point, *, owner: str = "dead") -> bool:
        """Submit until that point is reached; False if it is never reached."""
        try:
            self.submit(owner=owner, dies_at=at)
        except Died:
            return True
        return False

    def recover(
        self, *, owner: str = "run-2", dies_at: Point | Callable[[Point], None] | None = None
    ) -> PassCounts:
        with self._dying(dies_at) as service:
            return service.recover_once(owner)

    def later(self, **length: float) -> None:
        self.clock.advance(**length)

    def settle_down(self, *, rounds: int = 60, minutes: float = 5) -> None:
        """Let time pass, with runs and rescues, until no item is in submission."""
        for _ in range(rounds):
            self.later(minutes=minutes)
            rescue_jobs(self.hf.store, limit=1_000, find=MAINTENANCE.find_stale)
            self.submit(owner=f"run-{self.clock.monotonic():.0f}")
            if not self.under_way:
                return
        raise AssertionError(f"still under way: {self.under_way}")

    # -- inspection

    @property
    def under_way(self) -> list[str]:
        batches = self.batches
        aside = {row["id"] for row in batches if row["state"] == "quarantined"}
        left = {row["job_id"] for row in self.items if row["is_open"] and row["batch_id"] in aside}
        waiting = [
            f"job {row['state']}"
            for row in self.jobs
            if row["state"] in ("queued", "processing") and row["id"] not in left
        ]
        going = ("prepared", "uploaded", "creating")
        return waiting + [row["state"] for row in batches if row["state"] in going]

    @property
    def jobs(self) -> list[Row]:
        return look(self.hf.store, "SELECT * FROM holdfast.job ORDER BY id")

    @property
    def batches(self) -> list[Row]:
        return look(self.hf.store, "SELECT * FROM holdfast.provider_batch ORDER BY id")

    @property
    def batch(self) -> Row:
        (only,) = self.batches
        return only

    @property
    def items(self) -> list[Row]:
        return look(
            self.hf.store,
            "SELECT * FROM holdfast.batch_item ORDER BY batch_id, batch_item_index",
        )

    def job(self, enqueued: Enqueued) -> Job:
        return self.hf.get(enqueued.id, org_id=enqueued.org_id)

    def states(self, jobs: Sequence[Enqueued]) -> Counter[str]:
        return Counter(str(self.job(one).state) for one in jobs)

    def alerts(self) -> list[str]:
        return [str(event.what) for event in self.told if isinstance(event, BatchAlert)]

    def changes(self) -> list[str]:
        return [str(event.change) for event in self.told if isinstance(event, BatchChanged)]

    def sent_texts(self) -> list[list[str]]:
        """The first inputs of every batch that the provider runs."""
        return [[line["body"]["input"][0] for line in one.lines] for one in self.provider.live]


def set_out(hf: Holdfast, clock: FakeClock, **provider: Any) -> Outgoing:
    """Declare the model work and give it a provider."""
    scripted = ScriptedProvider(clock, **provider)
    accounts = ScriptedAccounts(scripted)
    work = Shout()
    hf.batch.accounts = accounts
    hf.batch(JOB_TYPE, route=ROUTE, max_attempts=3, retry=RetryPolicy.by_run())(work)
    made = Outgoing(hf, clock, scripted, accounts, work)
    hf.events.subscribe(made.told.append)
    return made


def another(out: Outgoing) -> Outgoing:
    """A second process of the same application: other connections, same provider."""
    hf = make_holdfast(out.hf.settings.db, out.clock)
    hf.rng = random.Random(11)
    made = set_out(hf, out.clock)
    made.provider, made.accounts = out.provider, out.accounts
    hf.batch.accounts = out.accounts
    return made
