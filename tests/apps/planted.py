"""Rewrite requests written by hand: what an orchestrator leaves, without one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from holdfast import FakeClock, Holdfast, Producer
from holdfast.clock import write_instant
from holdfast.document import encode
from holdfast.engine.audit import subject_id
from holdfast.engine.bounded_run import perform_run
from holdfast.engine.retry import RetryPolicy
from holdfast.engine.run_log import Trigger, TriggerKind
from holdfast.store import Row, Store
from holdfast_llm.provider.echo import ECHO
from holdfast_llm.provider.reply import Answer, Failure, Reply, Usage
from holdfast_llm.settings import collector_of, submitter_of
from holdfast_rewrite.context_pack import build_pack
from holdfast_rewrite.detect import Detected, Detector
from holdfast_rewrite.enums import (
    JOB_TYPE,
    HomeRole,
    Lane,
    Level,
    MessageIntent,
    SafetyFlag,
    Strength,
    Surface,
    Topic,
)
from holdfast_rewrite.model import ClassifierResult, Confidences, RewriteRequest
from holdfast_rewrite.payload import RowPayload
from holdfast_rewrite.policy import policy_of
from holdfast_rewrite.work import SQL, RewriteWork
from tests.apps.household import HOME, RECIPIENT, SENDER
from tests.apps.household import OTHER_HOME as OTHER_HOME
from tests.apps.household import STRANGER as STRANGER
from tests.batch.scripted import ScriptedAccounts, ScriptedProvider
from tests.story import by_hand, look

ORIGINAL = "You never take the bins out, this is disgusting. Take them out tonight."
REWRITE = "Could you take the bins out tonight? It would help me a lot."


class Deaf:
    """A detector that can never tell: what is declared decides."""

    def detect(self, text: str) -> Detected:
        return Detected("und", Level.LOW)


@dataclass(frozen=True, slots=True)
class Planted:
    """A request by hand, and the job that it has."""

    request: RewriteRequest
    job_id: str

    @property
    def id(self) -> str:
        return self.request.rewrite_request_id


@dataclass(slots=True)
class Stage:
    """An application that rewrites, with a provider that does what the test says."""

    hf: Holdfast
    clock: FakeClock
    provider: ScriptedProvider
    producer: Producer
    planted: list[Planted] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return self.hf.store

    def request(
        self,
        text: str = ORIGINAL,
        *,
        home: str = HOME,
        sender: str = SENDER,
        recipient: str = RECIPIENT,
        source: str = "en",
        target: str = "en",
        strength: Strength = Strength.LIGHT_TOUCH,
        intent: MessageIntent = MessageIntent.REQUEST,
    ) -> RewriteRequest:
        """A request document, whole and sound."""
        result = ClassifierResult(
            "v1",
            source,
            (Topic.CLEANLINESS,),
            intent,
            strength,
            Confidences(Level.HIGH, Level.HIGH, Level.HIGH),
            (SafetyFlag.NONE,),
        )
        pack = build_pack(
            recipient_user_id=recipient,
            target_language=target,
            sender_role=HomeRole.HOUSEMATE,
            recipient_role=HomeRole.HOUSEMATE,
            topics=result.topics,
            answers={"communication_directness": "gentle"},
        )
        new = self.hf.ids.new
        return RewriteRequest(
            rewrite_request_id=new(),
            home_id=home,
            sender_user_id=sender,
            recipient_user_id=recipient,
            recipient_snapshot_id=new(),
            recipient_preference_snapshot_id=new(),
            surface=Surface.WEEKLY_HARMONY,
            original_text=text,
            topics=result.topics,
            intent=result.intent,
            rewrite_strength=strength,
            source_locale=source,
            target_locale=target,
            lane=Lane.between(source, target),
            classifier_result=result,
            context_pack=pack,
            policy=policy_of(result, pack),
            classifier_version="v1",
            context_pack_version="v1",
            policy_version="v1",
            created_at=write_instant(self.clock.now()),
        )

    def plant(
        self,
        text: str = ORIGINAL,
        *,
        mode: str = "batch",
        delay: timedelta | None = None,
        **options: Any,
    ) -> Planted:
        """A request that has come as far as its job, which may begin after *delay*."""
        request = self.request(text, **options)
        plant_queued(self.store, request)
        return self.enqueue(request, mode=mode, delay=delay)

    def enqueue(
        self,
        request: RewriteRequest,
        *,
        mode: str = "batch",
        payload: Any = None,
        delay: timedelta | None = None,
    ) -> Planted:
        """The second half of what an orchestrator does, for a request that is queued."""
        decision = route_of(request, mode)
        row = RowPayload.from_request(request)
        job = self.hf.enqueue(
            JOB_TYPE,
            row.document if payload is None else payload,
            org_id=request.home_id,
            unit_key=row.unit_key,
            routing_decision=decision,
            producer=self.producer,
            not_before_at=None if delay is None else self.clock.now() + delay,
        )
        made = Planted(request, job.id)
        plant_enqueued(self.store, made, mode)
        self.planted.append(made)
        return made

    # -- going on

    def submit(self) -> None:
        perform_run(self.hf, submitter_of(self.hf.settings), trigger=CRON)

    def collect(self) -> None:
        self.clock.advance(minutes=30)
        perform_run(self.hf, collector_of(self.hf.settings), trigger=CRON)

    def answer(self, data: Any = None) -> None:
        """Everything is handed over, the provider says *data* to each, and it is brought back."""
        self.submit()
        self.say(data)
        self.provider.complete()
        self.collect()

    def say(self, data: Any = None) -> None:
        """What the provider answers: a document, or what a function makes of an item's inputs."""
        given = {"rewritten_text": REWRITE, "output_language": "en"} if data is None else data

        def answer(line: dict[str, Any]) -> Answer:
            said = given(line["body"]["input"]) if callable(given) else given
            if isinstance(said, Failure):
                return said
            if line["body"].get("echo"):
                said = {**said, ECHO: line["body"]["echo"]}
            usage = Usage(input=10, output=5)
            return Reply(json.dumps(said), "model-1", usage, "req-1", None, said)

        self.provider.answer = answer

    # -- looking

    def row(self, planted: Planted) -> Row:
        (found,) = look(
            self.store,
            "SELECT * FROM holdfast.rewrite_request WHERE rewrite_request_id = :id",
            id=planted.id,
        )
        return found

    def outputs(self) -> list[Row]:
        return look(self.store, "SELECT * FROM holdfast.rewrite_output ORDER BY rewrite_request_id")

    def job(self, planted: Planted) -> Any:
        return self.hf.get(planted.job_id, org_id=planted.request.home_id)

    def told(self, planted: Planted) -> list[str]:
        """The names of a request's events, in order."""
        rows = look(
            self.store,
            "SELECT name FROM holdfast.job_event WHERE job_id = :subject ORDER BY id",
            subject=subject_id(f"rewrite:{planted.id}"),
        )
        return [row["name"] for row in rows]


CRON = Trigger(TriggerKind.CRON)


def set_stage(hf: Holdfast, clock: FakeClock, detector: Detector | None = None) -> Stage:
    """The work of rewrites on an application, without its orchestrator."""
    provider = ScriptedProvider(clock)
    hf.batch.accounts = ScriptedAccounts(provider)
    work = RewriteWork(detector or Deaf(), hf.clock)
    producer = Producer("rewrites.submit(…)")
    retry = RetryPolicy.by_run()
    hf.batch(JOB_TYPE, max_attempts=2, retry=retry, stores=SQL.insert_outputs, producer=producer)(
        work
    )
    return Stage(hf, clock, provider, producer)


def route_of(request: RewriteRequest, mode: str = "batch") -> dict[str, Any]:
    return {
        "provider": "openai",
        "adapter_kind": "scripted",
        "base_url": None,
        "model": "model-1",
        "prompt_version": "v1",
        "policy_version": request.policy_version,
        "execution_mode": mode,
        "supports_translation": True,
        "cache_eligible": False,
        "max_retries": 2,
        "lane": str(request.lane),
        "source_locale": request.source_locale,
        "target_locale": request.target_locale,
    }


def plant_queued(store: Store, request: RewriteRequest) -> None:
    """What the orchestrator's first transaction leaves."""
    ids = {
        "org_id": request.home_id,
        "id": request.rewrite_request_id,
    }
    by_hand(
        store,
        "INSERT INTO holdfast.rewrite_request (org_id, rewrite_request_id, sender_user_id,"
        " recipient_user_id, surface, iso_week_year, iso_week, step, status,"
        " recipient_snapshot_id, recipient_preference_snapshot_id, request_id, correlation_id,"
        " created_at, queued_at, updated_at) VALUES (:org_id, :id, :sender, :recipient, :surface,"
        " 2026, 1, 'queued', 'queued', :snapshot, :preferences, :asked, :asked, {now}, {now},"
        " {now})",
        sender=request.sender_user_id,
        recipient=request.recipient_user_id,
        surface=str(request.surface),
        snapshot=request.recipient_snapshot_id,
        preferences=request.recipient_preference_snapshot_id,
        asked=request.rewrite_request_id,
        **ids,
    )
    by_hand(
        store,
        "INSERT INTO holdfast.rewrite_message (org_id, rewrite_request_id, original_text,"
        " emotion_context, created_at) VALUES (:org_id, :id, :said, 'rainy', {now})",
        said=request.original_text,
        **ids,
    )
    by_hand(
        store,
        "INSERT INTO holdfast.recipient_snapshot (org_id, recipient_snapshot_id,"
        " rewrite_request_id, recipient_user_ids, created_at)"
        " VALUES (:org_id, :snapshot, :id, :named, {now})",
        snapshot=request.recipient_snapshot_id,
        named=json.dumps([request.recipient_user_id]),
        **ids,
    )
    by_hand(
        store,
        "INSERT INTO holdfast.recipient_preference_snapshot (org_id,"
        " recipient_preference_snapshot_id, rewrite_request_id, recipient_user_id,"
        " preference_payload, created_at)"
        " VALUES (:org_id, :snapshot, :id, :recipient, :payload, {now})",
        snapshot=request.recipient_preference_snapshot_id,
        recipient=request.recipient_user_id,
        payload='{"communication_directness":"gentle"}',
        **ids,
    )


def plant_enqueued(store: Store, planted: Planted, mode: str = "batch") -> None:
    """What the orchestrator's second transaction makes of a request that is queued."""
    request = planted.request
    document = request.document
    by_hand(
        store,
        "UPDATE holdfast.rewrite_request SET step = 'enqueued', source_locale = :source,"
        " target_locale = :target, lane = :lane, topics = :topics, intent = :intent,"
        " rewrite_strength = :strength, classifier_result = :result, context_pack = :pack,"
        " policy = :policy, routing_decision = :decision, rewrite_request = :document,"
        " request_hash = :hash, classifier_version = 'v1', context_pack_version = 'v1',"
        " policy_version = 'v1', job_id = :job_id, classified_at = {now}, context_built_at = {now},"
        " routed_at = {now}, enqueued_at = {now}, updated_at = {now}"
        " WHERE org_id = :org_id AND rewrite_request_id = :id",
        org_id=request.home_id,
        id=planted.id,
        source=request.source_locale,
        target=request.target_locale,
        lane=str(request.lane),
        topics=encode(document["topics"]),
        intent=str(request.intent),
        strength=str(request.rewrite_strength),
        result=encode(document["classifier_result"]),
        pack=encode(document["context_pack"]),
        policy=encode(document["policy"]),
        decision=encode(route_of(request, mode)),
        document=encode(document),
        hash=request.hash,
        job_id=planted.job_id,
    )
