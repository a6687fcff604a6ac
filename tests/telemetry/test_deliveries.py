"""Telemetry of deliveries: log lines, counters, alerts and gauges."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
from prometheus_client import generate_latest

from holdfast import FakeClock, Holdfast
from holdfast.event import DeliveryAlert, DeliveryChange, DeliveryChanged, DeliveryTrouble
from holdfast.telemetry import log
from holdfast.telemetry.alert import Alert, Alerts, alert_of
from holdfast.telemetry.gauges import DELIVERY_STATES, Reading, read_gauges
from holdfast.telemetry.label import Labels
from holdfast.telemetry.metrics import Metrics
from tests.outbox.planted import plant_delivery, spoil
from tests.story import ORG
from tests.telemetry.exposition import problems_of, value

SENT = DeliveryChanged("d-1", ORG, "mail", DeliveryChange.SENT, "first", 1)
HELD = DeliveryAlert("mail", DeliveryTrouble.HELD, "d-1", ORG, "unknown")


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.configure_logging("info", stream)
    yield stream
    log.uninstall()


def test_every_step_of_a_delivery_is_a_line_of_the_log(said: io.StringIO) -> None:
    log.log_event(SENT)
    log.log_event(DeliveryChanged("d-1", ORG, "mail", DeliveryChange.HELD, "unknown", 2))
    log.log_event(HELD)

    sent, held, trouble = (json.loads(line) for line in said.getvalue().splitlines())
    assert (sent["event"], sent["level"], sent["reason"]) == ("delivery.sent", "info", "first")
    assert (held["event"], held["level"], held["attempt"]) == ("delivery.held", "warning", 2)
    assert (trouble["event"], trouble["what"]) == ("delivery.alert", "held")
    assert (trouble["delivery_id"], trouble["channel"]) == ("d-1", "mail")


def test_steps_sends_and_troubles_are_counted_without_a_channel_of_a_callers_own(
    hf: Holdfast,
) -> None:
    metrics = Metrics(hf, database=False)
    text = generate_latest(metrics.registry).decode()
    for what in DeliveryTrouble:
        assert value(text, "holdfast_delivery_alerts_total", what=what) == 0

    hf.events.emit(SENT)
    hf.events.emit(DeliveryChanged("d-2", ORG, "canary", DeliveryChange.SENT, "policy_resend", 2))
    hf.events.emit(DeliveryChanged("d-2", ORG, "mail", DeliveryChange.SENT, "canary", 2))
    hf.events.emit(HELD)

    text = generate_latest(metrics.registry).decode()
    assert problems_of(text) == []
    assert "canary" not in text
    assert value(text, "holdfast_deliveries_total", channel="other", change="sent") == 3
    of = {"channel": "other"}
    assert value(text, "holdfast_delivery_sends_total", **of, reason="first") == 1
    assert value(text, "holdfast_delivery_sends_total", **of, reason="policy_resend") == 1
    assert value(text, "holdfast_delivery_sends_total", **of, reason="other") == 1
    assert value(text, "holdfast_delivery_alerts_total", what="held") == 1


@pytest.mark.parametrize("what", DeliveryTrouble)
def test_every_trouble_of_a_delivery_is_an_alert_with_words(
    what: DeliveryTrouble, clock: FakeClock
) -> None:
    found = alert_of(DeliveryAlert("mail", what, "d-1", ORG, "code_x", 2), clock.now())

    assert found is not None
    assert len(found.summary.split()) > 5
    assert found.subject == {
        "what": what.value,
        "channel": "mail",
        "delivery_id": "d-1",
        "org_id": ORG,
        "detail": "code_x",
        "deliveries": 2,
    }


def test_one_trouble_of_one_channel_is_reported_once(hf: Holdfast) -> None:
    told: list[Alert] = []
    alerts = Alerts(hf.clock, hf.settings.alerts, [told.append])
    for delivery in ("d-1", "d-2", "d-3"):
        alerts(DeliveryAlert("mail", DeliveryTrouble.HELD, delivery, ORG))
    alerts(DeliveryAlert("pager", DeliveryTrouble.HELD, "d-4", ORG))

    assert [found.subject["delivery_id"] for found in told] == ["d-1", "d-4"]
    alerts.close()
    assert (told[-1].count, told[-1].subject["delivery_id"]) == (2, "d-3")


# -- gauges from the database


def reading_of(hf: Holdfast) -> Reading:
    return read_gauges(hf.store, Labels(hf), hf.known_queues)


def test_open_deliveries_and_the_age_of_the_oldest_are_shown(
    hf: Holdfast, clock: FakeClock
) -> None:
    empty = reading_of(hf)
    assert empty["holdfast_deliveries_open"] == {(state,): 0.0 for state in DELIVERY_STATES}

    later = plant_delivery(hf)
    spoil(hf, later, "not_before_at = {later(86400000)}")
    plant_delivery(hf, tries=(("first", None),))
    plant_delivery(hf, "sent", tries=(("first", "accepted"),))
    clock.advance(seconds=60)
    plant_delivery(hf, "held", tries=(("first", "unsure"),))
    clock.advance(seconds=30)

    reading = reading_of(hf)
    assert reading["holdfast_deliveries_open"] == {
        ("waiting",): 1.0,
        ("tried",): 1.0,
        ("held",): 1.0,
    }
    assert reading["holdfast_delivery_oldest_age_seconds"] == {
        # It is not due before tomorrow.
        ("waiting",): 0.0,
        ("tried",): 90.0,
        ("held",): 30.0,
    }
