"""Faults in one exchange with a message channel."""

from __future__ import annotations

from collections.abc import Callable

from holdfast_simulator.exchange import Answer, Endpoint, Refused, Why
from holdfast_simulator.faults import Rule
from holdfast_simulator.messages import Messages
from holdfast_simulator.play import NOTHING, End, Ending


def play_message(
    rule: Rule, messages: Messages, endpoint: Endpoint, process: Callable[[], Answer]
) -> Ending:
    """Play one exchange: *process* executes the request and returns the provider's answer."""
    options = rule.options
    match rule.name:
        case "drop_before_accept":
            return Ending(NOTHING, End.RESET)
        case "accept_then_drop":
            process()
            return Ending(NOTHING, End.RESET)
        case "error_after_accept":
            process()
            return Ending(_error(endpoint, options["status"]))
        case "lookup_down":
            return Ending(_error(endpoint, options["status"]))
        case "truncated_answer":
            return Ending(process(), End.CUT, share=0.5)
        case "answer_hangs":
            process()
            return Ending(NOTHING, End.STALL, seconds=options["seconds"])
        case "duplicate_on_the_wire":
            # A proxy repeats the request and returns the first answer.
            first = process()
            process()
            return Ending(first)
        case "throttled":
            wait = {"retry-after": str(options["retry_after"])}
            return Ending(endpoint.refuse(Refused(Why.RATE_LIMITED, headers=wait)))
        case "refused":
            return Ending(endpoint.refuse(refused_recipient()))
        case _:
            with messages.under(rule.name):
                return Ending(process())


def refused_recipient() -> Refused:
    """Return a permanent refusal of the recipient."""
    return Refused(Why.INVALID, "Simulated: the recipient is refused.", param="recipient")


def _error(endpoint: Endpoint, status: int) -> Answer:
    """Return a provider-side failure: its envelope with the requested status."""
    answer = endpoint.refuse(Refused(Why.SERVER_ERROR))
    return Answer(status, answer.body, answer.headers)
