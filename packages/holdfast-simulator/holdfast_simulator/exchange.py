"""One HTTP exchange between a client and a simulated provider."""

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
    """The operation of a route, under a name that all providers share. Faults target these."""

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
    # Message channels. SMTP servers also match on connect and for each recipient.
    SEND = "send"
    LOOKUP = "lookup"
    CONNECT = "connect"
    RECIPIENT = "recipient"
    OTHER = "other"


class Why(StrEnum):
    """Why a request is refused. Each router maps it to its provider's status, code and envelope."""

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
    """A refusal, raised by a route or a fault and rendered in the provider's envelope."""

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
        # Additional response headers; faults set Retry-After here.
        self.headers = dict(headers or {})
        # For providers that put it in the body, such as Gemini's RetryInfo.
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Call:
    """A request as a router receives it. Header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Blob
    # Scheme, host and port under which the client reached the simulator.
    origin: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    # The account of the credential. Files and batches of other accounts are not visible.
    account: str = ""

    @property
    def json(self) -> Any:
        """Return the body as JSON. Raises Refused(INVALID) if it is not JSON."""
        try:
            return json.loads(self.body.read() or b"{}")
        except ValueError:
            raise Refused(Why.INVALID, "The body of the request is not valid JSON.") from None


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: complete, or as pieces that are generated while they are sent."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Callable[[], Iterator[bytes]] | None = None
    # The total length of the pieces; if None, the response is chunked.
    size: int | None = None

    @classmethod
    def from_json(
        cls, value: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Build a JSON answer."""
        body = json.dumps(value, separators=(",", ":")).encode()
        return cls(status, body, {"content-type": "application/json", **(headers or {})})


class Route:
    """A method, a path with ``{name}`` placeholders, the operation and its handler.

    A placeholder matches anything but a slash and a colon, so ``/models/{model}:generateContent``
    works.
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
        """Return the values of the placeholders, or None if the request does not match."""
        found = self._pattern.fullmatch(path)
        return found.groupdict() if found is not None and method == self.method else None


class Endpoint(Protocol):
    """A simulated service: its routes and its error envelope.

    Endpoints are stateless; all state is in SimulatorState. They are constructed with the state,
    listed in routers.py, and called under the state's lock.
    """

    # "openai"; also the name in faults and accounts.
    name: str
    # "/openai/v1": the prefix of all route paths.
    prefix: str

    @property
    def routes(self) -> Sequence[Route]:
        """Return the routes; the first match is used."""

    def credential(self, call: Call) -> str | None:
        """Return the client's key from where this provider expects it; None without a key."""

    def refuse(self, refused: Refused) -> Answer:
        """Render a refusal in the provider's envelope, with ``refused.headers``."""


class Router(Endpoint, Protocol):
    """A model provider: how it renders batches and items."""

    batch_rules: BatchRules

    def new_file_id(self) -> str:
        """Return an id for a result file, in the provider's format."""

    def read(self, batch: Batch, number: int, line: bytes) -> Item:
        """Parse one input line of a batch, counted from 1. Raises BadLine for an invalid one.

        Each line is parsed once to validate and once to execute.
        """

    def prompt(self, model: str, body: Mapping[str, Any]) -> Prompt:
        """Convert a request body to a provider-independent prompt."""

    def render(self, batch: Batch, item: Item, custom_id: str, answered: Said) -> bytes:
        """Render the result line of an item under *custom_id*, including the newline.

        The tokens and the model of *answered* are always set.
        """
