"""The pages of the console, one module per subject."""

from __future__ import annotations

from holdfast.console.pages import (
    audit,
    bulk_actions,
    dead_letters,
    deliveries,
    jobs,
    overview,
    queues,
    schedules,
    tenants,
    workers,
)
from holdfast.console.visit import Page

PAGES: tuple[Page, ...] = (
    *overview.PAGES,
    *jobs.PAGES,
    *dead_letters.PAGES,
    *deliveries.PAGES,
    *queues.PAGES,
    *workers.PAGES,
    *schedules.PAGES,
    *tenants.PAGES,
    *bulk_actions.PAGES,
    *audit.PAGES,
)
