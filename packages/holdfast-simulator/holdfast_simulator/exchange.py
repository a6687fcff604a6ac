"""One HTTP exchange between a client and a provider that is mounted in the simulator."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from holdfast_simulator.blob import Blob
from holdfast_simulator.models import Batch, BatchRules, Item
from holdfast_simulator.prompt import Prompt, Said


class Op(StrEnum):
    """What a route does, in words that all providers share; faults are aimed by them."""

    UPLOAD_START = "upload_start"
    UPLOAD = "upload"
    GET_FILE = "get_file"
    LIST_FILES = "list_files"
    DELETE_FILE = "delete_file"
    CONTENT = "content"
    CREATE = "create"
    GET = "get"
    LIST = "list"
    CANCEL = "cancel"
    DELETE = "delete"
    CALL = "call"
    # Of those who carry messages; an SMTP server is also asked on connecting and per recipient.
    SEND = "send"
    LOOKUP = "lookup"
    CONNECT = "connect"
    RECIPIENT = "recipient"
    OTHER = "other"


class Why(StrEnum):
    """Why a request is refused. Each router has its provider's status, code and envelope for it."""

    INVALID = "invalid"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    ALREADY_EXISTS = "already_exists"
    TOO_LARGE = "too_large"
    TOKEN_LIMIT = "token_limit"  # noqa: S105 — tokens of text, no secret
    RATE_LIMITED = "rate_limited"
    SLOW_DOWN = "slow_down"
    QUOTA = "quota"
    SERVER_ERROR = "server_error"
    # 503.
    OVERLOADED = "overloaded"
    # 529.
    OVERLOADED_529 = "overloaded_529"


class Refused(Exception):
    """Raised by a route, or put there by a fault: the provider says no in its own envelope."""

    def __init__(
        self,
        why: Why,
        message: str = "",
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message or why)
        self.why = why
        self.message = message or f"Simulated: {why}."
        self.param = param
        # Headers that the answer carries besides; a fault puts Retry-After here.
        self.headers = dict(headers or {})
        # Where a provider says it in the body, as Gemini's RetryInfo does.
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Call:
    """A request as it reached a router. Header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Blob
    # Scheme, host and port under which the client reached the simulator.
    origin: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    # The account that the credential belongs to; files and batches of others are not seen.
    account: str = ""

    @property
    def json(self) -> Any:
        """The body as JSON; Refused(INVALID) if it is none."""
        try:
            return json.loads(self.body.read() or b"{}")
        except ValueError:
            raise Refused(Why.INVALID, "The body of the request is not valid JSON.") from None


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: whole, or as pieces that are made while they are sent."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Callable[[], Iterator[bytes]] | None = None
    # The length of all pieces; without it they go out chunked.
    size: int | None = None

    @classmethod
    def from_json(
        cls, value: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """A JSON answer."""
        body = json.dumps(value, separators=(",", ":")).encode()
        return cls(status, body, {"content-type": "application/json", **(headers or {})})


class Route:
    """A method and a path with ``{name}`` for a segment, what it does, and who does it.

    A name matches anything but a slash and a colon, so ``/models/{model}:generateContent`` works.
    """

    def __init__(self, method: str, path: str, op: Op, handle: Callable[[Call], Answer]) -> None:
        self.method = method
        self.path = path
        self.op = op
        self.handle = handle
        parts = re.split(r"\{(\w+)\}", path)
        pattern = "".join(
            f"(?P<{part}>[^/:]+)" if place % 2 else re.escape(part)
            for place, part in enumerate(parts)
        )
        self._pattern = re.compile(pattern)

    def match(self, method: str, path: str) -> dict[str, str] | None:
        """What the names stand for, if it is this route."""
        found = self._pattern.fullmatch(path)
        return found.groupdict() if found is not None and method == self.method else None


class Endpoint(Protocol):
    """Whoever is mounted in the simulator, as far as the server must know: routes and envelope.

    It holds no state of its own: what it has is the state's. It is made with the state, listed in
    routers.py, and called under the state's lock.
    """

    # "openai"; also what faults and accounts call it.
    name: str
    # "/openai/v1": what the paths of the routes come after.
    prefix: str

    @property
    def routes(self) -> Sequence[Route]:
        """Its routes; the first that matches is taken."""

    def credential(self, call: Call) -> str | None:
        """The key that the client sent, wherever this provider looks for it; None if none."""

    def refuse(self, refused: Refused) -> Answer:
        """The provider's own answer for a refusal, with ``refused.headers``."""


class Router(Endpoint, Protocol):
    """A model provider: how its batches and its items look."""

    batch_rules: BatchRules

    def new_file_id(self) -> str:
        """An id for a file of results, in the provider's style."""

    def read(self, batch: Batch, number: int, line: bytes) -> Item:
        """One line of a batch's input, counted from 1; BadLine as the provider's validation has it.

        It is read once to validate and once to execute.
        """

    def prompt(self, model: str, body: Mapping[str, Any]) -> Prompt:
        """What a request body asks, in shared words."""

    def render(self, batch: Batch, item: Item, custom_id: str, answered: Said) -> bytes:
        """The line of results for an item, newline included, under *custom_id*.

        Of *answered* the tokens and the model are always filled in.
        """
