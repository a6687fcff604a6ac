"""Anthropic: Message Batches and Messages, under ``/anthropic``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast_simulator.anthropic_words import (
    TYPES,
    check_name,
    find_wrong,
    read_requests,
    texts,
    write_error,
    write_message,
)
from holdfast_simulator.blob import Blob
from holdfast_simulator.exchange import Answer, Call, Op, Refused, Route, Why
from holdfast_simulator.models import BadLine, Batch, BatchRules, Item, Shown, Stage
from holdfast_simulator.prompt import ItemError, NotRun, Prompt, Said
from holdfast_simulator.state import SimulatorState

# The version in the guide, and the version that the 2026 client sends.
VERSIONS = ("2023-06-01", "2026-10-21")
KEPT = timedelta(days=29)
# Retry-After of a running batch.
POLL_AFTER = "10"

ERRORS: Mapping[Why, tuple[int, str]] = {
    Why.INVALID: (400, "invalid_request_error"),
    Why.UNAUTHORIZED: (401, "authentication_error"),
    Why.FORBIDDEN: (403, "permission_error"),
    Why.NOT_FOUND: (404, "not_found_error"),
    Why.CONFLICT: (409, "conflict_error"),
    Why.ALREADY_EXISTS: (409, "conflict_error"),
    Why.TOO_LARGE: (413, "request_too_large"),
    Why.TOKEN_LIMIT: (429, "rate_limit_error"),
    Why.RATE_LIMITED: (429, "rate_limit_error"),
    Why.SLOW_DOWN: (429, "rate_limit_error"),
    Why.QUOTA: (429, "rate_limit_error"),
    Why.SERVER_ERROR: (500, "api_error"),
    Why.OVERLOADED: (503, "overloaded_error"),
    Why.OVERLOADED_529: (529, "overloaded_error"),
}
# Three errors share a type and a status. Only these details distinguish them.
DETAILS = {
    Why.QUOTA: "enforced_spend_limit_reached",
    Why.SLOW_DOWN: "ramp_limit_exceeded",
}


class Anthropic:
    """The Anthropic API. It has no files, metadata or display names.

    A batch has only an id, times and counts.
    """

    name = "anthropic"
    prefix = "/anthropic"
    batch_rules = BatchRules(
        max_items=100_000,
        max_bytes=256 * 1024 * 1024,
        has_error_file=False,
        validates=False,
    )

    def __init__(self, state: SimulatorState) -> None:
        self._state = state
        batches, batch = "/v1/messages/batches", "/v1/messages/batches/{batch}"
        self.routes: Sequence[Route] = (
            Route("POST", batches, Op.CREATE, self._create),
            Route("GET", batches, Op.LIST, self._list),
            Route("GET", batch, Op.GET, self._get),
            Route("DELETE", batch, Op.DELETE, self._delete),
            Route("POST", f"{batch}/cancel", Op.CANCEL, self._cancel),
            Route("GET", f"{batch}/results", Op.CONTENT, self._results),
            Route("POST", "/v1/messages", Op.CALL, self._call),
            Route("POST", "/v1/messages/count_tokens", Op.OTHER, self._count_tokens),
        )

    def credential(self, call: Call) -> str | None:
        """Return the key from the guide's header, or from the bearer header of newer clients."""
        kind, _, token = call.headers.get("authorization", "").partition(" ")
        return call.headers.get("x-api-key") or (token if kind.lower() == "bearer" else "") or None

    def refuse(self, refused: Refused) -> Answer:
        status, kind = ERRORS[refused.why]
        detail = DETAILS.get(refused.why)
        return self._fail(status, kind, refused.message, detail, refused.headers)

    def new_file_id(self) -> str:
        return self._state.new_id("results_", 24)

    # -- batches

    def _create(self, call: Call) -> Answer:
        _check_version(call)
        if call.body.size > self.batch_rules.max_bytes:
            raise Refused(Why.TOO_LARGE, "Request exceeds the maximum size")
        lines = Blob()
        count = 0
        names: set[str] = set()
        for request in read_requests(call.body):
            custom_id = check_name(count, request, names)
            line = {"custom_id": custom_id, "params": request["params"]}
            lines.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            count += 1
        if not 0 < count <= self.batch_rules.max_items:
            raise Refused(Why.INVALID, f"requests: must be 1 to {self.batch_rules.max_items} items")
        batch_id = self._state.new_id("msgbatch_01", 22)
        shown = self._state.create_batch(self, call.account, lines, batch_id=batch_id, count=count)
        return self._answer(self._batch(call, shown))

    def _get(self, call: Call) -> Answer:
        _check_version(call)
        shown = self._state.find_batch(call.account, call.params["batch"])
        hint = {} if shown.stage.is_over else {"retry-after": POLL_AFTER}
        return self._answer(self._batch(call, shown), hint)

    def _list(self, call: Call) -> Answer:
        _check_version(call)
        limit = _number(call, "limit", 20)
        if not 1 <= limit <= 1000:
            raise Refused(Why.INVALID, "limit: must be 1 to 1000")
        page = self._state.page(
            call.account,
            self._state.list_batches(call.account),
            limit,
            after=call.query.get("after_id"),
            before=call.query.get("before_id"),
        )
        ids = [shown.batch.id for shown in page.batches]
        return self._answer(
            {
                "data": [self._batch(call, shown) for shown in page.batches],
                "has_more": page.has_more,
                "first_id": ids[0] if ids else None,
                "last_id": ids[-1] if ids else None,
            }
        )

    def _cancel(self, call: Call) -> Answer:
        _check_version(call)
        shown = self._state.find_batch(call.account, call.params["batch"])
        if shown.stage.is_over:
            raise Refused(Why.INVALID, f"Batch {shown.batch.id} has ended and cannot be canceled.")
        shown = self._state.cancel_batch(call.account, shown.batch.id)
        return self._answer(self._batch(call, shown))

    def _delete(self, call: Call) -> Answer:
        _check_version(call)
        shown = self._state.find_batch(call.account, call.params["batch"])
        if not shown.stage.is_over:
            message = f"Batch {shown.batch.id} is still processing; cancel it before deleting it."
            raise Refused(Why.INVALID, message)
        self._state.delete_batch(call.account, shown.batch.id)
        return self._answer({"id": shown.batch.id, "type": "message_batch_deleted"})

    def _results(self, call: Call) -> Answer:
        _check_version(call)
        shown = self._state.find_batch(call.account, call.params["batch"])
        if not shown.stage.is_over:
            raise Refused(Why.INVALID, f"Batch {shown.batch.id} has no results yet.")
        if self._archived_at(shown) is not None:
            raise Refused(Why.NOT_FOUND, f"The results of {shown.batch.id} are archived.")
        headers = {"content-type": "application/x-jsonl", "request-id": self._request_id()}
        if shown.stage is Stage.FAILED:
            return Answer(headers=headers, pieces=lambda: self._all_errored(shown))
        if not shown.output_id:
            return Answer(headers=headers)
        file = self._state.find_file(call.account, shown.output_id)
        return Answer(headers=headers, pieces=file.blob.pieces, size=file.size)

    def _batch(self, call: Call, shown: Shown) -> dict[str, Any]:
        batch = shown.batch
        archived_at = self._archived_at(shown)
        has_results = shown.stage.is_over and archived_at is None
        url = f"{call.origin}{self.prefix}/v1/messages/batches/{batch.id}/results"
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": shown.strange_status or _status(shown.stage),
            "request_counts": _counts(shown),
            "ended_at": _time(shown.entered(shown.stage)) if shown.stage.is_over else None,
            "created_at": _time(batch.created_at),
            "expires_at": _time(batch.expires_at or batch.created_at + timedelta(hours=24)),
            "archived_at": _time(archived_at),
            "cancel_initiated_at": _time(batch.times.get(Stage.CANCELING)),
            "results_url": url if has_results else None,
        }

    def _archived_at(self, shown: Shown) -> datetime | None:
        at = shown.batch.created_at + KEPT
        return at if at <= self._state.now else None

    def _all_errored(self, shown: Shown) -> Iterator[bytes]:
        """Yield an error for every item. A batch itself cannot fail at Anthropic."""
        batch = shown.batch
        code = shown.problems[0].code if shown.problems else ""
        status = 429 if code == "token_limit_exceeded" else 400
        error = ItemError(status, TYPES[status], "The request could not be processed.")
        for index in range(batch.total):
            item = self.read(batch, index + 1, batch.line(index))
            yield self.render(batch, item, item.custom_id, Said(error=error, model=item.model))

    # -- one item

    def read(self, batch: Batch, number: int, line: bytes) -> Item:
        """Parse one item. A create checks only names; other errors appear in the results.

        A bad item carries its name in the error code, because there is no other field for it.
        """
        request = json.loads(line)
        params = request["params"]
        wrong = find_wrong(params) or ("stream: not in a batch" if params.get("stream") else None)
        if wrong is not None and number and self._executes(batch):
            raise BadLine(request["custom_id"], wrong)
        return Item(request["custom_id"], str(params.get("model") or ""), params)

    def _executes(self, batch: Batch) -> bool:
        """Return whether items are executed. Otherwise they are listed as canceled or expired."""
        is_late = batch.expires_at is not None and batch.expires_at <= self._state.now
        return batch.stage is Stage.RUNNING and not is_late

    def prompt(self, model: str, body: Mapping[str, Any]) -> Prompt:
        output = body.get("output_config") or {}
        return Prompt(
            self.name,
            model,
            tuple(text for message in body["messages"] for text in texts(message["content"])),
            "\n".join(texts(body.get("system", ""))),
            (output.get("format") or {}).get("schema"),
            body.get("max_tokens"),
            body,
        )

    def render(self, batch: Batch, item: Item, custom_id: str, answered: Said) -> bytes:
        number = self._state.digest(f"message {batch.id} {item.custom_id or answered.error}")
        result: dict[str, Any]
        if answered.not_run is not None:
            word = "expired" if answered.not_run is NotRun.EXPIRED else "canceled"
            result = {"type": word}
        elif answered.error is not None:
            error = write_error(answered.error)
            error["request_id"] = f"req_01{number[:22]}"
            result = {"type": "errored", "error": error}
        else:
            message = write_message(f"msg_01{number[:22]}", answered, "batch")
            result = {"type": "succeeded", "message": message}
        if not custom_id and answered.error is not None:
            custom_id = answered.error.code
        line = {"custom_id": custom_id, "result": result}
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"

    # -- direct calls

    def _call(self, call: Call) -> Answer:
        _check_version(call)
        body = call.json
        wrong = find_wrong(body)
        if wrong is not None:
            raise Refused(Why.INVALID, wrong)
        if body.get("stream"):
            raise Refused(Why.INVALID, "stream: the simulator does not stream")
        said = self._state.direct(self, call, body["model"], body)
        if said.error is not None:
            error = write_error(said.error)["error"]
            return self._fail(said.error.status, error["type"], error["message"])
        return self._answer(write_message(self._state.new_id("msg_01", 22), said, "standard"))

    def _count_tokens(self, call: Call) -> Answer:
        _check_version(call)
        body = {"max_tokens": 1, **call.json}
        wrong = find_wrong(body)
        if wrong is not None:
            raise Refused(Why.INVALID, wrong)
        prompt = self.prompt(body["model"], body)
        size = len(prompt.instructions.encode()) + len(prompt.text.encode())
        return self._answer({"input_tokens": size // 4 + 8})

    # -- answers

    def _request_id(self) -> str:
        return self._state.new_id("req_01", 22)

    def _answer(self, value: Any, headers: Mapping[str, str] | None = None) -> Answer:
        return Answer.from_json(
            value, headers={"request-id": self._request_id(), **(headers or {})}
        )

    def _fail(
        self,
        status: int,
        kind: str,
        message: str,
        detail: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        error: dict[str, Any] = {"type": kind, "message": message}
        if detail is not None:
            error["details"] = {"error_code": detail}
        request_id = self._request_id()
        value = {"type": "error", "error": error, "request_id": request_id}
        return Answer.from_json(value, status, {"request-id": request_id, **(headers or {})})


def _check_version(call: Call) -> None:
    version = call.headers.get("anthropic-version")
    if version is None:
        raise Refused(Why.INVALID, "anthropic-version: header is required")
    if version not in VERSIONS:
        raise Refused(Why.INVALID, f"anthropic-version: {version!r} is not a valid version")


def _number(call: Call, name: str, default: int) -> int:
    given = call.query.get(name, str(default))
    if not given.isdecimal():
        raise Refused(Why.INVALID, f"{name}: Input should be a valid integer")
    return int(given)


def _status(stage: Stage) -> str:
    if stage is Stage.CANCELING:
        return "canceling"
    return "ended" if stage.is_over else "in_progress"


def _counts(shown: Shown) -> dict[str, int]:
    """Return the counts. Until the batch ends, all items count as processing."""
    total = int(shown.batch.extra.get("count", shown.total))
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    if not shown.stage.is_over:
        counts["processing"] = total
    elif shown.stage is Stage.FAILED:
        counts["errored"] = total
    else:
        counts["succeeded"] = shown.succeeded
        counts["errored"] = shown.failed
        counts["expired" if shown.stage is Stage.EXPIRED else "canceled"] = shown.not_run
    return counts


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="microseconds")
