"""The payloads of an enqueue as requests, and the rows to insert, in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from holdfast.engine.handler import Handler
from holdfast.engine.job import current
from holdfast.engine.key_template import with_keys
from holdfast.engine.payload_reader import Signature
from holdfast.engine.payload_values import is_structured, to_document
from holdfast.engine.request import InsertRows, JobRequest, Options, prepare
from holdfast.errors import Forbidden, InvalidJob
from holdfast.ids import MalformedId, read_named_id

# Up to this many jobs are one statement. More are written in chunks: large enough for the server,
# small enough to validate one chunk while the previous one is written.
ONE_STATEMENT = 500
CHUNK = 250

Chunks = Sequence[Callable[[], InsertRows]]
"""The rows of an enqueue in pieces, which are validated when they are built."""


def is_same_tenant(one: object, other: object) -> bool:
    """Whether two ids, or names, are those of one tenant."""
    try:
        return read_named_id(one) == read_named_id(other)
    except MalformedId:
        return str(one) == str(other)


def held_to(request: JobRequest, org_id: str | None) -> JobRequest:
    """Return a prepared request, if it belongs to the tenant that the call is bound to."""
    if org_id is not None and not is_same_tenant(request.org_id, org_id):
        raise Forbidden(f"A request for another tenant than {org_id} cannot be enqueued here.")
    return request


def inherit(org_id: str | None, options: Options) -> dict[str, Any]:
    """The fields of a request; a running job enqueues for its own tenant and correlation."""
    running = current.get()
    if running is None:
        return {"org_id": org_id, **options}
    if org_id is not None and not is_same_tenant(org_id, running.org_id):
        raise Forbidden(
            f"Job {running.id} of tenant {running.org_id} cannot enqueue for another tenant."
        )
    return {
        "org_id": running.org_id,
        "project_id": running.project_id,
        "correlation_id": running.correlation_id,
        "request_id": running.request_id,
        "traceparent": running.traceparent,
        **options,
    }


def accept_payloads(
    handler: Handler, payloads: Iterable[Mapping[str, Any] | JobRequest]
) -> Iterable[Mapping[str, Any] | JobRequest]:
    """Payloads as documents, checked against the parameters and classes that handlers declare.

    Raises InvalidJob. A payload that handlers take as a dict is not checked.
    """
    if not isinstance(payloads, Iterable):
        return payloads
    declared = [
        stage.signature
        for stage in handler.stages
        if stage.signature is not None and stage.signature.is_declared
    ]
    if not declared:
        return [one if type(one) is dict else _document_of(one) for one in payloads]
    return [
        replace(one, payload=_checked(one.payload, declared))
        if isinstance(one, JobRequest)
        else _checked(one, declared)
        for one in payloads
    ]


def _checked(payload: Any, declared: Sequence[Signature]) -> Any:
    if isinstance(payload, Mapping) or is_structured(type(payload)):
        payload = to_document(payload)
        for signature in declared:
            signature.check(payload)
    return payload


def _document_of(payload: Any) -> Any:
    if isinstance(payload, (JobRequest, Mapping, type)):
        return payload
    return to_document(payload) if is_structured(type(payload)) else payload


def requests_of(
    handler: Handler,
    payloads: Iterable[Mapping[str, Any] | JobRequest],
    org_id: str | None,
    options: Options,
    default_org: str | None,
) -> Sequence[tuple[Mapping[str, Any], JobRequest]]:
    """Pair payloads with their requests: prepared ones, or one request shared by all others."""
    given = inherit(org_id, options)
    bound_to = given["org_id"]
    if unknown := sorted(set(given) - set(JobRequest.__slots__)):
        raise InvalidJob(dict.fromkeys(unknown, "is not an option of enqueue"))
    if not isinstance(payloads, Iterable):
        raise InvalidJob({"payloads": f"must be a list, not {type(payloads).__name__}"})
    tenant = default_org if bound_to is None else bound_to
    shared = JobRequest(payload={}, **{**given, "org_id": tenant})
    items = [
        (item.payload, held_to(item, bound_to)) if isinstance(item, JobRequest) else (item, shared)
        for item in payloads
    ]
    return with_keys(handler, items)


def chunks_of(
    handler: Handler,
    items: Sequence[tuple[Mapping[str, Any], JobRequest]],
    *,
    ids: Sequence[str],
    whole: bool,
    **prepared: Any,
) -> Chunks:
    """The rows to insert, in pieces validated when consumed; with *whole*, in one piece."""
    # Keys are locked before any row is inserted.
    whole = whole or any(request.unique_key or request.deadline for _, request in items)
    size = CHUNK if len(items) > ONE_STATEMENT and not whole else len(items)
    # The server waits for the first one, so it is short.
    starts = [0, *range(size // 3 or 1, len(items), size or 1)] if size < len(items) else [0]
    return [
        partial(prepare, handler, items[at:until], ids=ids[at:until], **prepared)
        for at, until in pairwise([*starts, len(items)])
        if at < until
    ]
