"""One object of each kind that a page of the console shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast import DeadLetterFilter, FakeClock, Transient
from holdfast.engine.worker.heartbeat import Heartbeat
from holdfast.operate.bulk_actions import LetterAction
from tests.apps.judged import Court, verdict
from tests.apps_review.bench import Bench
from tests.console.site import World
from tests.outbox.planted import plant_delivery
from tests.outbox.scripted import ScriptedChannel
from tests.story import ORG, OTHER_ORG
from tests.workflows.flow import two_steps


class Everything:
    """An application with objects for every page.

    Its history has *minutes* of work, on a clock that ends now.
    """

    def __init__(self, url: str, *, minutes: int = 0) -> None:
        self.clock = FakeClock(datetime.now(UTC) - timedelta(hours=3))
        self.court = Court(url, self.clock)
        self.court.says = verdict("threat", quote="help me a lot")
        self.hf = self.court.hf
        self.held = self.court.send()
        self.review = Bench(self.hf, self.clock, ScriptedChannel(self.clock)).succeed().review
        self._work(minutes)
        self.world = World(self.hf, dead=12, work=30)
        for worker in ("worker-1", "worker-2"):
            queues = sorted(self.hf.known_queues)
            Heartbeat(self.hf.store, {}, worker, queues, [], lease_ms=60_000).send()
        self.delivery = plant_delivery(self.hf, "held", tries=(("first", "unsure"),))
        self.workflow = two_steps(self.hf)
        operator = self.hf.operate(actor="user:ann", role="admin")
        discard = LetterAction("discard", DeadLetterFilter(error_class="DEFECT"), "INC-7")
        self.bulk_action = operator.bulk_actions.start(discard, expected=1).id
        self.batch = next(iter(operator.batches.list(with_ended=True))).id
        self.run = next(iter(operator.runs.list())).run_id

    def _work(self, minutes: int) -> None:
        """A few jobs a minute; some are retried once."""

        def send(job: Any, payload: dict[str, Any]) -> None:
            if payload["n"] % 11 == 0 and job.attempt == 1:
                raise Transient

        self.hf.job("mail.send")(send)
        self.clock.advance(datetime.now(UTC) - timedelta(minutes=minutes) - self.clock.now())
        worker = self.hf.worker()
        for minute in range(minutes):
            count = 6 + minute * 7 % 9
            org_id = OTHER_ORG if minute % 3 else ORG
            self.hf.enqueue_many("mail.send", [{"n": n} for n in range(count)], org_id=org_id)
            worker.run_once(limit=50)
            self.clock.advance(minutes=1)

    def objects(self) -> dict[str, str]:
        """A page of each kind of object, by the name of its picture."""
        review = self.review
        return {
            "job": f"/console/jobs/{self.world.retried.id}",
            "dead-letter": f"/console/dead-letters/{self.world.dead[0].id}",
            "dead-letters-bulk": "/console/dead-letters/bulk?step=triage&error_class=GONE",
            "jobs-bulk": "/console/jobs/bulk?job_type=leaflet.print",
            "deliveries-bulk": "/console/deliveries/bulk?state=held&channel=mail&decision=drop",
            "queue": "/console/queues/q:default",
            "schedule": "/console/schedules/nightly",
            "tenant": f"/console/tenants?org_id={ORG}",
            "delivery": f"/console/deliveries/{self.delivery}",
            "run": f"/console/runs/{self.run}",
            "batch": f"/console/batches/{self.batch}",
            "workflow": f"/console/workflows/{self.workflow}",
            "bulk-action": f"/console/bulk-actions/{self.bulk_action}",
            "batches-ended": "/console/batches?ended=yes",
            "costs-by-model": "/console/costs?by=model",
            "review": f"/console/reviews/{review.org_id}/{review.review_id}",
            "held-rewrite": f"/console/held-rewrites/{self.held}",
            "jobs-without-match": "/console/jobs?job_type=unknown",
            "missing": "/console/nothing",
        }
