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

# Letters and digits without lookalikes.
ECHO_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
ECHO_LENGTH = 8


@dataclass(frozen=True, slots=True)
class RenderedRequest:
    """The request of an item, as built by the application and as sent to the provider."""

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
        """Render the request of an item for the first time."""
        request = self.request_of(item)
        echo = ""
        if _needs_echo(request, item.route, account):
            echo = "".join(self.rng.choices(ECHO_ALPHABET, k=ECHO_LENGTH))
        return _rendered(request, echo, item, account)

    def render_again(self, item: Item, account: Account, echo: str) -> RenderedRequest:
        """Render the same request again with its stored echo."""
        return _rendered(self.request_of(item), echo, item, account)

    def request_of(self, item: Item) -> Request:
        """The application's request for an item. Raises SchemaInvalid if it is invalid."""
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
    """Whether the answer must identify its item; a direct call has only one answer."""
    wants = account.capabilities.wants_echo
    if request.wants_echo or wants:
        return True
    is_batched = route.execution_mode is ExecutionMode.BATCH
    return wants is None and is_batched and has_place(request.schema)


def _rendered(request: Request, echo: str, item: Item, account: Account) -> RenderedRequest:
    if request.schema is not None:
        # An answer that cannot be validated would still be paid for.
        validator_for(request.schema)
    request = request.with_echo(echo) if echo else request
    return RenderedRequest(request, echo, account.adapter.body(item.route, request))
