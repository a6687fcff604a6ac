"""Asked: the request of one item as it goes out, with the echo that its answer must repeat."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import SchemaInvalid, UnknownKind
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.batch.verdict import validator_for
from holdfast_llm.batch.work import Item
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.echo import has_place
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import ExecutionMode, Route

# Letters and digits that nobody takes for one another.
ECHO_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
ECHO_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for an item: in our words, and in the provider's."""

    request: Request
    echo: str
    body: dict[str, Any] = field(repr=False)


def ask_for(lane: BatchLane, item: Item, account: Account) -> Asked:
    """The request of an item that is asked for the first time."""
    request = request_of(lane, item)
    echo = ""
    if _needs_echo(request, item.route, account):
        echo = "".join(lane.rng.choices(ECHO_ALPHABET, k=ECHO_LENGTH))
    return _asked(request, echo, item, account)


def _needs_echo(request: Request, route: Route, account: Account) -> bool:
    """Whether the answer must show that it is this item's; a call has one answer only."""
    wants = account.capabilities.wants_echo
    if request.wants_echo or wants:
        return True
    is_batched = route.execution_mode is ExecutionMode.BATCH
    return wants is None and is_batched and has_place(request.schema)


def ask_again(lane: BatchLane, item: Item, account: Account, echo: str) -> Asked:
    """The same request with the echo that it was given before."""
    return _asked(request_of(lane, item), echo, item, account)


def _asked(request: Request, echo: str, item: Item, account: Account) -> Asked:
    if request.schema is not None:
        # An answer that nobody could check would be paid for all the same.
        validator_for(request.schema)
    request = request.with_echo(echo) if echo else request
    return Asked(request, echo, account.adapter.body(item.route, request))


def request_of(lane: BatchLane, item: Item) -> Request:
    """What the application asks for an item; SchemaInvalid if that is no request."""
    # Not by get(), which works out how the type is retried: a quarter of the time of a whole run.
    handler = lane.registry.handlers.get(item.job_type)
    if handler is None:
        raise UnknownKind(item.job_type)
    found = handler.work.request(item)
    if not isinstance(found, Request):
        raise SchemaInvalid(f"{item.job_type}: request() must return a Request.", field="request")
    return found
