"""Mistral in the simulator: files, batch jobs and chat completions."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast_simulator.blob import Blob
from holdfast_simulator.exchange import Answer, Call, Op, Refused, Route, Why
from holdfast_simulator.mistral_words import (
    STATUS,
    find_wrong,
    read_chat,
    write_chat,
    write_error,
    write_file,
    write_item_error,
    write_job,
    write_refusal,
)
from holdfast_simulator.models import BadLine, Batch, BatchRules, File, Item, Shown
from holdfast_simulator.multipart import read_form
from holdfast_simulator.prompt import Prompt, Said
from holdfast_simulator.state import SimulatorState

ENDPOINT = "/v1/chat/completions"
MOST_INLINE = 10_000
LONGEST_HOURS = 7 * 24
PAGE = 100


class Mistral:
    """``Mistral(server_url=simulator.url("mistral"))``."""

    name = "mistral"
    prefix = "/mistral"
    batch_rules = BatchRules(max_items=1_000_000, max_bytes=512 * 1024 * 1024, tells_not_run=False)

    def __init__(self, state: SimulatorState) -> None:
        self.state = state
        self.routes = [
            Route("POST", "/v1/files", Op.UPLOAD, self.upload),
            Route("GET", "/v1/files", Op.LIST_FILES, self.list_files),
            Route("GET", "/v1/files/{id}", Op.GET_FILE, self.get_file),
            Route("DELETE", "/v1/files/{id}", Op.DELETE_FILE, self.delete_file),
            Route("GET", "/v1/files/{id}/content", Op.CONTENT, self.content),
            Route("POST", "/v1/batch/jobs", Op.CREATE, self.create),
            Route("GET", "/v1/batch/jobs", Op.LIST, self.list),
            Route("GET", "/v1/batch/jobs/{id}", Op.GET, self.get),
            Route("POST", "/v1/batch/jobs/{id}/cancel", Op.CANCEL, self.cancel),
            Route("DELETE", "/v1/batch/jobs/{id}", Op.DELETE, self.delete),
            Route("POST", ENDPOINT, Op.CALL, self.chat),
        ]

    def credential(self, call: Call) -> str | None:
        scheme, _, key = call.headers.get("authorization", "").partition(" ")
        return key.strip() if scheme.lower() == "bearer" and key.strip() else None

    def refuse(self, refused: Refused) -> Answer:
        status, value = write_refusal(refused)
        return Answer.from_json(value, status, refused.headers)

    def new_file_id(self) -> str:
        return str(uuid.UUID(self.state.new_id()))

    # -- files

    def upload(self, call: Call) -> Answer:
        form = read_form(call)
        if form.file is None:
            raise Refused(Why.INVALID, "file: Field required", param="file")
        if form.file.size > self.batch_rules.max_bytes:
            raise Refused(Why.TOO_LARGE, "The file is too large.", param="file")
        if form.fields.get("purpose") != "batch":
            raise Refused(
                Why.INVALID, "The simulator keeps files for batches only.", param="purpose"
            )
        hours = form.fields.get("expiry", "")
        expires_at = self.state.now + timedelta(hours=int(hours)) if hours.isdecimal() else None
        file = self.state.add_file(
            call.account,
            form.filename,
            form.file,
            file_id=self.new_file_id(),
            expires_at=expires_at,
            visibility=form.fields.get("visibility", "workspace"),
        )
        return Answer.from_json(write_file(file))

    def list_files(self, call: Call) -> Answer:
        search = call.query.get("search", "")
        files = [file for file in self.state.list_files(call.account) if search in file.name]
        number, size = _page(call)
        part = files[number * size : (number + 1) * size]
        listed = [write_file(file) for file in part]
        return Answer.from_json({"object": "list", "data": listed, "total": len(files)})

    def get_file(self, call: Call) -> Answer:
        file = self.state.find_file(call.account, call.params["id"])
        return Answer.from_json({**write_file(file), "deleted": False})

    def delete_file(self, call: Call) -> Answer:
        self.state.delete_file(call.account, call.params["id"])
        return Answer.from_json({"id": call.params["id"], "object": "file", "deleted": True})

    def content(self, call: Call) -> Answer:
        file = self.state.find_file(call.account, call.params["id"])
        kind = {"content-type": "application/octet-stream"}
        return Answer(headers=kind, pieces=file.blob.pieces, size=file.size)

    # -- jobs

    def create(self, call: Call) -> Answer:
        given = call.json
        if not isinstance(given, dict) or given.get("endpoint") != ENDPOINT:
            raise Refused(Why.INVALID, f"endpoint: Input should be {ENDPOINT}", param="endpoint")
        hours = given.get("timeout_hours", 24)
        if isinstance(hours, bool) or not isinstance(hours, int) or not 1 <= hours <= LONGEST_HOURS:
            message = f"timeout_hours: Input should be 1 to {LONGEST_HOURS}"
            raise Refused(Why.INVALID, message, param="timeout_hours")
        metadata = given.get("metadata") or {}
        if not isinstance(metadata, dict) or not all(
            isinstance(value, str) for value in metadata.values()
        ):
            raise Refused(Why.INVALID, "metadata: values must be strings", param="metadata")
        shown = self.state.create_batch(
            self,
            call.account,
            self._source(call.account, given),
            batch_id=self.new_file_id(),
            model=given.get("model") or "",
            endpoint=ENDPOINT,
            metadata=metadata,
            window=timedelta(hours=hours),
        )
        return Answer.from_json(self._job(shown))

    def _source(self, account: str, given: Mapping[str, Any]) -> File | Blob:
        files, requests = given.get("input_files") or [], given.get("requests") or []
        if bool(files) == bool(requests):
            raise Refused(Why.INVALID, "input_files or requests is required, and not both")
        if files:
            if len(files) > 1:
                raise Refused(Why.INVALID, "The simulator takes one input file.")
            return self.state.find_file(account, str(files[0]))
        if len(requests) > MOST_INLINE:
            raise Refused(Why.INVALID, f"requests: at most {MOST_INLINE}", param="requests")
        lines = Blob()
        for request in requests:
            lines.write(json.dumps(request, separators=(",", ":")).encode() + b"\n")
        return lines

    def get(self, call: Call) -> Answer:
        shown = self.state.find_batch(call.account, call.params["id"])
        return Answer.from_json(self._job(shown, is_inline=call.query.get("inline") == "true"))

    def list(self, call: Call) -> Answer:
        listed = [
            shown for shown in self.state.list_batches(call.account) if _is_selected(call, shown)
        ]
        if call.query.get("order_by") == "created":
            listed.reverse()
        number, size = _page(call)
        before = number * size - 1
        jobs: tuple[Shown, ...] = ()
        if before < len(listed):
            after = None if before < 0 else listed[before].batch.id
            jobs = self.state.page(call.account, listed, size, after=after).batches
        data = [self._job(shown) for shown in jobs]
        return Answer.from_json({"object": "list", "data": data, "total": len(listed)})

    def cancel(self, call: Call) -> Answer:
        return Answer.from_json(self._job(self.state.cancel_batch(call.account, call.params["id"])))

    def delete(self, call: Call) -> Answer:
        shown = self.state.find_batch(call.account, call.params["id"])
        if not shown.stage.is_over:
            raise Refused(Why.CONFLICT, "The job is running; cancel it before deleting it.")
        self.state.delete_batch(call.account, call.params["id"])
        return Answer.from_json({"id": call.params["id"], "object": "batch", "deleted": True})

    def _job(self, shown: Shown, *, is_inline: bool = False) -> dict[str, Any]:
        if not is_inline or not shown.stage.is_over:
            return write_job(shown, None)
        files = [file for file in (shown.batch.output, shown.batch.errors) if file is not None]
        lines = [line for file in files for line in file.blob.read().split(b"\n") if line.strip()]
        return write_job(shown, [json.loads(line) for line in lines])

    # -- one item

    def read(self, batch: Batch, number: int, line: bytes) -> Item:
        try:
            given = json.loads(line)
        except ValueError:
            raise BadLine("invalid_json", "This line is not valid JSON.") from None
        body = given.get("body") if isinstance(given, dict) else None
        wrong = find_wrong(body)
        if wrong is not None or not isinstance(body, dict):
            raise BadLine("invalid_request", f"Invalid request: {wrong}", "body")
        model = body.get("model") or batch.model
        if not model or (batch.model and model != batch.model):
            raise BadLine(
                "invalid_model", "All requests must be for the model of the job.", "model"
            )
        custom_id = given.get("custom_id")
        return Item(str(number - 1) if custom_id is None else str(custom_id), model, body)

    def prompt(self, model: str, body: Mapping[str, Any]) -> Prompt:
        return read_chat(self.name, model, body)

    def render(self, batch: Batch, item: Item, custom_id: str, answered: Said) -> bytes:
        """Render a line without escaping, so U+2028 and similar characters occur as such."""
        number = self.state.digest(f"result {batch.id} {item.custom_id}")
        line: dict[str, Any] = {"id": f"batch-{number[:8]}-{number[8:20]}", "custom_id": custom_id}
        if answered.error is not None:
            line |= write_item_error(answered.error)
        else:
            chat = write_chat(number[:32], answered, self.state.now)
            line |= {"response": {"status_code": 200, "body": chat}, "error": None}
        return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"

    # -- direct calls

    def chat(self, call: Call) -> Answer:
        body = call.json
        wrong = find_wrong(body)
        if wrong is None and not body.get("model"):
            wrong = "model: Field required"
        if wrong is not None:
            where, _, message = wrong.partition(": ")
            detail = {"type": "value_error", "loc": ["body", where], "msg": message, "input": None}
            return Answer.from_json({"detail": [detail]}, 422)
        if body.get("stream"):
            raise Refused(Why.INVALID, "The simulator does not stream.", param="stream")
        said = self.state.direct(self, call, body["model"], body)
        if said.error is not None:
            error = said.error
            value = write_error(error.status, error.code, None, error.message)
            return Answer.from_json(value, error.status)
        return Answer.from_json(write_chat(self.state.new_id(), said, self.state.now))


def _page(call: Call) -> tuple[int, int]:
    given = call.query.get("page", "0"), call.query.get("page_size", str(PAGE))
    if not all(text.isdecimal() for text in given) or int(given[1]) < 1:
        raise Refused(Why.INVALID, "page and page_size: Input should be a valid integer")
    return int(given[0]), int(given[1])


def _is_selected(call: Call, shown: Shown) -> bool:
    """Return whether a job matches the filters. The metadata filter's format is unknown."""
    query = call.query
    status = shown.strange_status or STATUS[shown.stage]
    since = query.get("created_after")
    return (
        query.get("status", status) == status
        and query.get("model", shown.batch.model) == shown.batch.model
        and (since is None or shown.batch.created_at > _instant(since))
    )


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        message = "created_after: Input should be a valid datetime"
        raise Refused(Why.INVALID, message, param="created_after") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
