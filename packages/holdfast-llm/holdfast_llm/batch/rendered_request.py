"""The rendered request of one item, with the echo that its answer must repeat."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import SchemaInvalid, UnknownKind
from holdfast_llm.batch.item_outcome import validator_for
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.batch.work import Item
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.echo import has_place
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import ExecutionMode, Route

# Letters and digits that nobody takes for one another.
ECHO_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
ECHO_LENGTH = 8


@dataclass(frozen=True, slots=True)
class RenderedRequest:
    """What is asked for an item: in our words, and in the provider's."""

    request: Request
    echo: str
    body: dict[str, Any] = field(repr=False)


class RequestRenderer:
    """Renders the requests of items."""

    def __init__(self, resources: BatchResources) -> None:
        self.resources = resources
        self.registry = resources.registry
        self.rng = resources.rng

    def render(self, item: Item, account: Account) -> RenderedRequest:
        """The request of an item that is asked for the first time."""
        request = self.request_of(item)
        echo = ""
        if _needs_echo(request, item.route, account):
            echo = "".join(self.rng.choices(ECHO_ALPHABET, k=ECHO_LENGTH))
        return _rendered(request, echo, item, account)

    def render_again(self, item: Item, account: Account, echo: str) -> RenderedRequest:
        """The same request with the echo that it was given before."""
        return _rendered(self.request_of(item), echo, item, account)

    def request_of(self, item: Item) -> Request:
        """What the application asks for an item; SchemaInvalid if that is no request."""
        # Not get(), which also computes the retry policy: that took a quarter of a run.
        handler = self.registry.handlers.get(item.job_type)
        if handler is None:
            raise UnknownKind(item.job_type)
        found = handler.work.request(item)
        if not isinstance(found, Request):
            raise SchemaInvalid(
                f"{item.job_type}: request() must return a Request.", field="request"
            )
        return found


def _needs_echo(request: Request, route: Route, account: Account) -> bool:
    """Whether the answer must show that it is this item's; a call has one answer only."""
    wants = account.capabilities.wants_echo
    if request.wants_echo or wants:
        return True
    is_batched = route.execution_mode is ExecutionMode.BATCH
    return wants is None and is_batched and has_place(request.schema)


def _rendered(request: Request, echo: str, item: Item, account: Account) -> RenderedRequest:
    if request.schema is not None:
        # An answer that nobody could check would be paid for all the same.
        validator_for(request.schema)
    request = request.with_echo(echo) if echo else request
    return RenderedRequest(request, echo, account.adapter.body(item.route, request))
