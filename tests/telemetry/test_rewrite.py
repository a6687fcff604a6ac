"""Telemetry of the complaint rewrite: log lines and counters, never texts."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
from prometheus_client import generate_latest

from holdfast import FakeClock, Holdfast
from holdfast.telemetry import log
from holdfast.telemetry.metrics import Metrics
from holdfast_rewrite.event import RewriteMoved
from holdfast_rewrite.rewrites import Rewrites
from tests.apps.household import MESSAGE, SENDER, Heard, furnish, rewriting, submission
from tests.telemetry.exposition import problems_of, value


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    made = rewriting("sqlite:", FakeClock())
    yield made
    made.close()


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.configure_logging("debug", stream)
    yield stream
    log.uninstall()


@pytest.mark.req("X-02")
def test_requests_are_counted_and_logged_by_codes_and_no_word_of_them_is_said(
    hf: Holdfast, said: io.StringIO
) -> None:
    metrics = Metrics(hf, database=False)
    hf.events.subscribe(log.log_event)
    rewrites = Rewrites(hf, classifier=Heard())
    furnish(rewrites)
    rewrites.submit(submission())
    rewrites.submit(submission(recipient_user_id=SENDER))

    text = generate_latest(metrics.registry).decode()
    assert problems_of(text) == []
    weekly = {"surface": "weekly_harmony"}
    undecided = {**weekly, "strength": "none", "lane": "none"}
    decided = {**weekly, "strength": "light_touch", "lane": "cross_language"}
    assert value(text, "holdfast_rewrites_total", step="queued", **undecided) == 1
    assert value(text, "holdfast_rewrites_total", step="enqueued", **decided) == 1
    assert value(text, "holdfast_rewrites_total", step="failed", **undecided) == 1
    assert value(text, "holdfast_rewrite_failures_total", code="self_recipient", **weekly) == 1
    lines = [json.loads(line) for line in said.getvalue().splitlines()]
    moved = [line for line in lines if line["event"].startswith("rewrite.")]
    assert [(line["event"], line["level"]) for line in moved] == [
        ("rewrite.queued", "info"),
        ("rewrite.enqueued", "info"),
        ("rewrite.failed", "warning"),
    ]
    assert moved[2]["code"] == "self_recipient"
    assert MESSAGE not in text + said.getvalue()


def test_a_word_that_is_none_of_ours_makes_no_series(hf: Holdfast) -> None:
    metrics = Metrics(hf, database=False)
    hf.events.emit(RewriteMoved("r", "h", "failed", "a wall", "mild", "fast", "somebody's words"))

    text = generate_latest(metrics.registry).decode()
    other = {"surface": "other", "strength": "other", "lane": "other"}
    assert value(text, "holdfast_rewrites_total", step="failed", **other) == 1
    assert value(text, "holdfast_rewrite_failures_total", surface="other", code="other") == 1
