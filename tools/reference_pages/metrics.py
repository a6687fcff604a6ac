"""docs/reference/metrics.md: every metric with its labels, from the registry and the gauges."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import Holdfast, Metrics, Settings
from holdfast.event import BatchChange, BatchTrouble, DeliveryChange, DeliveryTrouble
from holdfast.outbox.delivery import Reason
from holdfast.telemetry.gauges import (
    DELIVERY_STATES,
    DEPTH_STATES,
    WORKER_STATES,
    known_gauges,
)
from holdfast.telemetry.metrics import OUTCOMES, RUN_OUTCOMES, TICKS, WORKER_CHANGES
from holdfast_llm.telemetry import BATCH_STATES
from reference_pages.page import Page, code, introduction

# The closed sets of label values.
VALUES: dict[tuple[str, str], Iterable[str]] = {
    ("holdfast_jobs_settled_total", "outcome"): OUTCOMES,
    ("holdfast_runs_total", "outcome"): RUN_OUTCOMES,
    ("holdfast_schedule_ticks_total", "outcome"): TICKS,
    ("holdfast_worker_changes_total", "change"): WORKER_CHANGES,
    ("holdfast_batch_changes_total", "change"): BatchChange,
    ("holdfast_batch_items_total", "change"): BatchChange,
    ("holdfast_batch_alerts_total", "what"): BatchTrouble,
    ("holdfast_deliveries_total", "change"): DeliveryChange,
    ("holdfast_delivery_sends_total", "reason"): Reason,
    ("holdfast_delivery_alerts_total", "what"): DeliveryTrouble,
    ("holdfast_queue_depth", "state"): DEPTH_STATES,
    ("holdfast_workers_live", "state"): WORKER_STATES,
    ("holdfast_deliveries_open", "state"): DELIVERY_STATES,
    ("holdfast_delivery_oldest_age_seconds", "state"): DELIVERY_STATES,
    ("holdfast_batches", "state"): BATCH_STATES,
    ("holdfast_batch_items_open", "state"): BATCH_STATES,
    ("holdfast_batch_oldest_age_seconds", "state"): BATCH_STATES,
    ("holdfast_model_calls_total", "mode"): ("batch", "async"),
    ("holdfast_model_calls_total", "kind"): ("actual", "free", "unknown", "orphan"),
    ("holdfast_model_tokens_total", "mode"): ("batch", "async"),
    ("holdfast_model_tokens_total", "kind"): ("input", "output"),
    ("holdfast_model_cost_dollars_total", "mode"): ("batch", "async"),
}


def build() -> Page:
    page = Page()
    page.add(introduction("metrics"))
    hf = Holdfast(settings=Settings(db="sqlite:"))
    gauges = {gauge.name: (gauge.says, gauge.labels) for gauge in known_gauges(hf)}
    counters: dict[str, list[str]] = {}
    for collector in Metrics(hf).registry._collector_to_names:
        for family in collector.describe():
            if family.name in gauges or family.type == "gauge":
                gauges.setdefault(family.name, (family.documentation, ()))
                continue
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = getattr(collector, "_labelnames", ())
            counters[name] = _row(page, name, family.type, labels, family.documentation)
    columns = ("Metric", "Labels", "Type", "Label values", "Meaning")
    page.add("## Counters and histograms", "Each process counts what it did itself.")
    page.table(columns, (counters[name] for name in sorted(counters)))
    page.add("## Gauges", "Gauges are read from the database, at most once every 5 seconds.")
    rows = (_row(page, name, "gauge", labels, says) for name, (says, labels) in gauges.items())
    page.table(columns, sorted(rows))
    hf.close()
    return page


def _row(page: Page, name: str, kind: str, labels: Iterable[str], says: str) -> list[str]:
    fixed = []
    for label in labels:
        values = [code(str(value)) for value in sorted(VALUES.get((name, label), ()))]
        if values:
            fixed.append(f"{label}: {', '.join(values)}")
    named = ", ".join(code(label) for label in labels)
    return [code(name), named, kind, "; ".join(fixed), page.need(name, says)]
