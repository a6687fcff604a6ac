"""Calls of every verb of the operator API, each on an object of one tenant."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from holdfast import Context, FakeClock, Gone, Holdfast, JobRequest, chain
from holdfast.config import RunSettings
from holdfast.engine.schedule.rows import sync_schedules
from holdfast.operate.bulk_actions import LetterAction
from holdfast.operate.dead_letter import CHECKLISTS, DeadLetterKind
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast.operate.delivery_filter import DeliveryFilter
from holdfast.operate.jobs import JobFilter
from holdfast.operate.operator import Operator
from holdfast_llm.operate.batches import AnswerFilter
from tests.batch.planted import Planted, Shout, Stage, set_stage
from tests.operate.at_provider import plant_circuit
from tests.operate.letters import prepare
from tests.outbox.planted import plant_delivery
from tests.story import ORG, by_hand, look

WHY = "the customer called"
TRANSIENT = list(CHECKLISTS[DeadLetterKind.TRANSIENT])

Make = Callable[["World"], Any]
Act = Callable[[Operator, Any], Any]


@dataclass
class World:
    """An application with objects of ORG to act on."""

    hf: Holdfast
    clock: FakeClock
    stage: Stage = field(init=False)
    is_mended: bool = False
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.stage = set_stage(self.hf, self.clock)
        self.hf.settings = self.hf.settings.with_runs({"nightly": RunSettings(queues=("q:sends",))})
        self.hf.job("work", queue="q:planning")(lambda job, payload: None)
        self.hf.job("tell", category="notification")(lambda job, payload: None)
        self.hf.queue("q:sends")
        self.hf.job("send", max_attempts=1, queue="q:sends")(self._send)
        self.hf.schedule("declared", every="1h", job_type="tell", payload={}, org_id=ORG)
        sync_schedules(self.hf)

    def _send(self, job: Context, payload: Any) -> None:
        if not self.is_mended:
            raise Gone()

    @property
    def admin(self) -> Operator:
        return self.hf.operate(actor="user:root", role="admin")

    def name(self) -> str:
        return f"n{next(self._numbers)}"

    def job(self) -> str:
        return self.hf.enqueue("work", {}, org_id=ORG).id

    def work(self) -> None:
        self.hf.worker(queues=["q:sends"]).run_once(limit=10)

    def dead(self) -> str:
        self.is_mended = False
        job_id = self.hf.enqueue("send", {}, org_id=ORG).id
        self.work()
        return job_id

    def bulk_action(self) -> str:
        job_id = self.dead()
        wanted = DeadLetterFilter(state="open")
        own = self.hf.operate(actor="user:root", role="admin", org_id=ORG)
        assert job_id
        return own.bulk_actions.start(LetterAction("discard", wanted, WHY), expected=1_000).id

    def triaged(self) -> str:
        job_id = self.dead()
        self.admin.dead_letters.triage(job_id, kind="transient")
        return job_id

    def remediated(self) -> str:
        job_id = self.triaged()
        self.admin.dead_letters.remediate(job_id, done=TRANSIENT)
        return job_id

    def validated(self) -> str:
        job_id = self.dead()
        prepare(self.admin.dead_letters, self.hf.get(job_id, org_id=ORG))
        return job_id

    def replayed(self) -> str:
        job_id = self.validated()
        self.admin.dead_letters.replay(job_id, reason="mended")
        self.is_mended = True
        self.work()
        return job_id

    def verified(self) -> str:
        job_id = self.replayed()
        self.admin.dead_letters.verify_replay(job_id)
        return job_id

    def delivery(self) -> str:
        self.clock.advance(seconds=1)
        return plant_delivery(self.hf, "held", tries=(("first", "unsure"),))

    def artifact(self) -> str:
        return self.hf.artifacts.put(b"x", org_id=ORG, name="a.txt").id

    def workflow(self, *, is_failed: bool = False) -> str:
        if "flow.step" not in self.hf.registry:

            @self.hf.job("flow.step", queue="q:sends", max_attempts=1)
            def step(fails: bool) -> None:
                if fails:
                    raise Gone

            self.step = step
        made = chain(self.step.step(fails=is_failed)).enqueue(org_id=ORG).id
        if is_failed:
            self.work()
        return made

    def webhook(self, *, is_paused: bool = False) -> str:
        webhooks = self.hf.operate(actor="user:1", role="admin", org_id=ORG).webhooks
        made: str = webhooks.add("https://example.com/hooks", reason="before").endpoint.id
        if is_paused:
            webhooks.pause(made, reason="before")
        return made

    def queue(self, *, is_paused: bool) -> str:
        queues = self.admin.queues
        change = queues.pause if is_paused else queues.resume
        change("q:exports", reason="before")
        return "q:exports"

    def set_queue(self) -> str:
        self.admin.queues.set("q:default", reason="before", weight=random.randint(5, 100))
        return "q:default"

    def set_tenant(self) -> str:
        self.admin.tenants.set(ORG, reason="before", weight=3)
        return ORG

    def set_key(self) -> str:
        name = self.name()
        self.admin.limit_keys.set(name, reason="before", max_running=3)
        return name

    def api_key(self) -> str:
        made = self.admin.api_keys.create("n", role="viewer", reason="before", org_id=ORG)
        return made.key.id

    def schedule(self, *, is_paused: bool = False) -> str:
        name, schedules = self.name(), self.admin.schedules
        schedules.add(name, reason="before", every="1h", job_type="tell", payload={}, org_id=ORG)
        if is_paused:
            schedules.pause(name, reason="before")
        return name

    def changed(self) -> str:
        self.admin.schedules.set("declared", reason="before", every="2h")
        return "declared"

    def run(self) -> str:
        return self.admin.runs.start("nightly", reason="before").run_id

    def plant(self) -> Planted:
        """A batch at the provider. Jobs that another batch released would be claimed first."""
        waiting = "SELECT id FROM holdfast.job WHERE state = 'queued' AND job_type = 'text.shout'"
        for row in look(self.hf.store, waiting):
            self.hf.cancel(str(row["id"]), org_id=ORG)
        return self.stage.plant("one")

    def batch(self) -> str:
        return self.plant().id

    def quarantined(self) -> str:
        batch_id = self.batch()
        by_hand(
            self.hf.store,
            "UPDATE holdfast.provider_batch SET state = 'quarantined' WHERE id = :id RETURNING id",
            id=batch_id,
        )
        return batch_id

    def kept(self) -> str:
        """A batch whose answer was kept because the application's code failed on it."""
        planted = self.plant()
        self.stage.provider.complete()

        def accept(_: Shout, item: Any, reply: Any) -> Any:
            raise KeyError("headline")

        with patch.object(Shout, "accept", accept):
            for _ in range(3):
                self.stage.collect(minutes=30)
        return planted.id

    def table(self) -> str:
        """A table of the application."""
        name = "public.note_" + self.name() if self.hf.store.dialect.has_roles else "note"
        if self.hf.store.dialect.has_roles:
            by_hand(self.hf.store, f"CREATE TABLE {name} (org_id uuid, text text)")
        return name

    def account(self) -> str:
        provider = self.name()
        plant_circuit(self.hf, provider)
        return f"{provider}|acc"


def _open(operator: Operator, artifact_id: str) -> None:
    with operator.artifacts.open(artifact_id) as source:
        source.read()


def nothing(_: World) -> None:
    """For verbs that act on no object."""


# The object of a verb, the call, and the reason in its audit event.
VERBS: dict[str, tuple[Make, Act]] = {
    "jobs.list": (World.job, lambda op, _: op.jobs.list()),
    "jobs.get": (World.job, lambda op, it: op.jobs.get(it)),
    "jobs.counts": (World.job, lambda op, _: op.jobs.counts()),
    "jobs.explain": (World.job, lambda op, it: op.jobs.explain(it)),
    "jobs.enqueue": (nothing, lambda op, _: op.jobs.enqueue("work", {}, org_id=ORG)),
    "jobs.enqueue_many": (
        nothing,
        lambda op, _: op.jobs.enqueue_many("work", [JobRequest(payload={}, org_id=ORG)]),
    ),
    "jobs.cancel": (World.job, lambda op, it: op.jobs.cancel(it, reason=WHY)),
    "jobs.cancel_all": (
        World.job,
        lambda op, _: op.jobs.cancel_all(JobFilter(job_type="work"), reason=WHY, limit=1),
    ),
    "overview.dead_letters": (World.dead, lambda op, _: op.overview.dead_letters()),
    "overview.held_deliveries": (nothing, lambda op, _: op.overview.held_deliveries()),
    "overview.backlogs": (World.job, lambda op, _: op.overview.backlogs()),
    "overview.running": (World.job, lambda op, _: op.overview.running()),
    "overview.depths": (nothing, lambda op, _: op.overview.depths()),
    "overview.throughput": (World.job, lambda op, _: op.overview.throughput()),
    "overview.search": (World.job, lambda op, _: op.overview.search()),
    "overview.stages": (World.job, lambda op, it: op.overview.stages(it)),
    "queues.list": (nothing, lambda op, _: op.queues.list()),
    "queues.get": (nothing, lambda op, _: op.queues.get("q:default")),
    "queues.set": (nothing, lambda op, _: op.queues.set("q:default", reason=WHY, weight=7)),
    "queues.reset": (World.set_queue, lambda op, it: op.queues.reset(it, reason=WHY)),
    "queues.pause": (
        lambda w: w.queue(is_paused=False),
        lambda op, it: op.queues.pause(it, reason=WHY),
    ),
    "queues.resume": (
        lambda w: w.queue(is_paused=True),
        lambda op, it: op.queues.resume(it, reason=WHY),
    ),
    "tenants.list": (World.set_tenant, lambda op, _: op.tenants.list()),
    "tenants.get": (World.set_tenant, lambda op, it: op.tenants.get(it)),
    "tenants.set": (World.set_tenant, lambda op, it: op.tenants.set(it, reason=WHY, weight=2)),
    "tenants.reset": (World.set_tenant, lambda op, it: op.tenants.reset(it, reason=WHY)),
    "limit_keys.list": (World.set_key, lambda op, _: op.limit_keys.list()),
    "limit_keys.get": (World.set_key, lambda op, it: op.limit_keys.get(it)),
    "limit_keys.set": (
        World.set_key,
        lambda op, it: op.limit_keys.set(it, reason=WHY, max_running=2),
    ),
    "limit_keys.reset": (World.set_key, lambda op, it: op.limit_keys.reset(it, reason=WHY)),
    "schedules.list": (World.schedule, lambda op, _: op.schedules.list()),
    "schedules.get": (World.schedule, lambda op, it: op.schedules.get(it)),
    "schedules.ticks": (World.schedule, lambda op, it: op.schedules.ticks(it)),
    "schedules.next": (World.schedule, lambda op, it: op.schedules.next(it)),
    "schedules.add": (
        World.name,
        lambda op, it: op.schedules.add(it, reason=WHY, every="1h", run="nightly"),
    ),
    "schedules.set": (
        World.schedule,
        lambda op, it: op.schedules.set(it, reason=WHY, every="3h"),
    ),
    "schedules.reset": (World.changed, lambda op, it: op.schedules.reset(it, reason=WHY)),
    "schedules.remove": (World.schedule, lambda op, it: op.schedules.remove(it, reason=WHY)),
    "schedules.pause": (World.schedule, lambda op, it: op.schedules.pause(it, reason=WHY)),
    "schedules.resume": (
        lambda w: w.schedule(is_paused=True),
        lambda op, it: op.schedules.resume(it, reason=WHY),
    ),
    "schedules.trigger": (World.schedule, lambda op, it: op.schedules.trigger(it, reason=WHY)),
    "runs.list": (World.run, lambda op, _: op.runs.list()),
    "runs.get": (World.run, lambda op, it: op.runs.get(it)),
    "runs.start": (nothing, lambda op, _: op.runs.start("nightly", reason=WHY)),
    "runs.prepare": (nothing, lambda op, _: op.runs.prepare("nightly", reason=WHY)),
    "dead_letters.list": (World.dead, lambda op, _: op.dead_letters.list()),
    "dead_letters.show": (World.dead, lambda op, it: op.dead_letters.show(it)),
    "dead_letters.triage": (
        World.dead,
        lambda op, it: op.dead_letters.triage(it, kind="transient"),
    ),
    "dead_letters.remediate": (
        World.triaged,
        lambda op, it: op.dead_letters.remediate(it, done=TRANSIENT),
    ),
    "dead_letters.validate": (
        World.remediated,
        lambda op, it: op.dead_letters.validate(it, evidence_ref=WHY, is_safe_to_repeat=True),
    ),
    "dead_letters.replay": (
        World.validated,
        lambda op, it: op.dead_letters.replay(it, reason=WHY),
    ),
    "dead_letters.verify_replay": (
        World.replayed,
        lambda op, it: op.dead_letters.verify_replay(it),
    ),
    "dead_letters.resolve": (
        World.verified,
        lambda op, it: op.dead_letters.resolve(it, notes=WHY),
    ),
    "dead_letters.discard": (World.dead, lambda op, it: op.dead_letters.discard(it, reason=WHY)),
    "dead_letters.fix_forward": (
        World.dead,
        lambda op, it: op.dead_letters.fix_forward(it, reason=WHY, reference="INC-1"),
    ),
    "dead_letters.add_note": (World.dead, lambda op, it: op.dead_letters.add_note(it, WHY)),
    "dead_letters.recover": (
        World.dead,
        lambda op, _: op.dead_letters.recover(
            DeadLetterFilter(state="open"), reason=WHY, steps=["triage"], kind="data", limit=1
        ),
    ),
    "dead_letters.replay_all": (
        World.validated,
        lambda op, _: op.dead_letters.replay_all(
            DeadLetterFilter(state="validated"), reason=WHY, limit=1
        ),
    ),
    "dead_letters.discard_all": (
        World.dead,
        lambda op, _: op.dead_letters.discard_all(
            DeadLetterFilter(state="open"), reason=WHY, limit=1
        ),
    ),
    "bulk_actions.list": (World.bulk_action, lambda op, _: op.bulk_actions.list()),
    "bulk_actions.get": (World.bulk_action, lambda op, it: op.bulk_actions.get(it)),
    "bulk_actions.start": (
        World.dead,
        lambda op, _: op.bulk_actions.start(
            LetterAction("discard", DeadLetterFilter(state="open"), WHY), expected=1_000
        ),
    ),
    "deliveries.list": (World.delivery, lambda op, _: op.deliveries.list()),
    "deliveries.show": (World.delivery, lambda op, it: op.deliveries.show(it)),
    "deliveries.confirm": (
        World.delivery,
        lambda op, it: op.deliveries.confirm(it, reason=WHY),
    ),
    "deliveries.resend": (World.delivery, lambda op, it: op.deliveries.resend(it, reason=WHY)),
    "deliveries.drop": (World.delivery, lambda op, it: op.deliveries.drop(it, reason=WHY)),
    "deliveries.confirm_all": (
        World.delivery,
        lambda op, _: op.deliveries.confirm_all(DeliveryFilter(state="held"), reason=WHY, limit=1),
    ),
    "deliveries.resend_all": (
        World.delivery,
        lambda op, _: op.deliveries.resend_all(DeliveryFilter(state="held"), reason=WHY, limit=1),
    ),
    "deliveries.drop_all": (
        World.delivery,
        lambda op, _: op.deliveries.drop_all(DeliveryFilter(state="held"), reason=WHY, limit=1),
    ),
    "artifacts.list": (World.artifact, lambda op, _: op.artifacts.list()),
    "artifacts.get": (World.artifact, lambda op, it: op.artifacts.get(it)),
    "artifacts.open": (World.artifact, _open),
    "artifacts.link": (World.artifact, lambda op, it: op.artifacts.link(it, reason=WHY)),
    "artifacts.remove": (World.artifact, lambda op, it: op.artifacts.remove(it, reason=WHY)),
    "artifacts.sweep": (nothing, lambda op, _: op.artifacts.sweep(reason=WHY)),
    "api_keys.list": (World.api_key, lambda op, _: op.api_keys.list()),
    "api_keys.get": (World.api_key, lambda op, it: op.api_keys.get(it)),
    "api_keys.create": (
        nothing,
        lambda op, _: op.api_keys.create("n", role="viewer", reason=WHY, org_id=ORG),
    ),
    "api_keys.rotate": (World.api_key, lambda op, it: op.api_keys.rotate(it, reason=WHY)),
    "api_keys.revoke": (World.api_key, lambda op, it: op.api_keys.revoke(it, reason=WHY)),
    "workers.list": (nothing, lambda op, _: op.workers.list()),
    "dead_letters.causes": (World.dead, lambda op, _: op.dead_letters.causes()),
    "changes.subscribe": (nothing, lambda op, _: op.changes.subscribe(["jobs"]).close()),
    "workflows.list": (World.workflow, lambda op, _: op.workflows.list()),
    "workflows.get": (World.workflow, lambda op, it: op.workflows.get(it)),
    "workflows.explain": (World.workflow, lambda op, it: op.workflows.explain(it)),
    "workflows.cancel": (World.workflow, lambda op, it: op.workflows.cancel(it, reason=WHY)),
    "workflows.replay": (
        lambda world: world.workflow(is_failed=True),
        lambda op, it: op.workflows.replay(it, reason=WHY),
    ),
    "workflows.set_budget": (
        World.workflow,
        lambda op, it: op.workflows.set_budget(it, "step", "2.50", reason=WHY),
    ),
    "workflows.send_event": (
        World.workflow,
        lambda op, it: op.workflows.send_event(it, "approved", reason=WHY),
    ),
    "webhooks.list": (World.webhook, lambda op, _: op.webhooks.list()),
    "webhooks.get": (World.webhook, lambda op, it: op.webhooks.get(it)),
    "webhooks.add": (nothing, lambda op, _: op.webhooks.add("https://a.example/x", reason=WHY)),
    "webhooks.rotate": (World.webhook, lambda op, it: op.webhooks.rotate(it, reason=WHY)),
    "webhooks.pause": (World.webhook, lambda op, it: op.webhooks.pause(it, reason=WHY)),
    "webhooks.resume": (
        lambda world: world.webhook(is_paused=True),
        lambda op, it: op.webhooks.resume(it, reason=WHY),
    ),
    "webhooks.remove": (World.webhook, lambda op, it: op.webhooks.remove(it, reason=WHY)),
    "audit.list": (World.job, lambda op, _: op.audit.list()),
    "audit.query": (World.job, lambda op, _: op.audit.query()),
    "audit.cover": (World.job, lambda op, _: op.audit.cover()),
    "audit.verify": (World.job, lambda op, _: list(op.audit.verify())),
    "audit.export": (World.job, lambda op, _: list(op.audit.export(reason=WHY))),
    "audit.seal": (nothing, lambda op, _: op.audit.seal()),
    "batches.list": (World.batch, lambda op, _: op.batches.list()),
    "batches.show": (World.batch, lambda op, it: op.batches.show(it)),
    "batches.can_reach": (World.batch, lambda op, it: op.batches.can_reach(it)),
    "batches.kept": (World.batch, lambda op, _: op.batches.kept()),
    "batches.remaining": (nothing, lambda op, _: op.batches.remaining()),
    "batches.outstanding": (nothing, lambda op, _: op.batches.outstanding()),
    "batches.submitter": (nothing, lambda op, _: op.batches.submitter(reason=WHY).perform()),
    "batches.collector": (nothing, lambda op, _: op.batches.collector(reason=WHY).perform()),
    "batches.cancel": (World.batch, lambda op, it: op.batches.cancel(it, reason=WHY)),
    "batches.adopt": (World.quarantined, lambda op, it: op.batches.adopt(it, reason=WHY)),
    "batches.release": (World.quarantined, lambda op, it: op.batches.release(it, reason=WHY)),
    "batches.accept": (
        World.kept,
        lambda op, it: op.batches.accept(AnswerFilter(batch_id=it), reason=WHY),
    ),
    "batches.probe": (World.account, lambda op, it: op.batches.probe(it, reason=WHY)),
    "costs.report": (nothing, lambda op, _: op.costs.report()),
    "explain": (World.job, lambda op, it: op.explain(it)),
    "cancel": (World.job, lambda op, it: op.cancel(it, reason=WHY)),
    "verify": (nothing, lambda op, _: op.verify(only=["I1"])),
    "doctor": (nothing, lambda op, _: op.doctor()),
    "grant": (World.table, lambda op, it: op.grant([it], reason=WHY)),
}

# The text in the event of a verb without a reason, if any.
SAYS: dict[str, str | None] = {
    "bulk_actions.start": None,
    "jobs.enqueue": None,
    "jobs.enqueue_many": None,
    "dead_letters.triage": "transient",
    "dead_letters.remediate": TRANSIENT[0],
    "dead_letters.verify_replay": "replay_job_id",
    "dead_letters.add_note": "note_id",
}
