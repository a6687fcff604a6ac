"""All faults of message channels, by number, name and effect."""

from __future__ import annotations

from typing import Any

from holdfast_simulator.scripts import Moment, Script


def _send(number: int, name: str, summary: str, **options: Any) -> Script:
    return Script(number, name, Moment.EXCHANGE, summary, options, "send")


def _taken(number: int, name: str, summary: str, **options: Any) -> Script:
    return Script(number, name, Moment.TAKEN, summary, options, "send")


def _lookup(number: int, name: str, summary: str, **options: Any) -> Script:
    return Script(number, name, Moment.EXCHANGE, summary, options, "lookup")


MESSAGE_SCRIPTS: dict[str, Script] = {
    script.name: script
    for script in (
        _send(101, "accept_then_drop", "taken, then the connection ends without an answer"),
        _send(102, "error_after_accept", "taken, then answered with an error", status=500),
        _send(103, "truncated_answer", "taken, and the answer breaks off in the middle"),
        _send(104, "answer_hangs", "taken, then no answer", seconds=30.0),
        _send(105, "drop_before_accept", "the connection ends before anything is taken"),
        _send(106, "duplicate_on_the_wire", "the request arrives twice"),
        _send(107, "window_expired", "a repeat is taken as if it had never been sent"),
        _send(108, "throttled", "no room; retry_after is the header as it is", retry_after="30"),
        _send(109, "refused", "the recipient is refused for good"),
        _send(110, "lost_after_accept", "answered as taken, and nothing is kept"),
        _taken(111, "given_up", "accepted, then bounced"),
        _taken(112, "lookup_lag", "taken, and found only later", seconds=60.0),
        _lookup(113, "lookup_down", "a question is answered with an error", status=503),
        _lookup(114, "two_matches", "a question finds the message twice"),
        _lookup(115, "another_recipient", "a lookup finds another sender's message"),
    )
}
