"""A console without the HTTP API, and an application with one object of each kind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from holdfast import Context, Defect, Gone, Holdfast, RetryPolicy, UpstreamDown
from holdfast.console.site import LoginRequired, Site
from holdfast.engine.schedule.rows import sync_schedules
from holdfast.operate.operator import Operator
from tests.story import ORG, OTHER_ORG

HOSTILE = "<script>alert('x')</script>"


@dataclass
class OpenAccess:
    """Authenticates every request as one caller, or none if *key* is set."""

    hf: Holdfast
    role: str = "admin"
    org_id: str | None = None
    is_in: bool = True

    async def operator(self, request: Request) -> Operator:
        if not self.is_in:
            raise LoginRequired
        return self.hf.operate(actor="user:ann", role=self.role, org_id=self.org_id)

    async def log_in(self, request: Request, response: Response, key: str) -> bool:
        return key == "right"

    async def log_out(self, request: Request, response: Response) -> None:
        pass


def make_site(hf: Holdfast, **who: Any) -> Starlette:
    return Starlette(routes=Site(hf, OpenAccess(hf, **who)).routes)


class World:
    """Jobs in every state, two causes of dead letters, a schedule and a paused queue."""

    def __init__(self, hf: Holdfast, *, dead: int = 3, work: int = 4) -> None:
        self.hf = hf
        self.is_broken = True
        hf.job("invoice.send", max_attempts=1)(self._send)
        hf.job("report.build", retry=RetryPolicy(steps=(timedelta(hours=1),)))(self._flaky)
        hf.job("leaflet.print")(lambda job, payload: {"ok": True})
        pipeline = hf.pipeline("order.ship", version="2")
        for name in ("pick", "pack", "post"):
            pipeline.stage(name, max_attempts=1)(self._stage)
        hf.job("tidy", category="maintenance")(lambda job, payload: None)
        hf.schedule("nightly", job_type="tidy", cron="0 3 * * *", org_id=ORG)
        self.dead = hf.enqueue_many("invoice.send", [{"n": n} for n in range(dead)], org_id=ORG)
        hf.enqueue("order.ship", {}, org_id=OTHER_ORG)
        hf.enqueue_many("leaflet.print", [{} for _ in range(work)], org_id=OTHER_ORG)
        self.retried = hf.enqueue("report.build", {}, org_id=ORG)
        sync_schedules(hf)
        worker = hf.worker()
        worker.run_once(limit=dead + work + 2)
        self.waiting = hf.enqueue_many("leaflet.print", [{}, {}], org_id=ORG)

    def _send(self, _job: Context, _payload: dict[str, Any]) -> None:
        if self.is_broken:
            raise Gone()

    def _flaky(self, _job: Context, _payload: dict[str, Any]) -> None:
        raise UpstreamDown(status=503)

    def _stage(self, job: Context, _payload: dict[str, Any]) -> dict[str, str]:
        if job.stage == "pack":
            raise Defect(HOSTILE)
        return {"by": job.stage}
