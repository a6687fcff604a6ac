"""Metrics of the complaint rewrite: requests by fixed labels."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from holdfast.event import Event
from holdfast.store import Tx
from holdfast.telemetry.gauges import Gauge, GaugeSet, Reading, Values, seconds_of
from holdfast.telemetry.label import OTHER, Labels
from holdfast_rewrite.draft import SQL
from holdfast_rewrite.enums import FailureCode, Lane, Step, Strength, Surface
from holdfast_rewrite.event import RewriteJudged, RewriteMoved
from holdfast_rewrite.verdict import HoldReason, JudgeCode

# Not decided, or never will be.
NONE = "none"
STEPS = frozenset(Step)
SURFACES = frozenset(Surface) | {NONE}
STRENGTHS = frozenset(Strength) | {NONE}
LANES = frozenset(Lane) | {NONE}
VERDICTS = frozenset(JudgeCode) | {"clean", NONE}
BOUND = 10_000


class RewriteCounts:
    """Counters: requests by progress, failures by reason, and verdicts by code."""

    def __init__(self, registry: CollectorRegistry, labels: Labels) -> None:
        self._labels = labels
        self._steps = Counter(
            "holdfast_rewrites_total",
            "Rewrite requests that reached a step.",
            ("step", "surface", "strength", "lane"),
            registry=registry,
        )
        self._failures = Counter(
            "holdfast_rewrite_failures_total",
            "Rewrite requests that failed, by failure code.",
            ("surface", "code"),
            registry=registry,
        )

        self._verdicts = Counter(
            "holdfast_rewrite_verdicts_total",
            "Answers of the model judge by code: clean, none, or each finding.",
            ("code",),
            registry=registry,
        )

    def count(self, event: Event) -> None:
        """Count one step or verdict; an unknown word becomes ``other``."""
        if isinstance(event, RewriteJudged):
            for code in event.codes or (event.verdict,):
                self._verdicts.labels(_one_of(VERDICTS, code)).inc()
        if not isinstance(event, RewriteMoved):
            return
        surface = _one_of(SURFACES, event.surface)
        self._steps.labels(
            _one_of(STEPS, event.step),
            surface,
            _one_of(STRENGTHS, event.strength),
            _one_of(LANES, event.lane),
        ).inc()
        if event.code is not None:
            # An orchestrator code before there is a job, then the job's error class.
            known = event.code in tuple(FailureCode)
            code = event.code if known else self._labels.error_class(event.code)
            self._failures.labels(surface, str(code)).inc()


def _one_of(words: frozenset[str], given: str | None) -> str:
    word = NONE if given is None else str(given)
    return word if word in words else OTHER


HELD = Gauge(
    "holdfast_rewrites_held",
    f"Rewrites held for review, counted up to {BOUND}.",
    ("reason",),
)
HELD_AGE = Gauge(
    "holdfast_rewrite_held_oldest_age_seconds", "Age of the oldest rewrite held for a person."
)


def read_held(tx: Tx, _labels: Labels) -> Reading:
    """Read how many rewrites are held, and for how long, in one statement."""
    counts: Values = {(reason.value,): 0.0 for reason in HoldReason}
    oldest = 0.0
    for row in tx.many(SQL.count_held, bound=BOUND):
        counts[row["reason"],] = float(row["rewrites"])
        oldest = max(oldest, seconds_of(row["age_ms"]))
    return {HELD.name: counts, HELD_AGE.name: {(): oldest}}


GAUGES = GaugeSet((HELD, HELD_AGE), read_held)
