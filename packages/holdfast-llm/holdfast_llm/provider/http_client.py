"""The HTTP client of a provider account. It sends the credential to the account's origin only."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn, Protocol
from urllib.parse import quote, urlencode, urlsplit

from holdfast.clock import Clock
from holdfast.outbound.client import MAX_ANSWER, Client, NotSent, Received, Timeouts, Unsure
from holdfast.outbound.guard import Guard, Origin
from holdfast_llm.provider.adapter import Adapter, ProviderClient, ProviderResponse
from holdfast_llm.provider.classify import DEFINITE, as_refusal, get_object, known_id
from holdfast_llm.provider.reply import (
    FOREIGN_REPLY,
    INPUT_NOT_FOUND,
    NAME_UNKNOWN,
    NO_ENDPOINT,
    REDIRECTED,
    TLS_FAILED,
    Answer,
    Failure,
    FailureKind,
    ProviderRefused,
    ProviderUnsure,
)
from holdfast_llm.settings import CommonProviderSettings

REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id")


class HttpAdapter(Adapter, Protocol):
    """The parts of an adapter that the HTTP client uses: base URL, headers and error envelope."""

    @property
    def base_url(self) -> str:
        """The provider's base URL, unless an account overrides it."""

    @property
    def settings(self) -> type[CommonProviderSettings]:
        """The keys of its settings; :class:`~holdfast_llm.provider.kind.ProviderKind` has these."""

    def problem(self, settings: Any) -> str | None:
        """Why these settings cannot be used; None if they can."""

    def configured(self, settings: Any) -> HttpAdapter:
        """The adapter with these settings applied."""

    def headers(self, credential: str) -> dict[str, str]:
        """The headers of every call."""

    def refusal(self, status: int, document: Any) -> Failure | None:
        """The failure of an error in the provider's envelope; None if there is no envelope."""


def open_client(
    adapter: HttpAdapter,
    base_url: str,
    credential: str,
    *,
    allow_private: bool = False,
    timeouts: Timeouts | None = None,
    clock: Clock | None = None,
) -> HttpProviderClient:
    """Return a client for the account that *credential* belongs to, bound to *base_url*.

    Raises ConfigError if calls to *base_url* are not allowed.
    """
    guard = Guard(Origin.from_url(base_url, allow_private=allow_private), allow_private)
    headers = adapter.headers(credential)
    path = urlsplit(base_url).path.rstrip("/")
    return HttpProviderClient(Client(guard, timeouts, clock=clock), path, headers, adapter.refusal)


class HttpProviderClient:
    """A :class:`~holdfast_llm.provider.adapter.ProviderClient` over HTTP."""

    def __init__(
        self,
        client: Client,
        path: str,
        headers: Mapping[str, str],
        refusal: Callable[[int, Any], Failure | None],
    ) -> None:
        self._client = client
        self._path = path
        self._headers = dict(headers)
        self._refusal = refusal

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content: Iterator[bytes] | bytes | None = None,
    ) -> ProviderResponse:
        given = {**self._headers, **(headers or {})}
        if json is not None:
            content = _encode(json)
            given["content-type"] = "application/json"
        elif content is None and method != "GET":
            content = b""
        try:
            answer = self._client.send(method, self._target(path, query), given, content)
        except NotSent as exc:
            raise _not_sent(exc) from exc
        except Unsure as exc:
            raise ProviderUnsure(exc.reason) from exc
        if not 200 <= answer.status < 300:
            if method == "POST":
                self._check_address(answer, path, json)
            self._complain(answer)
        return ProviderResponse(_decode(answer), answer.headers, answer.retry_after)

    @contextmanager
    def stream(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None
    ) -> Iterator[Iterator[bytes]]:
        ended = False

        def pieces() -> Iterator[bytes]:
            nonlocal ended
            try:
                yield from answer.pieces
            except Unsure as exc:
                raise ProviderUnsure(exc.reason) from exc
            ended = True

        try:
            with self._client.stream(method, self._target(path, query), self._headers) as answer:
                if answer.status != 200:
                    self._complain(replace(answer, body=_some(answer.pieces)))
                yield pieces()
        except NotSent as exc:
            raise _not_sent(exc) from exc
        except Unsure as exc:
            raise ProviderUnsure(exc.reason) from exc
        if not ended:
            raise ProviderUnsure("left_early")

    def close(self) -> None:
        """Close every connection. An unreferenced client closes itself."""
        self._client.close()

    def _target(self, path: str, query: Mapping[str, str] | None) -> str:
        target = path if path.startswith("/") else f"{self._path}/{path}"
        if not query:
            return target
        return f"{target}{'&' if '?' in target else '?'}{urlencode(query)}"

    def _check_address(self, answer: Received, path: str, json: Any) -> None:
        """Raise if the answer says that the endpoint does not exist at this URL.

        Nothing was done there. A 404 may also concern the named file, which was uploaded to the
        same URL before, or the named model, which the provider repeats.
        """
        status, code = answer.status, ""
        named, has_file = _named(path, json)
        if 300 <= status < 400:
            code = REDIRECTED
        elif status in (401, 403, 404, 405, 407) and self._refusal(status, _parse(answer)) is None:
            code = FOREIGN_REPLY
        elif status == 405 or (
            status == 404 and not has_file and not any(name in answer.body for name in named)
        ):
            code = NO_ENDPOINT
        if code:
            failure = Failure(FailureKind.ACCOUNT, code, status, retry_after=answer.retry_after)
            raise ProviderRefused(replace(failure, provider_request_id=request_id(answer.headers)))

    def _complain(self, answer: Received) -> NoReturn:
        """Raise the meaning of an unsuccessful answer: only the provider itself can refuse."""
        failure = self._refusal(answer.status, _parse(answer))
        if failure is not None:
            failure = replace(
                failure,
                retry_after=answer.retry_after or failure.retry_after,
                provider_request_id=request_id(answer.headers),
            )
            if answer.status in DEFINITE:
                raise ProviderRefused(as_refusal(failure))
        raise ProviderUnsure(
            f"status_{answer.status}",
            retry_after=answer.retry_after,
            failure=failure,
            is_foreign=failure is None,
        )


def _not_sent(exc: NotSent) -> ProviderRefused:
    # A name that resolves to a private network is an attack or a mistake, and needs an operator. So
    # does a name that does not exist, or a server with a wrong certificate.
    code = _WRONG_ADDRESS.get(exc.reason)
    if code is not None:
        return ProviderRefused(Failure(FailureKind.ACCOUNT, code))
    return ProviderRefused(Failure(FailureKind.TRANSIENT, exc.reason))


_WRONG_ADDRESS = {"blocked": "address_refused", "tls": TLS_FAILED, "name_unknown": NAME_UNKNOWN}
_FILES = ("fileName", "input_file_id", "input_files")


def _parse(answer: Received) -> Any:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return None


def _named(path: str, document: Any) -> tuple[list[bytes], bool]:
    """The model of a request, as an error repeats it; and whether the request names a file."""
    body = get_object(document)
    last = path.rpartition("/")[2]
    models = [last.partition(":")[0] if ":" in last else None, body.get("model")]
    inputs = {**body, **get_object(body, "batch", "inputConfig")}
    return (
        [model.encode() for model in models if isinstance(model, str) and model],
        any(inputs.get(name) for name in _FILES),
    )


def _some(pieces: Iterator[bytes]) -> bytes:
    """The start of an error body; no envelope is longer."""
    body = b""
    for piece in pieces:
        body += piece
        if len(body) > MAX_ANSWER // 64:
            break
    return body


def _encode(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=True, allow_nan=False).encode("ascii")


def _decode(answer: Received) -> Any:
    if not answer.body.strip():
        return None
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError) as exc:
        raise ProviderUnsure("not_json", is_foreign=True) from exc


# -- functions for adapters


def request_id(headers: Mapping[str, str]) -> str | None:
    """The provider's id of a call, for its support."""
    return next((found for name in REQUEST_IDS if (found := known_id(headers.get(name)))), None)


def segment(text: str) -> str:
    """Encode a name as one segment of a path."""
    return quote(text, safe="")


def needed(value: str | None) -> str:
    """Return a required value. Raises ProviderUnsure if it is missing."""
    if value is None:
        raise ProviderUnsure("not_understood")
    return value


def answer_of(send: Callable[[], Answer]) -> Answer:
    """Return the answer to a direct call; a refusal in the provider's envelope is an answer."""
    try:
        return send()
    except ProviderRefused as refused:
        failure = refused.failure
        if failure.status == 429 and failure.kind is FailureKind.CAPACITY:
            # A direct call has no batch capacity to wait for.
            return replace(failure, kind=FailureKind.TRANSIENT)
        return failure


def is_gone(refused: ProviderRefused) -> bool:
    """Whether a refusal says that the resource does not exist."""
    return refused.failure.status in (404, 410) or refused.failure.code == "not_found"


def without_input(refused: ProviderRefused) -> ProviderRefused:
    """Treat the refusal of a create with a missing input as temporary.

    The file was just uploaded: it is not visible yet, or another worker deleted it as a fence.
    """
    if not is_gone(refused):
        return refused
    failure = replace(refused.failure, kind=FailureKind.TRANSIENT, code=INPUT_NOT_FOUND)
    return ProviderRefused(failure)


def delete(client: ProviderClient, path: str, query: Mapping[str, str] | None = None) -> None:
    """Delete *path*; a missing resource counts as deleted."""
    try:
        client.request("DELETE", path, query=query)
    except ProviderRefused as refused:
        if not is_gone(refused):
            raise


def request_cancel(
    client: ProviderClient, path: str, query: Mapping[str, str] | None = None
) -> None:
    """Request the cancellation of a batch. A batch that has ended is left as it is.

    Raises ProviderUnsure if the provider gave no usable answer.
    """
    try:
        client.request("POST", path, query=query)
    except ProviderRefused as refused:
        if refused.failure.status not in (400, 404, 410, 422):
            raise
    except ProviderUnsure as unsure:
        if unsure.failure is None or unsure.failure.status != 409:
            raise
