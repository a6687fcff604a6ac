"""Metrics of the complaint rewrite: requests by fixed labels."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from holdfast.event import Event
from holdfast.telemetry.label import OTHER, Labels
from holdfast_rewrite.enums import FailureCode, Lane, Step, Strength, Surface
from holdfast_rewrite.event import RewriteMoved

# Not decided, or never will be.
NONE = "none"
STEPS = frozenset(Step)
SURFACES = frozenset(Surface) | {NONE}
STRENGTHS = frozenset(Strength) | {NONE}
LANES = frozenset(Lane) | {NONE}


class RewriteCounts:
    """Two counters: requests by progress, and failures by reason."""

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

    def count(self, event: Event) -> None:
        """Count one step; an unknown word becomes ``other``."""
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
