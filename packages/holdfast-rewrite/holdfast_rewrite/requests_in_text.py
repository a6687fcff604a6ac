"""Detect what a text asks for: a request, a boundary, an answer or attention. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_rewrite.ruleset import Reading

_QUESTION_MARKS = "?\uff1f\u061f"


@dataclass(frozen=True, slots=True)
class Asks:
    """The requests in a text."""

    has_request: bool = False
    has_boundary: bool = False
    has_concern: bool = False
    has_question: bool = False
    # It explicitly asks for an answer: "what did you mean", "I am not sure whether".
    is_clarifying: bool = False
    # It withdraws a request: "you don't have to turn it down". "No need to reply" does not.
    is_negated_request: bool = False


def asks_of(text: str, reading: Reading) -> Asks:
    """Return the requests that the rules of the language find in a text."""
    withdrawn = bool(reading.section("intent.withdrawn").hits)
    has_request = _has_request(reading)
    question = reading.section("intent.question")
    return Asks(
        has_request=has_request,
        has_boundary=bool(reading.section("intent.boundary").hits),
        has_concern=bool(reading.section("intent.concern").hits),
        has_question=bool(question.strong) or _has_mark(text),
        is_clarifying=bool(question.strong),
        is_negated_request=withdrawn and not has_request,
    )


def _has_request(reading: Reading) -> bool:
    """Return whether there is a request outside of withdrawals."""
    asked = reading.section("intent.request").hits
    taken_back = [reading.clause(hit) for hit in reading.section("intent.withdrawn").hits]
    return any(all(not start <= hit.start < end for start, end in taken_back) for hit in asked)


def _has_mark(text: str) -> bool:
    return any(mark in text for mark in _QUESTION_MARKS)
