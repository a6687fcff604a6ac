"""What is counted of the complaint rewrite: its requests, by closed words of its own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from holdfast.event import Event
from holdfast.telemetry.label import OTHER, Labels
from holdfast_rewrite.enums import FailureCode, Lane, Step, Strength, Surface
from holdfast_rewrite.event import RewriteMoved

# What is not decided yet, or never will be.
NONE = "none"
STEPS = frozenset(Step)
SURFACES = frozenset(Surface) | {NONE}
STRENGTHS = frozenset(Strength) | {NONE}
LANES = frozenset(Lane) | {NONE}


class RewriteCounts:
    """Two counters: how far requests came, and why some failed."""

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
        """Count one step; a word that is none of ours becomes ``other``."""
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
            # Before there is a job it is a code of the orchestrator, then its job's error class.
            known = event.code in tuple(FailureCode)
            code = event.code if known else self._labels.error_class(event.code)
            self._failures.labels(surface, str(code)).inc()


def _one_of(words: frozenset[str], given: str | None) -> str:
    word = NONE if given is None else str(given)
    return word if word in words else OTHER
