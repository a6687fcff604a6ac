"""Telemetry of batch processing: log lines, counters, alerts and gauges."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
from prometheus_client import generate_latest

from holdfast import FakeClock, Holdfast
from holdfast.event import BatchAlert, BatchChange, BatchChanged, BatchTrouble, ModelUsed
from holdfast.telemetry import log
from holdfast.telemetry.alert import Alert, Alerts, alert_of
from holdfast.telemetry.gauges import Reading, read_all
from holdfast.telemetry.label import Labels
from holdfast.telemetry.metrics import Metrics
from holdfast_llm.telemetry import BATCH_STATES
from tests.operate.at_provider import plant_batch, plant_circuit
from tests.story import by_hand
from tests.telemetry.exposition import problems_of, value

SUBMITTED = BatchChanged("b-1", "openai", "model-1", BatchChange.SUBMITTED, 200, "try 1")
MISSING = BatchAlert("b-1", "openai|acc", BatchTrouble.MISSING_RESULT, "b-1", 3)


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.configure_logging("info", stream)
    yield stream
    log.uninstall()


def test_every_step_of_a_batch_is_a_line_of_the_log(said: io.StringIO) -> None:
    log.log_event(SUBMITTED)
    log.log_event(MISSING)

    step, trouble = (json.loads(line) for line in said.getvalue().splitlines())
    assert (step["event"], step["level"], step["items"]) == ("batch.submitted", "info", 200)
    assert (trouble["event"], trouble["level"]) == ("batch.alert", "warning")
    assert (trouble["what"], trouble["count"], trouble["batch_id"]) == ("missing_result", 3, "b-1")


def test_steps_items_and_troubles_are_counted_and_start_at_zero(hf: Holdfast) -> None:
    metrics = Metrics(hf, database=False)
    text = generate_latest(metrics.registry).decode()
    for step in BatchChange:
        assert value(text, "holdfast_batch_changes_total", change=step) == 0
    for what in BatchTrouble:
        assert value(text, "holdfast_batch_alerts_total", what=what) == 0

    hf.events.emit(SUBMITTED)
    hf.events.emit(SUBMITTED)
    hf.events.emit(MISSING)

    text = generate_latest(metrics.registry).decode()
    assert problems_of(text) == []
    assert value(text, "holdfast_batch_changes_total", change="submitted") == 2
    assert value(text, "holdfast_batch_items_total", change="submitted") == 400
    assert value(text, "holdfast_batch_alerts_total", what="missing_result") == 3


def test_tokens_and_costs_are_counted_by_provider_and_mode(hf: Holdfast) -> None:
    metrics = Metrics(hf, database=False)
    hf.events.emit(ModelUsed("openai", "batch", "actual", 3, 300, 90, 660_000_000))
    hf.events.emit(ModelUsed("openai", "batch", "free", 2, 0, 0, 0))
    hf.events.emit(ModelUsed("somebody's own", "async", "actual", 1, 10, 5, 0))

    text = generate_latest(metrics.registry).decode()
    assert problems_of(text) == []
    of = {"provider": "openai", "mode": "batch"}
    assert value(text, "holdfast_model_calls_total", **of, kind="actual") == 3
    assert value(text, "holdfast_model_calls_total", **of, kind="free") == 2
    assert value(text, "holdfast_model_tokens_total", **of, kind="input") == 300
    assert value(text, "holdfast_model_tokens_total", **of, kind="output") == 90
    assert value(text, "holdfast_model_cost_dollars_total", **of) == pytest.approx(0.00066)
    other = {"provider": "other", "mode": "async"}
    assert value(text, "holdfast_model_calls_total", **other, kind="actual") == 1


@pytest.mark.parametrize("what", BatchTrouble)
def test_every_trouble_of_the_lane_is_an_alert_with_words(
    what: BatchTrouble, clock: FakeClock
) -> None:
    found = alert_of(BatchAlert("b-1", "acc", what, "code_x", 2), clock.now())

    assert found is not None
    assert len(found.summary.split()) > 5
    assert found.subject == {
        "what": what.value,
        "batch_id": "b-1",
        "account": "acc",
        "detail": "code_x",
        "items": 2,
    }


def test_one_trouble_of_one_account_is_reported_once(hf: Holdfast) -> None:
    told: list[Alert] = []
    alerts = Alerts(hf.clock, hf.settings.alerts, [told.append])
    for batch in ("b-1", "b-2", "b-3"):
        alerts(BatchAlert(batch, "acc", BatchTrouble.UNKNOWN_ITEM))
    alerts(BatchAlert("b-4", "other", BatchTrouble.UNKNOWN_ITEM))
    alerts(BatchAlert("b-4", "other", BatchTrouble.MALFORMED_LINE))

    assert [found.subject["batch_id"] for found in told] == ["b-1", "b-4", "b-4"]
    alerts.close()
    assert (told[-1].count, told[-1].subject["batch_id"]) == (2, "b-3")


def reading_of(hf: Holdfast) -> Reading:
    return read_all(hf, Labels(hf))


def test_batches_that_are_not_over_are_counted_by_how_far_they_are(
    hf: Holdfast, clock: FakeClock
) -> None:
    plant_batch(hf, "submitted", items=30)
    clock.advance(minutes=10)
    plant_batch(hf, "submitted", items=12)
    plant_batch(hf, "quarantined", items=5)
    plant_batch(hf, "collected", items=9)

    found = reading_of(hf)

    assert set(found["holdfast_batches"]) == {(state,) for state in BATCH_STATES}
    assert found["holdfast_batches"]["submitted",] == 2
    assert found["holdfast_batch_items_open"]["submitted",] == 42
    assert found["holdfast_batch_oldest_age_seconds"]["submitted",] == 600
    assert found["holdfast_batches"]["quarantined",] == 1
    assert found["holdfast_batches"]["creating",] == 0


def test_an_unpolled_batch_is_overdue(hf: Holdfast, clock: FakeClock) -> None:
    assert reading_of(hf)["holdfast_batch_overdue_seconds"][()] == 0
    plant_batch(hf, "submitted")
    plant_batch(hf, "quarantined")
    clock.advance(minutes=7)

    assert reading_of(hf)["holdfast_batch_overdue_seconds"][()] == 420


def test_files_that_are_left_at_a_provider_are_counted(hf: Holdfast) -> None:
    batch_id = plant_batch(hf, "collected")
    plant_batch(hf, "released")
    assert reading_of(hf)["holdfast_batch_files_undeleted"][()] == 2

    by_hand(
        hf.store,
        "UPDATE holdfast.provider_batch SET files_deleted_at = {now} WHERE id = :id RETURNING id",
        id=batch_id,
    )

    assert reading_of(hf)["holdfast_batch_files_undeleted"][()] == 1


def test_an_account_that_refuses_everything_is_seen_by_its_provider(hf: Holdfast) -> None:
    assert reading_of(hf)["holdfast_circuits_open"]["openai",] == 0
    plant_circuit(hf, "openai")
    plant_circuit(hf, "nobody-knows-it")

    circuits = reading_of(hf)["holdfast_circuits_open"]

    assert (circuits["openai",], circuits["other",], circuits["gemini",]) == (1, 1, 0)
