"""Jobs that fail on demand, and operators who recover their dead letters step by step."""

from __future__ import annotations

from typing import Any

from holdfast import (
    Context,
    Enqueued,
    FakeClock,
    Holdfast,
    Job,
    JobRequest,
    Producer,
    State,
)
from holdfast.operate.dead_letter import CHECKLISTS, DeadLetter, DeadLetterKind
from holdfast.operate.dead_letters import DeadLetters
from holdfast.store import Row
from holdfast_rewrite.rewrites import NEVER_REPLAYED
from tests.story import ORG, look

STAGES = ("fetch", "think", "tell")
REWRITE = "complaint_rewrite"
PRODUCER = Producer("rewrites.submit(…)")


class Review:
    """A job of three stages; *faults* has the errors of its stages, *ran* the stages that ran."""

    job_type = "review.run"

    def __init__(self, hf: Holdfast, *, attempts: int = 5, **options: Any) -> None:
        self.hf = hf
        self.ran: list[str] = []
        self.seen: list[dict[str, Any]] = []
        self.faults: dict[str, BaseException] = {}
        pipeline = hf.pipeline(self.job_type, **options)
        for name in STAGES:
            pipeline.stage(name, max_attempts=attempts)(self._run)

    def _run(self, job: Context, payload: Any) -> dict[str, Any]:
        self.ran.append(job.stage)
        self.seen.append(dict(job.outputs))
        if job.stage in self.faults:
            raise self.faults[job.stage]
        return {"by": job.stage, "of": payload.get("n")}

    def die(self, clock: FakeClock, fault: BaseException, **options: Any) -> Enqueued:
        """Enqueue one and work until its last stage has no attempts left."""
        self.faults = {"tell": fault}
        job = self.hf.enqueue(self.job_type, {"n": 1}, **{"org_id": ORG, **options})
        work(self.hf, clock)
        assert self.hf.get(job.id, org_id=job.org_id).state is State.FAILED
        return job


def work(hf: Holdfast, clock: FakeClock, *, hours: int = 8) -> None:
    """Let a worker run all jobs that become due in the next hours."""
    worker = hf.worker()
    for _ in range(hours):
        worker.run_once()
        clock.advance(hours=1)
    worker.run_once()


def operator(hf: Holdfast, **who: Any) -> DeadLetters:
    return DeadLetters(hf.operate(**{"actor": "user:ann", "role": "operator", **who}).context)


def prepare(letters: DeadLetters, job: Enqueued | Job, kind: str = "transient") -> DeadLetter:
    """All steps before a replay."""
    letters.triage(job.id, kind=kind)
    letters.remediate(job.id, done=list(CHECKLISTS[DeadLetterKind(kind)]))
    return letters.validate(job.id, evidence_ref="INC-7", is_safe_to_repeat=True)


def replay(letters: DeadLetters, job: Enqueued | Job, **options: Any) -> str:
    """All steps to a replay; the id of its job."""
    prepare(letters, job)
    return letters.replay(job.id, **{"reason": "it is mended", **options}).replay_job_id


def die_at_once(
    hf: Holdfast, fault: BaseException, *, job_type: str = "mail.send", count: int = 1, **more: Any
) -> list[Enqueued]:
    """Some jobs of one stage that fail permanently at their first attempt."""

    def fail(job: Context, payload: Any) -> None:
        raise fault

    # Only a producer enqueues rewrites, each with its execution unit.
    producer = PRODUCER if job_type == REWRITE else None
    if job_type not in hf.registry:
        category = more.pop("category", "general")
        refusal = NEVER_REPLAYED if job_type == REWRITE else None
        options: dict[str, Any] = {"producer": producer, "replay_refusal": refusal}
        hf.job(job_type, max_attempts=1, category=category, **options)(fail)
    given = {"org_id": ORG, "producer": producer, **more}
    requests = [
        JobRequest({"n": number}, unit_key=None if producer is None else hf.ids.new(), **given)
        for number in range(count)
    ]
    jobs = hf.enqueue_many(job_type, requests)
    hf.worker().run_once(limit=count)
    return jobs


def refusals(hf: Holdfast) -> list[Row]:
    return look(
        hf.store,
        "SELECT org_id, actor_id, detail FROM holdfast.job_event"
        " WHERE name = 'operator.refused' ORDER BY id",
    )
