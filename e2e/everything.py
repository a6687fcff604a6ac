"""One of everything that a page of the console shows, with an hour of work behind it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast import FakeClock, Transient
from holdfast.engine.worker.heartbeat import Heartbeat
from tests.apps.judged import Court, verdict
from tests.apps_review.bench import Bench
from tests.console.site import World
from tests.outbox.planted import plant_delivery
from tests.outbox.scripted import ScriptedChannel
from tests.story import ORG, OTHER_ORG

MINUTES = 56


class Everything:
    """An application on a clock that ends now. *court* has a held rewrite, with its batch."""

    def __init__(self, url: str) -> None:
        self.clock = FakeClock(datetime.now(UTC) - timedelta(hours=3))
        self.court = Court(url, self.clock)
        self.court.says = verdict("threat", quote="help me a lot")
        self.hf = self.court.hf
        self.held = self.court.send()
        review = Bench(self.hf, self.clock, ScriptedChannel(self.clock)).succeed().review
        self._work_an_hour()
        self.world = World(self.hf, dead=12, work=30)
        for worker in ("worker-1", "worker-2"):
            queues = sorted(self.hf.known_queues)
            Heartbeat(self.hf.store, {}, worker, queues, [], lease_ms=60_000).send()
        delivery = plant_delivery(self.hf, "held", tries=(("first", "unsure"),))
        operator = self.hf.operate(actor="user:ann", role="admin")
        batch = next(iter(operator.batches.list(with_ended=True)))
        run = next(iter(operator.runs.list()))
        self.objects = {
            "job": f"/console/jobs/{self.world.retried.id}",
            "dead-letter": f"/console/dead-letters/{self.world.dead[0].id}",
            "dead-letters-bulk": "/console/dead-letters/bulk?step=triage&error_class=GONE",
            "jobs-bulk": "/console/jobs/bulk?job_type=leaflet.print",
            "deliveries-bulk": "/console/deliveries/bulk?state=held&channel=mail&decision=drop",
            "queue": "/console/queues/q:default",
            "schedule": "/console/schedules/nightly",
            "tenant": f"/console/tenants?org_id={ORG}",
            "delivery": f"/console/deliveries/{delivery}",
            "run": f"/console/runs/{run.run_id}",
            "batch": f"/console/batches/{batch.id}",
            "batches-ended": "/console/batches?ended=yes",
            "costs-by-model": "/console/costs?by=model",
            "review": f"/console/reviews/{review.org_id}/{review.review_id}",
            "held-rewrite": f"/console/held-rewrites/{self.held}",
            "jobs-without-match": "/console/jobs?job_type=unknown",
            "missing": "/console/nothing",
        }

    def _work_an_hour(self) -> None:
        """A few jobs a minute; some are retried once."""

        def send(job: Any, payload: dict[str, Any]) -> None:
            if payload["n"] % 11 == 0 and job.attempt == 1:
                raise Transient

        self.hf.job("mail.send")(send)
        self.clock.advance(datetime.now(UTC) - timedelta(minutes=MINUTES) - self.clock.now())
        worker = self.hf.worker()
        for minute in range(MINUTES):
            count = 6 + minute * 7 % 9
            org_id = OTHER_ORG if minute % 3 else ORG
            self.hf.enqueue_many("mail.send", [{"n": n} for n in range(count)], org_id=org_id)
            worker.run_once(limit=50)
            self.clock.advance(minutes=1)
