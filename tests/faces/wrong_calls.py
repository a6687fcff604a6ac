"""Every public call with valid arguments, and an invalid value for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast import (
    Access,
    Actor,
    ArtifactState,
    FakeClock,
    Gone,
    Holdfast,
    JobRequest,
    KeySettings,
    Priority,
    QueueSettings,
    RetryPolicy,
    TenantSettings,
    chain,
)
from holdfast.artifacts.operator import ArtifactFilter
from holdfast.artifacts.settings import ArtifactSettings
from holdfast.engine.schedule import rows
from holdfast.operate.audit import AuditFilter
from holdfast.operate.bulk_actions import CancelAction
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast.operate.delivery_filter import DeliveryFilter
from holdfast.operate.jobs import JobFilter
from holdfast.operate.queues import QueueFilter
from holdfast.operate.runs import RunFilter
from holdfast.operate.schedules import ScheduleFilter
from holdfast.operate.tenants import RuleFilter
from holdfast.workflows.operator import WorkflowFilter
from holdfast_llm import Route
from holdfast_llm.batch.accept_kept import AnswerFilter
from holdfast_llm.operate.batches import BatchFilter
from holdfast_llm.operate.costs import CostFilter
from holdfast_review import Reviews, Source
from holdfast_rewrite import Rewrites
from holdfast_rewrite.settings import RewriteSettings
from tests.apps.household import HOME, RECIPIENT, ROUTE, SENDER, Heard, furnish, submission
from tests.batch.scripted import ScriptedAccounts, ScriptedProvider
from tests.operate.letters import die_at_once
from tests.outbox.scripted import letter, outbox_with
from tests.story import ORG, make_holdfast

THING = object()
# None of these is an id, an actor, a role, a limit, a time, a flag or a declaration.
JUNK: tuple[Any, ...] = (
    b"x", THING, 1.5, float("nan"), 10**20, -1, "\ud800", "a\x00b", [THING], {"a": THING},
    datetime(2026, 1, 1), timedelta(days=-1), datetime.max, lambda: None,  # noqa: DTZ001, DTZ901
)  # fmt: skip
# Invalid for some types of parameters, and valid for others.
NOT_TEXT: tuple[Any, ...] = (None, 7, True, [], {}, b"x", THING)
NOT_AN_ID = (*NOT_TEXT, "", " ", "not an id", f"{{{ORG}}}", ORG + "\n", "x" * 5_000)
NOT_AN_ACTOR = (
    *NOT_TEXT, "", "ada", "robot:7", "User:7", "user", "user:", ":7", "user:a\nb", "user:\x1b[1m",
    "user:" + "x" * 201, Actor("robot", "7"), Actor("user", ""), Actor("user", 7),
)  # fmt: skip
NOT_A_MATCH: tuple[Any, ...] = (7, "", "PrinterJam", int, [7], {}, b"x", THING, lambda: True)
NOT_A_ROLE = (*NOT_TEXT, "", "root", "ADMIN", "admin ", "system")
NOT_A_LIMIT = (None, True, "5", "", 0, [], {})
NOT_A_FLAG = (None, 1, 0, "yes", "", [], {})
NOT_A_TIME = (None, 7, True, "", "2026-01-01T00:00:00Z", [], {})


@dataclass(frozen=True)
class Call:
    """One public call: its valid arguments, and the invalid values of each."""

    of: str
    make: Callable[..., Any]
    right: Mapping[str, Any]
    wrong: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


ID = {"org_id", "home_id", "user_id", "project_id", "sender_user_id", "recipient_user_id"}
# The invalid values of parameters by name, in addition to the junk; a call may override them.
BY_NAME: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(ID, NOT_AN_ID),
    "actor": NOT_AN_ACTOR,
    "owner": NOT_AN_ACTOR,
    "role": NOT_A_ROLE,
    "limit": NOT_A_LIMIT,
    "since": NOT_A_TIME[1:],
    "until": NOT_A_TIME[1:],
    **dict.fromkeys(("reason", "name", "recipient", "job_type"), NOT_TEXT),
}


class World:
    """An application with one object of each kind that a call needs."""

    def __init__(self, url: str, clock: FakeClock, folder: str) -> None:
        self.clock = clock
        self.hf = make_holdfast(
            url,
            clock,
            rewrite=RewriteSettings(routes=(ROUTE,), without_judge="gate_only"),
            artifacts=ArtifactSettings(store=f"file://{folder}", link_key="k" * 32),
        )
        hf = self.hf
        hf.batch.accounts = ScriptedAccounts(ScriptedProvider(clock))
        self.rewrites = Rewrites(hf, classifier=Heard())
        furnish(self.rewrites)
        self.reviews = Reviews(hf)
        hf.job("work")(lambda job, payload: None)
        hf.job("tell", category="notification")(lambda job, payload: None)
        outbox_with(hf)
        hf.outbox.template("hello", subject="Hi {name}", text="Hello {name}")
        self.job = hf.enqueue("work", {}, org_id=ORG)
        self.sent = self.rewrites.submit(submission())
        self.artifact = hf.artifacts.put(b"x", org_id=ORG, name="a.txt")
        (self.dead,) = die_at_once(hf, Gone())
        (self.delivery,) = hf.outbox.post([letter()], org_id=ORG)
        (self.ended,) = hf.outbox.post([letter()], org_id=ORG)
        hf.operate(actor="user:op", role="admin").deliveries.drop(self.ended.id, reason="r")
        self.desk = hf.operate(actor="user:op", role="admin")
        wanted = CancelAction(JobFilter(queue="q:default"), "r")
        self.bulk_action = self.desk.bulk_actions.start(wanted, expected=10**6).id
        self.webhook = self.desk.webhooks.add("https://a.example/x", reason="r", org_id=ORG)
        self.rewrite_desk = self.rewrites.operate(actor="user:op", role="admin")
        self.key = self.desk.api_keys.create("n", role="viewer", reason="r", org_id=ORG).key
        self.nobody = "0198c0de-0000-7000-8000-0000000000ff"

        @hf.job("flow.step")
        def step() -> None: ...

        self.workflow = chain(step.step()).enqueue(org_id=ORG).id

    def calls(self) -> list[Call]:
        return [
            *self._holdfast(),
            *self._declaring(),
            *self._queues_and_runs(),
            *self._operating(),
            *self._nouns(),
            *self._api_keys(),
            *self._timed(),
            *self._dead_letters(),
            *self._outbox(),
            *self._artifacts(),
            *self._rewrites(),
            *self._reviews(),
            *self._small(),
        ]

    def _holdfast(self) -> list[Call]:
        hf, job, tenant = self.hf, self.job, self.hf.for_org(ORG)
        what = {"job_type": "work", "payload": {}}
        who = {"org_id": ORG, "actor": "user:1", "project_id": self.nobody}
        not_payload = {"payload": (None, 7, "", [], True), "job_type": (*NOT_TEXT, "", "nothing")}
        many = {"job_type": "work", "payloads": [{}], "org_id": ORG}
        not_many = {"payloads": (None, 7, True), "job_type": (*NOT_TEXT, "nothing")}
        tell = {"job_type": "tell", "payload": {}, "org_id": ORG, "actor": "user:1"}
        read = {"job_id": job.id, "org_id": ORG}
        no_id = {"job_id": NOT_AN_ID}
        stop = {**read, "actor": "user:1", "reason": "asked"}
        act = {"actor": "user:1", "role": "admin", "org_id": ORG}
        asked: dict[str, Any] = {
            **what, **who, "idempotency_key": "k", "request_id": "r", "correlation_id": "c",
            "queue": "q:default", "priority": "high", "max_attempts": 2, "limit_key": "k",
            "not_before_at": self.clock.now(),
        }  # fmt: skip
        not_asked = {
            **not_payload, "project_id": NOT_AN_ID[1:], "queue": (7, "", "default", [], {}),
            "priority": (7, "", "urgent", [], {}), "max_attempts": (0, 101, "2", True, []),
            "not_before_at": NOT_A_TIME[1:], "idempotency_key": (7, "", [], "x" * 501),
            "request_id": (7, "", [], "a\nb"), "correlation_id": (7, "", []),
            "limit_key": (7, "", [], "A B"),
        }  # fmt: skip
        key = {"job_type": "work", "idempotency_key": "k", "org_id": ORG, "project_id": ORG}
        no_org = {"org_id": NOT_AN_ID[1:]}
        return [
            Call("Holdfast.enqueue", hf.enqueue, asked, not_asked),
            Call("Holdfast.aenqueue", hf.aenqueue, {**what, **who}, not_asked),
            Call("Holdfast.enqueue_many", hf.enqueue_many, many, not_many),
            Call("Holdfast.aenqueue_many", hf.aenqueue_many, many, not_many),
            Call("Holdfast.notify", hf.notify, tell, not_payload),
            Call("Holdfast.anotify", hf.anotify, tell, not_payload),
            Call("Holdfast.prepare", hf.prepare, {**what, "job_id": self.nobody, "org_id": ORG},
                 {**not_payload, **no_id}),
            Call("Holdfast.for_org", hf.for_org, {"org_id": ORG}),
            Call("Holdfast.get", hf.get, read, {**no_id, **no_org}),
            Call("Holdfast.cancel", hf.cancel, stop, {**no_id, **no_org}),
            Call("Holdfast.aget", hf.aget, read, {**no_id, **no_org}),
            Call("Holdfast.acancel", hf.acancel, stop, {**no_id, **no_org}),
            Call("Holdfast.find_key", hf.find_key, key,
                 {**no_org, "project_id": NOT_AN_ID[1:], "idempotency_key": (*NOT_TEXT, "")}),
            Call("Holdfast.operate", hf.operate, act, {"org_id": NOT_AN_ID[1:]}),
            Call("Holdfast.worker", hf.worker,
                 {"queues": ["q:default"], "concurrency": 1, "async_concurrency": 1,
                  "worker_id": "w", "drain_seconds": 1.0},
                 {"queues": (None, 7, "q:default"), "concurrency": (None, 0, "2", True),
                  "async_concurrency": (None, 0, "2", True), "worker_id": (7, "", []),
                  "drain_seconds": (None, "1", True)}),
            Call("Holdfast.wake", hf.wake, {"queues": ["q:default"]},
                 {"queues": (None, 7, "q:default", [7], [""])}),
            Call("Holdfast.use_store", hf.use_store, {"store": hf.store}, {"store": NOT_TEXT}),
            Call("Holdfast.sync", hf.sync, {"borrowed": False}, {"borrowed": NOT_A_FLAG}),
            Call("Tenant.enqueue", tenant.enqueue, what, not_payload),
            Call("Tenant.enqueue_many", tenant.enqueue_many, {"job_type": "work", "payloads": [{}]},
                 not_many),
            Call("Tenant.notify", tenant.notify, {"job_type": "tell", "payload": {}}, not_payload),
            Call("Tenant.get", tenant.get, {"job_id": job.id}, no_id),
            Call("Tenant.cancel", tenant.cancel, {"job_id": job.id}, no_id),
        ]  # fmt: skip

    def _declaring(self) -> list[Call]:
        hf = self.hf
        job: dict[str, Any] = {
            "job_type": "new.work", "category": "general", "queue": "q:default",
            "priority": Priority.HIGH, "max_attempts": 2, "retry": RetryPolicy(), "timeout": 1.0,
            "version": "1", "slo": timedelta(1), "cancel_role": "admin",
            "retry_on": (ValueError, "shop.errors.PrinterJam"), "give_up_on": KeyError,
        }  # fmt: skip
        not_job = {
            "job_type": (*NOT_TEXT, "", "A B"), "category": (*NOT_TEXT, "none"),
            "queue": (7, "", "default", [], {}), "priority": (None, 7, "high"),
            "max_attempts": (0, "2", []), "retry": (7, "soon"), "timeout": ("", "1", [], 0),
            "version": (7, [], "a\nb"), "slo": (7, "", 0), "cancel_role": (7, "", "root"),
            "retry_on": NOT_A_MATCH, "give_up_on": NOT_A_MATCH,
        }  # fmt: skip
        pipeline = {name: job[name] for name in ("job_type", "category", "queue", "version")}
        line = hf.pipeline("pipe.line")
        stage = {
            "name": "s", "max_attempts": 1, "retry": RetryPolicy(), "timeout": 1.0,
            "retry_on": ValueError, "give_up_on": ["shop.errors.PrinterJam"],
        }  # fmt: skip
        queue = {"name": "q:x", "weight": 2, "max_running": 1, "max_depth": 1, "rate": "1/second"}
        category = {
            "name": "mine", "queue": "q:default", "max_attempts": 1, "rules": "general",
            "longest_delay": timedelta(1), "key_ttl": timedelta(1), "replay_refusal": "never",
        }  # fmt: skip
        clock = {
            "name": "s1", "cron": "* * * * *", "zone": "UTC", "catch_up": "one",
            "job_type": "tell", "payload": {}, "org_id": ORG,
        }  # fmt: skip
        route = Route("openai", "openai_responses", "m")

        class Work:
            def request(self, item: Any) -> Any: ...

            def accept(self, item: Any, reply: Any) -> Any: ...

        def declared(job_type: Any, **options: Any) -> None:
            hf.job(job_type, **options)(lambda job, payload: None)

        def staged(name: Any, **options: Any) -> None:
            line.stage(name, **options)(lambda job, payload: None)

        def batched(job_type: Any, **options: Any) -> None:
            hf.batch(job_type, **options)(Work)

        limits = {"weight": (0, "2", True), "max_running": (0, "1"), "max_depth": (0, "1")}
        return [
            Call("Holdfast.job", declared, job, not_job),
            Call("Holdfast.declared", hf.declared, {"job_type": "thing.do"},
                 {"job_type": (*NOT_TEXT, "", "unknown")}),
            Call("Holdfast.pipeline", hf.pipeline, pipeline, not_job),
            Call("Pipeline.stage", staged, stage, {**not_job, "name": (*NOT_TEXT, "")}),
            Call("Holdfast.queue", hf.queue, queue,
                 {**limits, "name": (*NOT_TEXT, "", "x", "q:deadletter"), "rate": (7, "", "fast")}),
            Call("Holdfast.limit_key", hf.limit_key, {"name": "customer:*", "max_running": 1},
                 {"name": (*NOT_TEXT, ""), "max_running": (0, "1"), "rate": (7, "", "fast")}),
            Call("Holdfast.category", hf.category, category,
                 {"name": (*NOT_TEXT, "", "general"), "queue": (7, "", "x", "q:deadletter"),
                  "max_attempts": (None, 0, "1", True), "rules": (None, 7, "none"),
                  "longest_delay": (None, 7, ""), "key_ttl": (None, 7, ""),
                  "replay_refusal": (7, "", [])}),
            Call("Holdfast.schedule", hf.schedule, clock,
                 {"name": (*NOT_TEXT, ""), "cron": (7, "", "never"), "zone": (7, "Mars/Base"),
                  "catch_up": (None, 7, "", "some"), "payload": (7, "x", [1])}),
            Call("Batching.__call__", batched,
                 {"job_type": "m.n", "route": route, "category": "general", "stage": "run"},
                 {**not_job, "route": (7, "", []), "stage": (*NOT_TEXT, "")}),
        ]  # fmt: skip

    def _queues_and_runs(self) -> list[Call]:
        hf, queues, runs = self.hf, self.hf.queues, self.hf.runs
        who = {"actor": Actor.read("user:1")}
        name = {"name": "q:exports", **who}
        said = {**name, "reason": "r"}
        key = {"name": "k", **who}
        schedule = {"name": "nightly", **who}

        def pause(name: Any, actor: Any, reason: Any) -> None:
            rows.pause_schedule(hf.store, name, actor=actor, reason=reason)

        def on_store(function: Callable[..., Any]) -> Callable[..., Any]:
            return lambda name, actor: function(hf.store, name, actor=actor)

        def on_app(function: Callable[..., Any]) -> Callable[..., Any]:
            return lambda name, actor: function(hf, name, actor=actor)

        return [
            Call("Queues.set", queues.set, {**name, "settings": QueueSettings()},
                 {"settings": (*NOT_TEXT, TenantSettings())}),
            Call("Queues.set_tenant", queues.set_tenant,
                 {"org_id": ORG, "settings": TenantSettings(), **who}, {"settings": NOT_TEXT}),
            Call("Queues.set_key", queues.set_key,
                 {**key, "settings": KeySettings(max_running=1)}, {"settings": NOT_TEXT}),
            Call("Queues.reset", queues.reset, name),
            Call("Queues.reset_tenant", queues.reset_tenant, {"org_id": ORG, **who}),
            Call("Queues.reset_key", queues.reset_key, key),
            Call("Queues.pause", queues.pause, said),
            Call("Queues.resume", queues.resume, said),
            Call("Runs.trigger", runs.trigger,
                 {"name": "rewrite_orchestrator", "actor": "user:1", "role": "admin",
                  "reason": "r"}),
            Call("Runs.list", runs.list, {"name": "x", "limit": 5, "before": self.nobody},
                 {"name": NOT_TEXT[1:], "before": NOT_AN_ID}),
            Call("Runs.get", runs.get, {"run_id": self.nobody}, {"run_id": NOT_AN_ID}),
            Call("rows.pause_schedule", pause, {**schedule, "reason": "r"}),
            Call("rows.resume_schedule", on_store(rows.resume_schedule), schedule),
            Call("rows.remove_schedule", on_app(rows.remove_schedule), schedule),
            Call("rows.reset_schedule", on_app(rows.reset_schedule), schedule),
        ]  # fmt: skip

    def _operating(self) -> list[Call]:
        desk, audit, deliveries = self.desk, self.desk.audit, self.desk.deliveries
        batches = desk.batches
        job = {"job_id": self.job.id}
        batch = {"batch_id": self.nobody, "reason": "r"}
        sent = {"delivery_id": self.delivery.id, "reason": "r"}
        no_id = dict.fromkeys(("job_id", "batch_id", "delivery_id"), NOT_AN_ID)
        many = {"wanted": DeliveryFilter(state="held"), "reason": "r", "is_dry_run": True,
                "everything": False, "confirm": 1, "limit": 5}  # fmt: skip
        no_many = {"wanted": NOT_TEXT, "is_dry_run": NOT_A_FLAG, "everything": NOT_A_FLAG,
                   "confirm": ("1", True, [])}  # fmt: skip
        page = {"with_ended": False, "limit": 5, "before": self.nobody}
        no_page = {"with_ended": NOT_A_FLAG, "before": NOT_AN_ID}
        now = self.clock.now()
        span = {"org_id": ORG, "since": now, "until": now}
        no_org = {"org_id": NOT_AN_ID[1:]}
        words = {"correlation_id": "c", "request_id": "r", "name": "job.enqueued"}
        bounded = {"by_timer": False, "max_jobs": 5, "concurrency": 1, "async_concurrency": 1}
        no_run = {"by_timer": NOT_A_FLAG, "max_jobs": NOT_A_LIMIT[1:],
                  "concurrency": NOT_A_LIMIT, "async_concurrency": NOT_A_LIMIT}  # fmt: skip
        return [
            Call("Operator.explain", desk.explain, job, no_id),
            Call("Operator.cancel", desk.cancel, {**job, "reason": "r"}, no_id),
            Call("Operator.verify", desk.verify,
                 {"only": ["I39"], "shown": 5, "canaries": ["canary"]},
                 {"only": (None, 7, "I39", ["I999"]), "shown": (None, "5", True),
                  "canaries": (None, 7, "canary")}),
            Call("Operator.grant", desk.grant,
                 {"tables": ["job"], "to": "holdfast_tenant", "privileges": ["SELECT"],
                  "dry_run": True},
                 {"tables": (None, 7, [], [7], [""], "job"), "to": (*NOT_TEXT, "", "postgres"),
                  "privileges": (None, 7, [7], ["NONSENSE"]), "dry_run": NOT_A_FLAG}),
            Call("Operator.doctor", desk.doctor, {"providers": False}, {"providers": NOT_A_FLAG}),
            Call("AuditTrail.list", audit.list,
                 {"wanted": AuditFilter(name="job.enqueued"), "limit": 5, "before": 10},
                 {"wanted": NOT_TEXT[1:], "before": (None, "10", True)}),
            Call("AuditFilter", lambda **k: audit.list(AuditFilter(**k)),
                 {**span, **job, **words, "actor": "user:1"},
                 {**no_org, **dict.fromkeys(words, NOT_TEXT[1:]), "job_id": NOT_AN_ID[1:],
                  "actor": NOT_AN_ACTOR[1:]}),
            Call("AuditTrail.query", audit.query,
                 {**span, **job, **words, "actor": "user:1", "limit": 5, "before": 10},
                 {**no_org, **dict.fromkeys(words, NOT_TEXT[1:]), "job_id": NOT_AN_ID[1:],
                  "actor": NOT_AN_ACTOR[1:], "before": (None, "10", True)}),
            Call("SealedAudit.verify", audit.verify, {"org_id": ORG, "anchors": ()},
                 {**no_org, "anchors": (None, 7, "x", ["x"])}),
            Call("SealedAudit.cover", audit.cover, {"org_id": ORG}, no_org),
            Call("SealedAudit.export", audit.export, {**span, "reason": "r"}, no_org),
            Call("Deliveries.list", deliveries.list, {"wanted": None, **page},
                 {**no_page, "wanted": NOT_TEXT[1:]}),
            Call("DeliveryFilter", lambda **k: deliveries.list(DeliveryFilter(**k)),
                 {"state": "pending", "channel": "post", **job, "reason": "unknown",
                  "recipient": "a", "subject": "s*", "since": now, "until": now},
                 {"state": (7, "", "lost", []), "channel": (7, True, []),
                  "job_id": NOT_AN_ID[1:], **dict.fromkeys(("reason", "recipient", "subject"),
                                                           NOT_TEXT[1:])}),
            Call("Deliveries.show", deliveries.show, {"delivery_id": self.delivery.id}, no_id),
            Call("Deliveries.confirm", deliveries.confirm, {**sent, "provider_id": "p"},
                 {**no_id, "provider_id": (7, "", [])}),
            Call("Deliveries.resend", deliveries.resend, sent, no_id),
            Call("Deliveries.drop", deliveries.drop, sent, no_id),
            *(Call(f"Deliveries.{name}", getattr(deliveries, name), many, no_many)
              for name in ("confirm_all", "resend_all", "drop_all")),
            Call("Batches.list", batches.list, {"wanted": None, **page},
                 {**no_page, "wanted": NOT_TEXT[1:]}),
            Call("BatchFilter", lambda **k: batches.list(BatchFilter(**k)),
                 {"state": "submitted", "mode": "batch"},
                 {"state": (7, True, []), "mode": (7, True, [])}),
            *(Call(f"Batches.{name}", getattr(batches, name), {**bounded, "reason": "r"}, no_run)
              for name in ("submitter", "collector")),
            Call("Batches.show", batches.show, {"batch_id": self.nobody, "limit": 5, "after": 0},
                 {**no_id, "after": (None, "0", True)}),
            Call("Batches.cancel", batches.cancel, batch, no_id),
            Call("Batches.can_reach", batches.can_reach, {"batch_id": self.nobody}, no_id),
            Call("Batches.adopt", batches.adopt, {**batch, "provider_batch_id": "p"},
                 {**no_id, "provider_batch_id": (7, True, [])}),
            Call("Batches.release", batches.release, batch, no_id),
            Call("Batches.probe", batches.probe, {"account": "a", "reason": "r"},
                 {"account": (*NOT_TEXT, "")}),
            Call("Batches.kept", batches.kept, {"where": AnswerFilter()}, {"where": NOT_TEXT}),
            Call("Batches.accept", batches.accept,
                 {"where": AnswerFilter(), "reason": "r", "dry_run": True},
                 {"where": NOT_TEXT, "dry_run": NOT_A_FLAG}),
        ]  # fmt: skip

    def _api_keys(self) -> list[Call]:
        keys = self.desk.api_keys
        made = self.key.id
        key, no_key = {"key_id": made, "reason": "r"}, {"key_id": NOT_AN_ID}
        later = self.clock.now() + timedelta(days=1)
        return [
            Call("ApiKeys.list", keys.list, {"limit": 5, "before": self.nobody},
                 {"before": NOT_AN_ID}),
            Call("ApiKeys.get", keys.get, {"key_id": made}, no_key),
            Call("ApiKeys.create", keys.create,
                 {"name": "n", "role": "viewer", "reason": "r", "org_id": ORG,
                  "scopes": ["jobs:read"], "expires_at": later, "requests_per_minute": 5},
                 {"org_id": NOT_AN_ID[1:], "role": (*NOT_A_ROLE, "member"),
                  "scopes": (7, "jobs:read", ["jobs"], ["jobs:write"], [7], ["frontend", "read"]),
                  "expires_at": NOT_A_TIME[1:], "requests_per_minute": (True, "5", 0, [])}),
            Call("ApiKeys.rotate", keys.rotate, {**key, "overlap": timedelta(hours=1)},
                 {**no_key, "overlap": (None, 7, "1h", timedelta(days=91))}),
            Call("ApiKeys.revoke", keys.revoke, key, no_key),
        ]  # fmt: skip

    def _nouns(self) -> list[Call]:
        """The parts of the operator API that list, change and start objects of the engine."""
        jobs, artifacts, costs = self.desk.jobs, self.desk.artifacts, self.desk.costs
        overview = self.desk.overview
        queues, tenants, keys = self.desk.queues, self.desk.tenants, self.desk.limit_keys
        job, why = {"job_id": self.job.id}, {"reason": "r"}
        page = {"wanted": None, "limit": 5, "before": self.nobody}
        no_page = {"wanted": NOT_TEXT[1:], "before": NOT_AN_ID}
        names = {"wanted": None, "limit": 5, "after": "a"}
        no_names = {"wanted": NOT_TEXT[1:], "after": NOT_TEXT}
        queue = {"name": "q:default", **why}
        no_weight = (0, "", "2", [], 1_000)
        rules = {"set_by": ("", "someone", 7)}
        artifact = {"artifact_id": self.artifact.id}
        no_artifact = {"artifact_id": NOT_AN_ID}
        day = self.clock.now().date()
        return [
            Call("Workers.list", self.desk.workers.list, {}),
            Call("Jobs.list", jobs.list, page, no_page),
            Call("JobFilter", lambda **k: jobs.list(JobFilter(**k)),
                 {"org_id": ORG, "state": "queued", "job_type": "work", "queue": "q:default",
                  "error_class": "GONE"},
                 {"org_id": NOT_AN_ID[1:], "state": (7, "", "lost", []),
                  **dict.fromkeys(("job_type", "queue", "error_class"), (7, "", []))}),
            Call("Jobs.get", jobs.get, job, {"job_id": NOT_AN_ID}),
            Call("Jobs.counts", jobs.counts, {"org_id": ORG}, {"org_id": NOT_AN_ID[1:]}),
            Call("Jobs.explain", jobs.explain, job, {"job_id": NOT_AN_ID}),
            Call("Jobs.cancel", jobs.cancel, {**job, **why}, {"job_id": NOT_AN_ID}),
            Call("Jobs.cancel_all", jobs.cancel_all,
                 {"wanted": JobFilter(queue="q:default"), **why, "is_dry_run": True, "limit": 5},
                 {"wanted": (None, 7, "x", {}), "is_dry_run": NOT_A_FLAG, "limit": NOT_A_LIMIT}),
            Call("BulkActions.list", self.desk.bulk_actions.list, {"limit": 5, "before": "7"},
                 {"limit": NOT_A_LIMIT, "before": (7, "", "x", [])}),
            Call("BulkActions.get", self.desk.bulk_actions.get, {"action_id": self.bulk_action},
                 {"action_id": NOT_AN_ID}),
            Call("BulkActions.start", self.desk.bulk_actions.start,
                 {"request": CancelAction(JobFilter(queue="q:default"), "r"), "expected": 10**6,
                  "tolerance": 0, "idempotency_key": "k", "request_id": "r"},
                 {"request": (None, 7, "x", {}), "expected": (None, -1, "x"),
                  "tolerance": (-1, "x"), "idempotency_key": (7, ""), "request_id": (7,)}),
            Call("Overview.search", overview.search,
                 {"wanted": JobFilter(), "limit": 5, "before": "7"},
                 {"wanted": (7, "x", {}), "limit": NOT_A_LIMIT, "before": (7, "", "x", [])}),
            Call("Overview.depths", overview.depths, {}),
            Call("Overview.stages", overview.stages, job, {"job_id": NOT_AN_ID}),
            *(Call(f"Overview.{name}", getattr(overview, name), {"org_id": ORG},
                   {"org_id": NOT_AN_ID[1:]})
              for name in ("dead_letters", "held_deliveries", "backlogs", "running", "throughput")),
            Call("Jobs.enqueue", jobs.enqueue,
                 {"job_type": "work", "payload": {}, "org_id": ORG, "priority": "high"},
                 {"payload": (None, 7, []), "job_type": (*NOT_TEXT, "none"),
                  "priority": (7, "", "none")}),
            Call("Jobs.enqueue_many", jobs.enqueue_many,
                 {"job_type": "work", "requests": [JobRequest(payload={}, org_id=ORG)]},
                 {"job_type": (*NOT_TEXT, "none"), "requests": (None, 7, [7])}),
            Call("OperatorQueues.list", queues.list, names, no_names),
            Call("QueueFilter", lambda **k: queues.list(QueueFilter(**k)), {"is_paused": True},
                 {"is_paused": (7, "", [])}),
            Call("OperatorQueues.get", queues.get, {"name": "q:default"}),
            Call("OperatorQueues.set", queues.set, {**queue, "weight": 2}, {"weight": no_weight}),
            Call("OperatorQueues.reset", queues.reset, queue),
            Call("OperatorQueues.pause", queues.pause, queue),
            Call("OperatorQueues.resume", queues.resume, queue),
            Call("Tenants.list", tenants.list, names, no_names),
            Call("RuleFilter", lambda **k: tenants.list(RuleFilter(**k)), {"set_by": "code"},
                 rules),
            Call("Tenants.get", tenants.get, {"org_id": ORG}),
            Call("Tenants.set", tenants.set, {"org_id": ORG, **why, "weight": 2},
                 {"weight": no_weight}),
            Call("Tenants.reset", tenants.reset, {"org_id": ORG, **why}),
            Call("LimitKeys.list", keys.list, names, no_names),
            Call("LimitKeys.get", keys.get, {"name": "k"}),
            Call("LimitKeys.set", keys.set, {"name": "k", **why, "max_running": 2},
                 {"max_running": (0, "", [])}),
            Call("LimitKeys.reset", keys.reset, {"name": "k", **why}),
            Call("OperatorArtifacts.list", artifacts.list, page, no_page),
            Call("ArtifactFilter", lambda **k: artifacts.list(ArtifactFilter(**k)),
                 {"org_id": ORG, **job, "state": "stored"},
                 {"org_id": NOT_AN_ID[1:], "job_id": NOT_AN_ID[1:], "state": (7, "", "lost", [])}),
            Call("OperatorArtifacts.get", artifacts.get, artifact, no_artifact),
            Call("OperatorArtifacts.open", artifacts.open, artifact, no_artifact),
            Call("OperatorArtifacts.link", artifacts.link,
                 {**artifact, **why, "expires_in": timedelta(hours=1), "audience": ""},
                 {**no_artifact, "expires_in": (None, 7, "", timedelta(0)), "audience": NOT_TEXT}),
            Call("OperatorArtifacts.remove", artifacts.remove, {**artifact, **why}, no_artifact),
            Call("OperatorArtifacts.sweep", artifacts.sweep, why),
            *self._webhooks(),
            *self._workflows(),
            Call("Costs.report", costs.report, {"wanted": None}, {"wanted": NOT_TEXT[1:]}),
            Call("CostFilter", lambda **k: costs.report(CostFilter(**k)),
                 {"by": ("day",), "since": day, "until": day, "org_id": ORG},
                 {"by": ((), ("none",), 7, ""), "since": (7, "", []), "until": (7, "", []),
                  "org_id": NOT_AN_ID[1:]}),
        ]  # fmt: skip

    def _timed(self) -> list[Call]:
        """Schedules and runs in the operator API."""
        schedules, runs = self.desk.schedules, self.desk.runs
        one = {"name": "nightly", "reason": "r"}
        what = {**one, "cron": "0 3 * * *"}
        no_cron = {"cron": (7, "", "every day", [])}
        run = {"name": "rewrite_orchestrator", "reason": "r", "max_jobs": 5}
        more = {"by_timer": False, "concurrency": 1, "async_concurrency": 1}
        no_run = {"max_jobs": NOT_A_LIMIT[1:], "by_timer": NOT_A_FLAG,
                  "concurrency": NOT_A_LIMIT, "async_concurrency": NOT_A_LIMIT}  # fmt: skip
        return [
            Call("Schedules.list", schedules.list, {"wanted": None, "limit": 5, "after": "a"},
                 {"wanted": NOT_TEXT[1:], "after": NOT_TEXT}),
            Call("ScheduleFilter", lambda **k: schedules.list(ScheduleFilter(**k)),
                 {"is_paused": True, "set_by": "code"},
                 {"is_paused": (7, "", []), "set_by": ("", "someone", 7)}),
            Call("Schedules.get", schedules.get, {"name": "nightly"}),
            Call("Schedules.ticks", schedules.ticks, {"name": "nightly", "limit": 5}),
            Call("Schedules.next", schedules.next, {"name": "nightly", "count": 5},
                 {"count": NOT_A_LIMIT}),
            Call("Schedules.add", schedules.add, what, no_cron),
            Call("Schedules.set", schedules.set, what, no_cron),
            *(Call(f"Schedules.{name}", getattr(schedules, name), one)
              for name in ("reset", "remove", "pause", "resume", "trigger")),
            Call("OperatorRuns.list", runs.list,
                 {"wanted": None, "limit": 5, "before": self.nobody},
                 {"wanted": NOT_TEXT[1:], "before": NOT_AN_ID}),
            Call("RunFilter", lambda **k: runs.list(RunFilter(**k)), {"name": "x"},
                 {"name": NOT_TEXT[1:]}),
            Call("OperatorRuns.get", runs.get, {"run_id": self.nobody}, {"run_id": NOT_AN_ID}),
            Call("OperatorRuns.start", runs.start, run, no_run),
            Call("OperatorRuns.prepare", runs.prepare, {**run, **more}, no_run),
        ]  # fmt: skip

    def _dead_letters(self) -> list[Call]:
        letters = self.desk.dead_letters
        item = {"job_id": self.dead.id, "version": 1}
        said = {**item, "reason": "r"}
        no_item = {"job_id": NOT_AN_ID, "version": ("1", 0, True, [])}
        bulk: dict[str, Any] = {
            "wanted": DeadLetterFilter(job_type="zz"), "reason": "r", "is_dry_run": True,
            "limit": 5, "confirm": 1, "everything": False,
        }  # fmt: skip
        no_bulk = {
            "wanted": NOT_TEXT, "is_dry_run": NOT_A_FLAG, "everything": NOT_A_FLAG,
            "full_restart": NOT_A_FLAG, "confirm": ("1", True, []),
        }  # fmt: skip
        filters = {
            "org_id": ORG, "job_type": "a", "error_class": "A", "queue": "q:default", "stage": "s",
            "kind": "data", "state": "open", "older_than": timedelta(1),
            "since": datetime(2026, 1, 1, tzinfo=UTC),
        }  # fmt: skip
        no_filter = {
            **dict.fromkeys(("job_type", "error_class", "queue", "stage"), (7, "", [])),
            "org_id": NOT_AN_ID[1:], "kind": (7, "", "none"), "state": (7, "", "none"),
            "older_than": (7, "", timedelta(0)), "since": (7, "", datetime(2026, 1, 1)),  # noqa: DTZ001
        }  # fmt: skip
        return [
            Call("DeadLetters.causes", letters.causes, {"wanted": None},
                 {"wanted": NOT_TEXT[1:]}),
            Call("DeadLetters.list", letters.list,
                 {"wanted": None, "with_ended": False, "limit": 5, "before": None},
                 {"wanted": (7, "", []), "with_ended": NOT_A_FLAG, "before": (7, "", "x", [])}),
            Call("DeadLetterFilter", lambda **k: letters.list(DeadLetterFilter(**k)), filters,
                 no_filter),
            Call("DeadLetters.show", letters.show, {"job_id": self.dead.id}, no_item),
            Call("DeadLetters.triage", letters.triage, {**item, "kind": "transient"},
                 {**no_item, "kind": (*NOT_TEXT, "", "none")}),
            Call("DeadLetters.remediate", letters.remediate, {**item, "done": ["x"]},
                 {**no_item, "done": (None, 7, ["nothing"])}),
            Call("DeadLetters.validate", letters.validate,
                 {**item, "evidence_ref": "INC-1", "is_safe_to_repeat": True},
                 {**no_item, "evidence_ref": (*NOT_TEXT, ""), "is_safe_to_repeat": NOT_A_FLAG}),
            Call("DeadLetters.replay", letters.replay, {**said, "full_restart": False},
                 {**no_item, "full_restart": NOT_A_FLAG}),
            Call("DeadLetters.verify_replay", letters.verify_replay, item, no_item),
            Call("DeadLetters.resolve", letters.resolve, {**item, "notes": "n"},
                 {**no_item, "notes": (*NOT_TEXT, "")}),
            Call("DeadLetters.discard", letters.discard, said, no_item),
            Call("DeadLetters.fix_forward", letters.fix_forward, {**said, "reference": "r"},
                 {**no_item, "reference": (*NOT_TEXT, "")}),
            Call("DeadLetters.add_note", letters.add_note, {"job_id": self.dead.id, "body": "b"},
                 {**no_item, "body": (*NOT_TEXT, "")}),
            Call("DeadLetters.recover", letters.recover,
                 {**bulk, "full_restart": False, "steps": ["triage"], "kind": "data", "done": ["x"],
                  "evidence_ref": "INC-1", "on_progress": print},
                 {**no_bulk, "steps": (7, "triage", ["bury"]), "kind": (7, "", "none"),
                  "done": (7, "x", [7]), "evidence_ref": (7, ""), "on_progress": (7, "")}),
            Call("DeadLetters.replay_all", letters.replay_all, {**bulk, "full_restart": False},
                 no_bulk),
            Call("DeadLetters.discard_all", letters.discard_all, bulk, no_bulk),
        ]  # fmt: skip

    def _outbox(self) -> list[Call]:
        outbox, feed = self.hf.outbox, self.hf.outbox.feed
        tell = {"intents": [letter()], "org_id": ORG}
        no_tell = {"intents": (None, 7, [7])}
        hello = {
            "template": "hello", "recipient": "a@example.com", "data": {"name": "x"},
            "channel": "post", "org_id": ORG,
        }  # fmt: skip
        no_hello = {"template": (*NOT_TEXT, "", "none"), "data": (None, 7, []), "channel": NOT_TEXT}
        ids = {"ids": [self.delivery.id], "org_id": ORG}
        no_ids = {"ids": (None, 7, "x", [7], ["x"]), "worker_id": NOT_TEXT}
        mine = {"recipient": "r", "org_id": ORG}
        return [
            Call("Outbox.intend", outbox.intend, tell, no_tell),
            Call("Outbox.aintend", outbox.aintend, {**tell, "conn": None}, {"conn": (7, "x")}),
            Call("Outbox.post", outbox.post, {**tell, "actor": "user:1"}, no_tell),
            Call("Outbox.apost", outbox.apost, tell, no_tell),
            Call("Outbox.template", outbox.template, {"name": "t1", "subject": "s", "text": "t"},
                 {"name": (*NOT_TEXT, "")}),
            Call("Outbox.notify", outbox.notify, hello, no_hello),
            Call("Outbox.anotify", outbox.anotify, hello, no_hello),
            Call("Outbox.erase", outbox.erase, {**mine, "actor": "user:1"}),
            Call("Outbox.list_of_job", outbox.list_of_job, {"job": self.job}, {"job": NOT_TEXT}),
            Call("Outbox.find", outbox.find, ids, no_ids),
            Call("Outbox.deliver", outbox.deliver, {**ids, "worker_id": "w"}, no_ids),
            Call("Outbox.wait_for", outbox.wait_for,
                 {"job": self.job, "ids": [self.ended.id], "with_held": True},
                 {**no_ids, "job": NOT_TEXT, "with_held": NOT_A_FLAG}),
            Call("Outbox.reconcile", outbox.reconcile, {"limit": 5, "worker_id": "w"}, no_ids),
            Call("Outbox.policy", outbox.policy, {"channel": "post"}, {"channel": NOT_TEXT}),
            Call("Feed.list", feed.list,
                 {**mine, "is_unread": False, "limit": 5, "before": self.nobody},
                 {"is_unread": NOT_A_FLAG, "before": NOT_AN_ID}),
            Call("Feed.count_unread", feed.count_unread, mine),
            Call("Feed.read", feed.read, {**mine, "ids": [self.nobody]}, no_ids),
            Call("Feed.read_all", feed.read_all, {**mine, "upto": self.nobody},
                 {"upto": NOT_AN_ID}),
        ]  # fmt: skip

    def _changes(self, **given: Any) -> None:
        self.desk.changes.subscribe(**given).close()

    def _workflows(self) -> list[Call]:
        workflows, why = self.desk.workflows, {"reason": "r"}
        one, no_one = {"workflow_id": self.workflow}, {"workflow_id": NOT_AN_ID}
        event = {"name": "approved", "payload": {}, **why}
        sent = {"name": "approved", "payload": 1, "key": "k", "org_id": ORG, "actor": "user:1"}
        no_event = {"name": (*NOT_TEXT, "", "a b"), "key": (7, "", [])}
        return [
            Call("OperatorWorkflows.list", workflows.list,
                 {"wanted": None, "limit": 5, "before": self.nobody},
                 {"wanted": NOT_TEXT[1:], "before": NOT_AN_ID}),
            Call("WorkflowFilter", lambda **k: workflows.list(WorkflowFilter(**k)),
                 {"org_id": ORG, "state": "running", "name": "chain"},
                 {"org_id": NOT_AN_ID[1:], "state": (7, "", "lost", []), "name": (7, [])}),
            Call("OperatorWorkflows.get", workflows.get, one, no_one),
            Call("OperatorWorkflows.explain", workflows.explain, one, no_one),
            Call("OperatorWorkflows.cancel", workflows.cancel, {**one, **why}, no_one),
            Call("OperatorWorkflows.replay", workflows.replay,
                 {**one, "step": None, **why}, {**no_one, "step": (7, "", "lost", [])}),
            Call("OperatorWorkflows.set_budget", workflows.set_budget,
                 {**one, "step": "first", "usd": "2.50", **why},
                 {**no_one, "step": (7, "", "lost", [], None), "usd": (None, "much", -1, [])}),
            Call("OperatorWorkflows.send_event", workflows.send_event,
                 {**one, **event}, {**no_one, "name": no_event["name"]}),
            Call("Holdfast.send_event", self.hf.send_event, sent,
                 {**no_event, "org_id": NOT_AN_ID[1:], "actor": (7, "", [])}),
            Call("Holdfast.asend_event", lambda **k: asyncio.run(self.hf.asend_event(**k)), sent,
                 {**no_event, "org_id": NOT_AN_ID[1:], "actor": (7, "", [])}),
        ]  # fmt: skip

    def _webhooks(self) -> list[Call]:
        webhooks, url, why = self.desk.webhooks, "https://example.com/hooks", {"reason": "r"}
        one = {"webhook_id": self.webhook.endpoint.id}
        no_one = {"webhook_id": NOT_AN_ID}
        return [
            Call("OperatorChanges.subscribe", self._changes,
                 {"subjects": ["jobs"], "org_id": ORG, "after": "5"},
                 {"subjects": (7, "jobs", [7], ["x"]), "org_id": NOT_AN_ID[1:],
                  "after": (7, "", "x", "5~9")}),
            Call("OperatorWebhooks.list", webhooks.list,
                 {"org_id": ORG, "limit": 5, "after": self.nobody},
                 {"org_id": NOT_AN_ID[1:], "after": NOT_AN_ID}),
            Call("OperatorWebhooks.get", webhooks.get, one, no_one),
            Call("OperatorWebhooks.add", webhooks.add,
                 {"url": url, "org_id": ORG, "events": ["job.*"], **why},
                 {"url": (*NOT_TEXT, "", "ftp://a.example/"), "org_id": NOT_AN_ID[1:],
                  "events": ("job.*", 7, [7], ["A"])}),
            Call("OperatorWebhooks.rotate", webhooks.rotate, {**one, **why}, no_one),
            Call("OperatorWebhooks.pause", webhooks.pause, {**one, **why}, no_one),
            Call("OperatorWebhooks.resume", webhooks.resume, {**one, **why}, no_one),
            Call("OperatorWebhooks.remove", webhooks.remove, {**one, **why}, no_one),
        ]  # fmt: skip

    def _artifacts(self) -> list[Call]:
        artifacts = self.hf.artifacts
        one = {"artifact_id": self.artifact.id, "org_id": ORG, "actor": "user:1"}
        read = {**one, "is_operator": False}
        no_one = {
            "artifact_id": NOT_AN_ID, "is_operator": NOT_A_FLAG, "actor": NOT_AN_ACTOR[1:],
            "expires_in": (None, 7, "", timedelta(0)), "audience": NOT_TEXT,
        }  # fmt: skip
        strict = {**no_one, "actor": NOT_AN_ACTOR}
        put = {
            "content": b"x", "org_id": ORG, "name": "a", "media_type": "text/plain",
            "owner": "user:1", "job_id": self.job.id, "keep": timedelta(1), "access": Access.TENANT,
        }  # fmt: skip
        link = {**read, "expires_in": timedelta(1)}
        return [
            Call("Artifacts.put", artifacts.put, put,
                 {"name": (*NOT_TEXT, "", "a/b"), "media_type": (*NOT_TEXT, "x"),
                  "job_id": NOT_AN_ID[1:], "keep": (7, "", timedelta(0)), "content": (None, 7),
                  "access": (None, 7, "", "none")}),
            Call("Artifacts.get", artifacts.get, read, no_one),
            Call("Artifacts.open", artifacts.open, read, no_one),
            Call("Artifacts.list", artifacts.list,
                 {"org_id": ORG, "job_id": self.job.id, "actor": "user:1", "is_operator": False,
                  "state": ArtifactState.STORED, "limit": 5, "before": self.nobody},
                 {**no_one, "job_id": NOT_AN_ID[1:], "state": (None, 7, "", "lost"),
                  "before": NOT_AN_ID}),
            Call("Artifacts.remove", artifacts.remove, {**read, "reason": "r"}, strict),
            Call("Artifacts.link", artifacts.link, {**link, "audience": ""}, strict),
            Call("Artifacts.presigned_url", artifacts.presigned_url, link, strict),
            Call("Artifacts.open_link", artifacts.open_link, {"token": "x", "audience": ""},
                 {"token": (*NOT_TEXT, ""), "audience": NOT_TEXT}),
            Call("Artifacts.upkeep", artifacts.upkeep, {"limit": 5}),
        ]  # fmt: skip

    def _rewrites(self) -> list[Call]:
        rewrites, desk, directory = self.rewrites, self.rewrite_desk, self.rewrites.directory
        sent = {"rewrite_request_id": self.sent.rewrite_request_id}
        whose = {"home_id": HOME, "user_id": SENDER}
        page = {**whose, "limit": 5, "before": self.nobody}
        no_id = {"rewrite_request_id": NOT_AN_ID, "before": NOT_AN_ID}
        some = {"user_id": NOT_AN_ID[1:], "home_id": NOT_AN_ID[1:]}
        pair = {"home_id": HOME, "sender_user_id": SENDER, "recipient_user_id": RECIPIENT}
        message: dict[str, Any] = {
            **pair, "sender_message": "Please", "surface": "other", "emotion_context": "rainy",
            "feedback_cycle_start": self.clock.now().date(),
        }  # fmt: skip
        no_message = {
            "sender_message": NOT_TEXT, "surface": NOT_TEXT, "emotion_context": (7, []),
            "feedback_cycle_start": (7, "", "monday"),
        }  # fmt: skip
        hf, held = self.hf, desk.held
        return [
            Call("Rewrites", lambda **k: Rewrites(hf, **k),
                 {"directory": directory, "classifier": Heard(), "detector": rewrites.detector},
                 dict.fromkeys(("directory", "classifier", "detector"), (7, "", []))),
            Call("Rewrites.submit", rewrites.submit, {"submission": submission()},
                 {"submission": NOT_TEXT}),
            Call("Submission", lambda **k: rewrites.submit(type(submission())(**k)), message,
                 no_message),
            Call("Rewrites.submit_many", rewrites.submit_many, {"submissions": [submission()]},
                 {"submissions": (None, 7, "x", [7])}),
            Call("Rewrites.find_sent", rewrites.find_sent, {**sent, **whose}, no_id),
            Call("Rewrites.list_sent", rewrites.list_sent, page, no_id),
            Call("Rewrites.list_received", rewrites.list_received, page, no_id),
            Call("Rewrites.operate", rewrites.operate,
                 {"actor": "user:1", "role": "admin", "org_id": HOME},
                 {"org_id": NOT_AN_ID[1:]}),
            Call("RewriteDesk.show", desk.show, sent, no_id),
            Call("RewriteDesk.erase", desk.erase,
                 {"user_id": self.nobody, "home_id": self.nobody, "reason": "r"}, some),
            Call("RewriteDesk.export", desk.export,
                 {"user_id": self.nobody, "home_id": self.nobody}, some),
            Call("HeldRewrites.list", held.list, {"reason": "policy", "limit": 5},
                 {"reason": (7, "", "why")}),
            Call("HeldRewrites.show", held.show, sent, no_id),
            Call("HeldRewrites.approve", held.approve, {**sent, "reason": "r"}, no_id),
            Call("HeldRewrites.edit", held.edit,
                 {**sent, "text": "Could you take the bins out?", "reason": "r"},
                 {**no_id, "text": NOT_TEXT}),
            Call("HeldRewrites.reject", held.reject, {**sent, "reason": "r"}, no_id),
            Call("SqlDirectory.look", directory.look, pair),
            Call("SqlDirectory.look_many", directory.look_many, {"pairs": []},
                 {"pairs": (None, 7, "x", [7])}),
            Call("SqlDirectory.add_home", directory.add_home, {"home_id": HOME}),
            Call("SqlDirectory.add_member", directory.add_member,
                 {**whose, "role": "housemate", "locale": "en"},
                 {"role": (*NOT_TEXT, "", "king"), "locale": (7, "", "??", [])}),
            Call("SqlDirectory.change_locale", directory.change_locale,
                 {**whose, "locale": "en"}, {"locale": (7, "", "??", [])}),
            Call("SqlDirectory.leave", directory.leave, whose),
            Call("SqlDirectory.answer", directory.answer,
                 {**whose, "preference_id": "communication_directness", "value_key": "gentle"},
                 {"preference_id": (*NOT_TEXT, "", "none"), "value_key": (*NOT_TEXT, "", "none")}),
            Call("SqlDirectory.block", directory.block, whose),
            Call("SqlDirectory.unblock", directory.unblock, whose),
        ]  # fmt: skip

    def _reviews(self) -> list[Call]:
        reviews = self.reviews
        patch = b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
        made = {
            "changelist_id": "c", "review_version": 1, "idempotency_key": "k", "org_id": ORG,
            "source": Source.posted(patch), "recipients": (), "actor": "user:1",
        }  # fmt: skip
        no_change = {"changelist_id": (*NOT_TEXT, "")}
        no_made = {
            **no_change, "review_version": (None, True, 0, "", "x"), "source": (7, ""),
            "idempotency_key": (*NOT_TEXT, ""), "recipients": (7, "x", [7]), "rerun": NOT_A_FLAG,
            "request_id": (7, []), "correlation_id": (7, []),
        }  # fmt: skip
        end = {"org_id": ORG, "reason": "r", "actor": "user:1"}
        return [
            Call("Reviews.submit", reviews.submit,
                 {**made, "rerun": False, "request_id": "r", "correlation_id": "c"}, no_made),
            Call("Reviews.rerun", reviews.rerun, made, no_made),
            Call("Reviews.store_patch", reviews.store_patch,
                 {"patch": patch, "org_id": ORG, "actor": "user:1"}, {"patch": NOT_TEXT}),
            Call("Reviews.find", reviews.find, {"review_id": self.nobody, "org_id": ORG},
                 {"review_id": NOT_AN_ID}),
            Call("Reviews.find_version", reviews.find_version,
                 {"changelist_id": "c", "review_version": 1, "org_id": ORG},
                 {**no_change, "review_version": (True, 0, "", "x")}),
            Call("Reviews.erase", reviews.erase, {"changelist_id": "c", **end}, no_change),
            Call("Reviews.erase_recipient", reviews.erase_recipient, {"recipient": "r", **end}),
        ]  # fmt: skip

    def _small(self) -> list[Call]:
        policy = {"first": timedelta(1), "multiplier": 2.0, "longest": timedelta(1), "steps": ()}
        from holdfast import Rate, Snooze, Transient, key_for

        def snoozed(delay: Any) -> None:
            Snooze(delay)

        return [
            Call("Holdfast", Holdfast,
                 {"db": "sqlite:", "settings": self.hf.settings, "clock": self.clock, "rng": None,
                  "classify_error": lambda exc: None},
                 {**dict.fromkeys(("settings", "clock", "rng"), (7, "", [])),
                  "classify_error": (7, "", [], ValueError, lambda: None)}),
            Call("FakeClock", FakeClock, {"start": self.clock.now()}, {"start": NOT_A_TIME[1:]}),
            Call("FakeClock.advance", lambda **k: FakeClock().advance(**k), {"seconds": 1},
                 {"seconds": (None, "1", [])}),
            Call("RetryPolicy", RetryPolicy, policy,
                 {"first": (None, 7, timedelta(0)), "longest": (None, 7, timedelta(0)),
                  "multiplier": (None, 0, "2"), "steps": (None, 7, (7,))}),
            Call("Rate", Rate, {"count": 1, "seconds": 1},
                 dict.fromkeys(("count", "seconds"), (None, 0, "1", True))),
            Call("key_for", lambda **k: key_for(**k),
                 {"job_type": "work", "org_id": ORG, "project_id": ORG},
                 {"job_type": (*NOT_TEXT, "", "A B"), "project_id": NOT_AN_ID[1:]}),
            Call("Snooze", snoozed, {"delay": 1}, {"delay": (None, "1", [])}),
            Call("Transient", Transient, {"retry_after": 1}, {"retry_after": ("1", [])}),
        ]  # fmt: skip
