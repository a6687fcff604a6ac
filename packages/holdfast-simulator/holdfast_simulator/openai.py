"""OpenAI and Azure OpenAI in the simulator: files, batches, responses and chat completions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from holdfast_simulator.exchange import Answer, Call, Op, Refused, Route, Why
from holdfast_simulator.models import BadLine, Batch, BatchRules, File, Item, Shown
from holdfast_simulator.multipart import read_form
from holdfast_simulator.openai_words import (
    REFUSALS,
    read_chat,
    read_responses,
    seconds,
    write_batch,
    write_chat,
    write_file,
    write_response,
)
from holdfast_simulator.prompt import ItemError, NotRun, Prompt, Said
from holdfast_simulator.state import SimulatorState

ENDPOINTS = ("/v1/responses", "/v1/chat/completions")
# Minimum and maximum file expiry in seconds, and the limits of metadata.
EXPIRY = (3600, 2_592_000)
PAIRS, KEY, VALUE = 16, 64, 512


class OpenAI:
    """``OpenAI(base_url=simulator.url("openai"))``."""

    name = "openai"
    prefix = "/openai/v1"
    batch_rules = BatchRules()

    def __init__(self, state: SimulatorState) -> None:
        self.state = state
        self.routes = [
            Route("POST", "/files", Op.UPLOAD, self.upload),
            Route("GET", "/files", Op.LIST_FILES, self.list_files),
            Route("GET", "/files/{id}", Op.GET_FILE, self.get_file),
            Route("DELETE", "/files/{id}", Op.DELETE_FILE, self.delete_file),
            Route("GET", "/files/{id}/content", Op.CONTENT, self.content),
            Route("POST", "/batches", Op.CREATE, self.create),
            Route("GET", "/batches", Op.LIST, self.list),
            Route("GET", "/batches/{id}", Op.GET, self.get),
            Route("POST", "/batches/{id}/cancel", Op.CANCEL, self.cancel),
            Route("POST", "/responses", Op.CALL, self.respond),
            Route("POST", "/chat/completions", Op.CALL, self.chat),
            Route("GET", "/models", Op.OTHER, self.models),
        ]

    def credential(self, call: Call) -> str | None:
        scheme, _, key = call.headers.get("authorization", "").partition(" ")
        return key.strip() if scheme.lower() == "bearer" and key.strip() else None

    def refuse(self, refused: Refused) -> Answer:
        status, kind, code = REFUSALS[refused.why]
        error = {"message": refused.message, "type": kind, "param": refused.param, "code": code}
        return self._answer({"error": error}, status, refused.headers)

    def _answer(
        self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> Answer:
        ids = {"x-request-id": self.state.new_id("req_"), "openai-processing-ms": "1"}
        return Answer.from_json(value, status, {**ids, **(headers or {})})

    # -- files

    def upload(self, call: Call) -> Answer:
        form = read_form(call)
        if form.file is None:
            raise Refused(Why.INVALID, "'file' is a required property", param="file")
        if form.file.size > self.batch_rules.max_bytes:
            raise Refused(Why.TOO_LARGE, "The file is too large.", param="file")
        expires_at = None
        asked = form.fields.get("expires_after[seconds]")
        if asked is not None:
            if not asked.isdigit() or not EXPIRY[0] <= int(asked) <= EXPIRY[1]:
                raise Refused(Why.INVALID, "Invalid expires_after.", param="expires_after")
            expires_at = self.state.now + timedelta(seconds=int(asked))
        file = self.state.add_file(
            call.account,
            form.filename,
            form.file,
            purpose=form.fields.get("purpose", ""),
            file_id=self.new_file_id(),
            expires_at=expires_at,
        )
        return self._answer(write_file(file))

    def new_file_id(self) -> str:
        return self.state.new_id("file-", 22)

    def list_files(self, call: Call) -> Answer:
        purpose = call.query.get("purpose")
        files = self.state.list_files(call.account)
        if call.query.get("order") == "asc":
            files.reverse()
        files = [file for file in files if purpose in (None, file.purpose)]
        ids = [file.id for file in files]
        after = call.query.get("after")
        start = ids.index(after) + 1 if after in ids else 0
        limit = _limit(call, 10_000, 10_000)
        page = files[start : start + limit]
        return self._answer(
            {
                "object": "list",
                "data": [write_file(file) for file in page],
                "first_id": page[0].id if page else None,
                "last_id": page[-1].id if page else None,
                "has_more": len(files) > start + limit,
            }
        )

    def get_file(self, call: Call) -> Answer:
        return self._answer(write_file(self._file(call)))

    def delete_file(self, call: Call) -> Answer:
        self.state.delete_file(call.account, call.params["id"])
        return self._answer({"id": call.params["id"], "object": "file", "deleted": True})

    def content(self, call: Call) -> Answer:
        file = self._file(call)
        headers = {
            "content-type": "application/octet-stream",
            "content-disposition": f'attachment; filename="{file.name}"',
        }
        return Answer(headers=headers, pieces=file.blob.pieces, size=file.size)

    def _file(self, call: Call) -> File:
        return self.state.find_file(call.account, call.params["id"])

    # -- batches

    def create(self, call: Call) -> Answer:
        asked = call.json
        endpoint = str(asked.get("endpoint") or "")
        if endpoint not in self.endpoints:
            raise Refused(Why.INVALID, f"Invalid value: '{endpoint}'.", param="endpoint")
        if asked.get("completion_window") != "24h":
            raise Refused(Why.INVALID, "Invalid completion_window.", param="completion_window")
        metadata = _metadata(asked.get("metadata"))
        file_id = str(asked.get("input_file_id") or "")
        try:
            file = self.state.find_file(call.account, file_id)
        except Refused as refused:
            raise Refused(Why.INVALID, refused.message, param="input_file_id") from None
        if file.purpose != "batch":
            raise Refused(Why.INVALID, "The file's purpose is not batch.", param="input_file_id")
        kept = (asked.get("output_expires_after") or {}).get("seconds")
        shown = self.state.create_batch(
            self,
            call.account,
            file,
            batch_id=self.state.new_id("batch_"),
            endpoint=endpoint,
            metadata=metadata,
            output_expires_after=kept,
        )
        return self._answer(self.write_batch(shown))

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Return the endpoints that a batch may target."""
        return ENDPOINTS

    def write_batch(self, shown: Shown) -> dict[str, Any]:
        """Render a batch."""
        return write_batch(shown)

    def list(self, call: Call) -> Answer:
        listed = self.state.list_batches(call.account)
        limit = _limit(call, 20, 100)
        page = self.state.page(call.account, listed, limit, after=call.query.get("after"))
        data = [self.write_batch(shown) for shown in page.batches]
        return self._answer(
            {
                "object": "list",
                "data": data,
                "first_id": data[0]["id"] if data else None,
                "last_id": data[-1]["id"] if data else None,
                "has_more": page.has_more,
            }
        )

    def get(self, call: Call) -> Answer:
        return self._answer(
            self.write_batch(self.state.find_batch(call.account, call.params["id"]))
        )

    def cancel(self, call: Call) -> Answer:
        shown = self.state.find_batch(call.account, call.params["id"])
        if shown.batch.stage.is_over:
            raise Refused(Why.CONFLICT, f"Cannot cancel a batch with status '{shown.stage}'.")
        return self._answer(
            self.write_batch(self.state.cancel_batch(call.account, call.params["id"]))
        )

    # -- direct calls

    def respond(self, call: Call) -> Answer:
        return self._direct(call, call.json)

    def chat(self, call: Call) -> Answer:
        return self._direct(call, call.json)

    def _direct(self, call: Call, body: dict[str, Any], model: str | None = None) -> Answer:
        model = model or body.get("model")
        if not isinstance(model, str) or not model:
            raise Refused(Why.INVALID, "you must provide a model parameter", param="model")
        if body.get("stream"):
            raise Refused(Why.INVALID, "The simulator does not stream.", param="stream")
        if body.get("n") not in (None, 1):
            raise Refused(Why.INVALID, "The simulator gives one answer.", param="n")
        said = self.state.direct(self, call, model, body)
        name = self.state.new_id()
        if said.error is not None:
            return self._answer(_error(said.error), said.error.status or 504)
        return self._answer(self._body(name, body, said), headers=_rates())

    def models(self, call: Call) -> Answer:
        names = ("gpt-5.2", "gpt-5.4-mini", "gpt-4o-mini")
        made = seconds(self.state.now)
        data = [
            {"id": name, "object": "model", "created": made, "owned_by": "openai"} for name in names
        ]
        return self._answer({"object": "list", "data": data})

    # -- items

    def read(self, batch: Batch, number: int, line: bytes) -> Item:
        # Like the providers, the simulator rejects a byte-order mark.
        try:
            found = json.loads(line.decode())
        except ValueError:
            raise BadLine(
                "invalid_json_line", "This line is not parseable as valid JSON."
            ) from None
        if not isinstance(found, dict):
            raise BadLine("invalid_json_line", "This line is not a JSON object.")
        custom_id, body = found.get("custom_id"), found.get("body")
        if not isinstance(custom_id, str) or not custom_id:
            raise BadLine("missing_required_parameter", "custom_id is missing.", "custom_id")
        if not isinstance(body, dict):
            raise BadLine("missing_required_parameter", "body is missing.", "body")
        if found.get("method") != "POST":
            raise BadLine("invalid_method", "The method must be POST.", "method")
        if not self.is_same_endpoint(str(found.get("url")), batch.endpoint):
            raise BadLine("mismatched_url", "The url is not the batch's endpoint.", "url")
        if not isinstance(body.get("model"), str):
            raise BadLine("model_not_found", "The model is missing.", "body.model")
        if body.get("stream"):
            raise BadLine("invalid_request", "stream is not allowed in a batch.", "body.stream")
        if body.get("n") not in (None, 1):
            raise BadLine("invalid_request", "The simulator gives one answer.", "body.n")
        return Item(custom_id, body["model"], body)

    def is_same_endpoint(self, url: str, endpoint: str) -> bool:
        """Return whether a line's url is the endpoint of its batch."""
        return url == endpoint

    def prompt(self, model: str, body: Mapping[str, Any]) -> Prompt:
        read = read_chat if "messages" in body else read_responses
        return read(self.name, model, body)

    def render(self, batch: Batch, item: Item, custom_id: str, answered: Said) -> bytes:
        name = self.state.digest(f"{batch.id} {item.custom_id}")[:32]
        response: dict[str, Any] | None = None
        error: dict[str, Any] | None = None
        if answered.not_run is not None:
            error = _NOT_RUN[answered.not_run]
        elif answered.error is not None and not answered.error.status:
            error = {"code": answered.error.code, "message": answered.error.message}
        else:
            status, body = 200, self._body(name, item.body, answered)
            if answered.error is not None:
                status, body = answered.error.status, _error(answered.error)
            response = {"status_code": status, "request_id": name, "body": body}
        line = {
            "id": f"batch_req_{name}",
            "custom_id": custom_id,
            "response": response,
            "error": error,
        }
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"

    def _body(self, name: str, body: Mapping[str, Any], said: Said) -> dict[str, Any]:
        write = write_chat if "messages" in body else write_response
        return write(name, said, self.state.now)


class Azure(OpenAI):
    """``AzureOpenAI(azure_endpoint=simulator.url("azure"))``, or OpenAI plus ``/openai/v1``.

    Batches run until they are done, the error file always exists, and ids may be "".
    """

    name = "azure"
    prefix = "/az"
    batch_rules = replace(
        OpenAI.batch_rules, max_items=100_000, window=None, always_error_file=True
    )

    def __init__(self, state: SimulatorState) -> None:
        super().__init__(state)
        classic = "/openai/deployments/{model}/chat/completions"
        self.routes = [
            Route(route.method, before + route.path, route.op, route.handle)
            for before in ("/openai", "/openai/v1")
            for route in self.routes
        ]
        self.routes.append(Route("POST", classic, Op.CALL, self.chat_of_deployment))

    def credential(self, call: Call) -> str | None:
        return call.headers.get("api-key") or super().credential(call)

    @property
    def endpoints(self) -> tuple[str, ...]:
        return (*ENDPOINTS, "/chat/completions", "/responses")

    def is_same_endpoint(self, url: str, endpoint: str) -> bool:
        return url.removeprefix("/v1") == endpoint.removeprefix("/v1")

    def write_batch(self, shown: Shown) -> dict[str, Any]:
        written = super().write_batch(shown)
        for name in ("output_file_id", "error_file_id"):
            written[name] = written[name] or ""
        return written

    def chat_of_deployment(self, call: Call) -> Answer:
        return self._direct(call, call.json, call.params["model"])


_NOT_RUN = {
    NotRun.EXPIRED: {
        "code": "batch_expired",
        "message": "This request could not be executed before the completion window expired.",
    },
    NotRun.CANCELED: {
        "code": "batch_cancelled",
        "message": "This request was not executed because the batch was cancelled.",
    },
}


def _error(error: ItemError) -> dict[str, Any]:
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    return {"error": {"message": error.message, "type": kind, "param": None, "code": error.code}}


def _rates() -> dict[str, str]:
    return {
        "x-ratelimit-limit-requests": "10000",
        "x-ratelimit-remaining-requests": "9999",
        "x-ratelimit-reset-requests": "6ms",
        "x-ratelimit-limit-tokens": "2000000",
        "x-ratelimit-remaining-tokens": "1999000",
        "x-ratelimit-reset-tokens": "30ms",
    }


def _limit(call: Call, usual: int, most: int) -> int:
    given = call.query.get("limit", str(usual))
    if not given.isdigit() or not 1 <= int(given) <= most:
        raise Refused(Why.INVALID, f"limit must be between 1 and {most}.", param="limit")
    return int(given)


def _metadata(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if (
        not isinstance(given, dict)
        or len(given) > PAIRS
        or any(len(key) > KEY for key in given)
        or any(not isinstance(value, str) or len(value) > VALUE for value in given.values())
    ):
        raise Refused(Why.INVALID, "Invalid metadata.", param="metadata")
    return given
