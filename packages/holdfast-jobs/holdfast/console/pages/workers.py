"""Workers: which processes run jobs, and which of them stopped."""

from __future__ import annotations

from holdfast.console.visit import Page, PageContext, Shown


def list_workers(visit: PageContext) -> Shown:
    """The workers of the last day with their last heartbeat."""
    found = sorted(visit.operator.workers.list(), key=lambda one: (one.is_gone, one.worker_id))
    live = [worker for worker in found if not worker.is_gone]
    running = sum(one.jobs for one in visit.operator.overview.running())
    values = {"workers": found, "live": len(live), "running": running}
    return Shown("workers.html", "Workers", values)


PAGES = (Page("/workers", list_workers, title="Workers", group="System", for_all=True),)
