"""Apply a fault to one exchange: the effect, the answer, and the end of the connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from email.utils import format_datetime
from enum import StrEnum
from typing import Any

from holdfast_simulator.exchange import Answer, Call, Endpoint, Refused, Why
from holdfast_simulator.faults import Rule
from holdfast_simulator.state import SimulatorState

PAGE = (
    b"<html><head><title>Bad Gateway</title></head>"
    b"<body><center><h1>Bad Gateway</h1></center><hr><center>proxy</center></body></html>"
)


class End(StrEnum):
    """What happens to the connection after the answer."""

    SEND = "send"
    # Part of the answer is sent, then the connection is closed.
    CUT = "cut"
    # Part of the answer is sent, then nothing more.
    STALL = "stall"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Ending:
    """The outcome of an exchange."""

    answer: Answer
    end: End = End.SEND
    # The share of the body that is sent before a cut or a stall.
    share: float = 0.0
    seconds: float = 0.0
    is_chunked: bool = False


NOTHING = Answer(status=0)

REFUSALS = {
    "quota_exhausted": Why.QUOTA,
    "slow_down": Why.SLOW_DOWN,
    "overloaded": Why.OVERLOADED,
    "overloaded_529": Why.OVERLOADED_529,
    "key_rotated": Why.UNAUTHORIZED,
    "forbidden": Why.FORBIDDEN,
    "conflict": Why.CONFLICT,
    "too_large": Why.TOO_LARGE,
    "list_500": Why.SERVER_ERROR,
    "token_limit_at_create": Why.TOKEN_LIMIT,
}


def play(
    rule: Rule | None,
    state: SimulatorState,
    router: Endpoint,
    call: Call,
    process: Callable[[], Answer],
) -> Ending:
    """Play one exchange: *process* executes the request and returns the provider's answer."""
    if rule is None:
        return Ending(process())
    options = rule.options
    match rule.name:
        case "reset_before" | "upload_interrupted":
            return Ending(NOTHING, End.RESET)
        case "zombie_create":
            state.later(options["minutes"] * 60, process)
            return Ending(NOTHING, End.RESET)
        case "accept_then_reset" | "upload_answer_lost":
            process()
            return Ending(NOTHING, End.RESET)
        case "accept_then_500":
            process()
            return Ending(router.refuse(Refused(Why.SERVER_ERROR)))
        case "accept_then_hang":
            process()
            return Ending(NOTHING, End.STALL, seconds=options["seconds"])
        case "upload_name_taken":
            process()
            return Ending(router.refuse(Refused(Why.ALREADY_EXISTS)))
        case "proxy_html":
            if options["accepted"]:
                process()
            return Ending(Answer(options["status"], PAGE, {"content-type": "text/html"}))
        case "truncated_json":
            answer = process()
            return Ending(replace(answer, body=answer.body[: len(answer.body) // 2]))
        case "truncated_download" | "slow_download":
            return _download(rule.name, options, router, call, process)
        case _:
            return Ending(router.refuse(_refusal(rule.name, options, state)))


def _refusal(name: str, options: dict[str, Any], state: SimulatorState) -> Refused:
    if name in REFUSALS:
        return Refused(REFUSALS[name])
    if name == "rate_limited_ms":
        wait = {"retry-after-ms": str(options["ms"])}
        return Refused(Why.RATE_LIMITED, headers=wait, retry_after=options["ms"] / 1000)
    seconds = options["seconds"]
    value = str(seconds)
    if name == "rate_limited_date":
        value = format_datetime(state.now + timedelta(seconds=seconds), usegmt=True)
    return Refused(Why.RATE_LIMITED, headers={"retry-after": value}, retry_after=seconds)


def _download(
    name: str, options: dict[str, Any], router: Endpoint, call: Call, process: Callable[[], Answer]
) -> Ending:
    if name == "truncated_download":
        is_chunked = options["framing"] == "chunked"
        return Ending(process(), End.CUT, share=options["share"], is_chunked=is_chunked)
    match options["variant"]:
        case "gone_404":
            return Ending(router.refuse(Refused(Why.NOT_FOUND)))
        case "range_416" if "range" in call.headers:
            return Ending(Answer(416, headers={"content-range": "bytes */0"}))
        case "range_416":
            return Ending(process())
        case _:
            return Ending(process(), End.STALL, share=0.5, seconds=options["seconds"])
