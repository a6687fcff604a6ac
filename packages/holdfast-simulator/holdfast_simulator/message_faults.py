"""How a fault turns one exchange with somebody who carries messages."""

from __future__ import annotations

from collections.abc import Callable

from holdfast_simulator.exchange import Answer, Endpoint, Refused, Why
from holdfast_simulator.faults import Rule
from holdfast_simulator.messages import Messages
from holdfast_simulator.play import NOTHING, End, Ending


def play_message(
    rule: Rule, messages: Messages, endpoint: Endpoint, process: Callable[[], Answer]
) -> Ending:
    """One exchange: *process* does what was asked for and says what the provider answers."""
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
            # Whoever stands between repeats the request, and hands the first answer back.
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
    """A recipient that is refused for good, in whatever words the provider has for it."""
    return Refused(Why.INVALID, "Simulated: the recipient is refused.", param="recipient")


def _error(endpoint: Endpoint, status: int) -> Answer:
    """A failure on the provider's side: its own envelope, under the status that was asked for."""
    answer = endpoint.refuse(Refused(Why.SERVER_ERROR))
    return Answer(status, answer.body, answer.headers)
