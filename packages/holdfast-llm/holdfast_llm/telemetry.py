"""Metrics and gauges of batch processing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import Counter

from holdfast.event import BatchAlert, BatchChange, BatchChanged, BatchTrouble, Event, ModelUsed
from holdfast.store import Row, Statements, Tx
from holdfast.telemetry.gauges import BOUND, Gauge, GaugeSet, Reading, Values, add_to, seconds_of
from holdfast.telemetry.label import OTHER, Labels
from holdfast_llm.batch.price import PICO

SQL = Statements("holdfast_llm", "telemetry.sql")

BATCH_STATES = ("prepared", "uploaded", "creating", "submitted", "ended", "quarantined")


def provider_label(labels: Labels, given: str) -> str:
    """The provider if it is configured, so that other values do not become labels."""
    return given if given in labels.settings.providers else OTHER


class BatchCounts:
    """Counts events of batches and model requests."""

    def __init__(self, registry: Any, labels: Labels) -> None:
        self.labels = labels

        def counter(name: str, says: str, *labels: str) -> Counter:
            return Counter(name, says, labels, registry=registry)

        self._batches = counter(
            "holdfast_batch_changes_total", "State changes of provider batches.", "change"
        )
        self._batch_items = counter(
            "holdfast_batch_items_total",
            "Items of the provider batches that changed state.",
            "change",
        )
        self._troubles = counter(
            "holdfast_batch_alerts_total",
            "Problems of batch processing, counted by items where items are concerned.",
            "what",
        )
        of_model = ("provider", "mode")
        self._calls = counter(
            "holdfast_model_calls_total", "Model requests, by kind of cost.", *of_model, "kind"
        )
        self._tokens = counter(
            "holdfast_model_tokens_total",
            "Tokens read (input, cached ones included) and written (output).",
            *of_model,
            "kind",
        )
        self._cost = counter(
            "holdfast_model_cost_dollars_total",
            "Cost of the model requests that have a price. The ledger is exact.",
            *of_model,
        )
        for step in BatchChange:
            self._batches.labels(step)
            self._batch_items.labels(step)
        for trouble in BatchTrouble:
            self._troubles.labels(trouble)

    def count(self, event: Event) -> None:
        """A subscriber that counts each event of batch processing."""
        match event:
            case BatchChanged(change=change):
                self._batches.labels(change).inc()
                self._batch_items.labels(change).inc(event.items)
            case BatchAlert(what=what):
                self._troubles.labels(what).inc(event.count)
            case ModelUsed():
                self._count_used(event)
            case _:
                pass

    def _count_used(self, event: ModelUsed) -> None:
        of = provider_label(self.labels, event.provider), event.mode
        self._calls.labels(*of, event.kind).inc(event.calls)
        self._tokens.labels(*of, "input").inc(event.input_tokens)
        self._tokens.labels(*of, "output").inc(event.output_tokens)
        self._cost.labels(*of).inc(event.cost_pico / PICO)


BATCHES = Gauge("holdfast_batches", "Provider batches in progress, by state.", ("state",))
BATCH_ITEMS = Gauge(
    "holdfast_batch_items_open", "Items of the provider batches in progress.", ("state",)
)
BATCH_AGE = Gauge(
    "holdfast_batch_oldest_age_seconds",
    "Age of the oldest provider batch in the state.",
    ("state",),
)
BATCH_OVERDUE = Gauge(
    "holdfast_batch_overdue_seconds",
    "How long a provider batch has been waiting for a submitter or collector.",
)
BATCH_FILES = Gauge(
    "holdfast_batch_files_undeleted", "Ended batches that still have files at the provider."
)
CIRCUITS = Gauge("holdfast_circuits_open", "Provider accounts with an open circuit.", ("provider",))


def read_batch_gauges(tx: Tx, labels: Labels) -> Reading:
    """Read the gauges of batches and accounts, in three statements."""
    batches = tx.one(SQL.read_overdue, bound=BOUND)
    return {
        **_of_batches(tx.many(SQL.count_batches, bound=BOUND)),
        BATCH_OVERDUE.name: {(): seconds_of(batches["overdue_ms"])},
        BATCH_FILES.name: {(): float(batches["undeleted"])},
        CIRCUITS.name: _of_circuits(labels, tx.many(SQL.count_circuits)),
    }


def _of_batches(batches: Sequence[Row]) -> dict[str, Values]:
    values: dict[str, Values] = {
        gauge.name: {(state,): 0.0 for state in BATCH_STATES}
        for gauge in (BATCHES, BATCH_ITEMS, BATCH_AGE)
    }
    for row in batches:
        values[BATCHES.name][row["state"],] = float(row["batches"])
        values[BATCH_ITEMS.name][row["state"],] = float(row["items"])
        values[BATCH_AGE.name][row["state"],] = seconds_of(row["age_ms"])
    return values


def _of_circuits(labels: Labels, circuits: Sequence[Row]) -> Values:
    values: Values = {(provider,): 0.0 for provider in (*labels.settings.providers, OTHER)}
    for row in circuits:
        add_to(values, (provider_label(labels, row["provider"]),), row["accounts"])
    return values


GAUGES = GaugeSet(
    (BATCHES, BATCH_ITEMS, BATCH_AGE, BATCH_OVERDUE, BATCH_FILES, CIRCUITS), read_batch_gauges
)
