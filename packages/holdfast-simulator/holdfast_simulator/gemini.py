"""The Gemini Developer API in the simulator: files, batches and direct calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from holdfast_simulator.blob import Blob
from holdfast_simulator.exchange import Answer, Call, Op, Refused, Route, Why
from holdfast_simulator.gemini_words import (
    CODES,
    REFUSALS,
    find_wrong,
    named,
    read_request,
    without_json_schema,
    write_batch,
    write_details,
    write_error,
    write_file,
    write_response,
    write_status,
)
from holdfast_simulator.models import BadLine, Batch, BatchRules, File, Item, Shown
from holdfast_simulator.prompt import Prompt, Said
from holdfast_simulator.state import SimulatorState

VERSIONS = ("v1", "v1beta")
FILE_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
FILE_LIVES = timedelta(hours=48)
# The size limit for requests that are sent inline instead of in a file.
INLINE_BYTES = 20 * 1024 * 1024
PAGE, LONGEST_PAGE = 50, 100


@dataclass(slots=True)
class Upload:
    """A resumable upload in progress."""

    credential: str
    size: int
    file_id: str
    display_name: str | None
    mime_type: str
    blob: Blob = field(default_factory=Blob)


class Gemini:
    """``genai.Client(http_options={"base_url": simulator.url("gemini")})``; v1 and v1beta.

    Uploads in progress are kept here; they become files in the state when complete.
    """

    name = "gemini"
    prefix = "/gemini"
    batch_rules = BatchRules(
        max_items=10_000_000,
        max_bytes=2 * 1024**3,
        window=timedelta(hours=48),
        keeps_partial=False,
        tells_not_run=False,
        has_error_file=False,
        validates=False,
    )

    def __init__(self, state: SimulatorState) -> None:
        self.state = state
        self.uploads: dict[str, Upload] = {}
        self.routes = [route for version in VERSIONS for route in self._routes(version)]

    def _routes(self, version: str) -> Iterator[Route]:
        upload, files = f"/upload/{version}/files", f"/{version}/files"
        batches, model = f"/{version}/batches", f"/{version}/models/{{model}}"
        yield Route("POST", upload, Op.UPLOAD_START, self.start_upload)
        yield Route("POST", f"{upload}/{{upload}}", Op.UPLOAD, self.upload)
        yield Route("GET", files, Op.LIST_FILES, self.list_files)
        yield Route("GET", f"{files}/{{id}}", Op.GET_FILE, self.get_file)
        yield Route("DELETE", f"{files}/{{id}}", Op.DELETE_FILE, self.delete_file)
        yield Route("GET", f"{files}/{{id}}:download", Op.CONTENT, self.content)
        yield Route("POST", f"{model}:batchGenerateContent", Op.CREATE, self.create)
        yield Route("GET", batches, Op.LIST, self.list)
        yield Route("GET", f"{batches}/{{id}}", Op.GET, self.get)
        yield Route("POST", f"{batches}/{{id}}:cancel", Op.CANCEL, self.cancel)
        yield Route("DELETE", f"{batches}/{{id}}", Op.DELETE, self.delete)
        yield Route("POST", f"{model}:generateContent", Op.CALL, self.generate)
        yield Route("POST", f"{model}:countTokens", Op.OTHER, self.count_tokens)

    def credential(self, call: Call) -> str | None:
        """Return the key. Upload chunks carry none: they go to a secret upload URL."""
        key = call.headers.get("x-goog-api-key") or call.query.get("key")
        begun = self.uploads.get(call.path.rsplit("/", 1)[-1])
        return key or (None if begun is None else begun.credential)

    def refuse(self, refused: Refused) -> Answer:
        status, word = REFUSALS[refused.why]
        message = refused.message
        if refused.why is Why.UNAUTHORIZED:
            message = "API key not valid. Please pass a valid API key."
        details = write_details(refused.why, refused.retry_after)
        return Answer.from_json(
            write_error(status, word, message, details), status, refused.headers
        )

    def new_file_id(self) -> str:
        return self.state.new_id("batch-", 24)

    # -- files

    def start_upload(self, call: Call) -> Answer:
        headers = call.headers
        size = headers.get("x-goog-upload-header-content-length", "")
        if headers.get("x-goog-upload-protocol") != "resumable" or not size.isdecimal():
            raise Refused(Why.INVALID, "Only resumable uploads of a known length are supported.")
        given = call.json.get("file") or {}
        file_id = str(given.get("name") or self.state.new_id("files/", 12)).removeprefix("files/")
        if not FILE_ID.fullmatch(file_id):
            raise Refused(Why.INVALID, f"{file_id!r} is not a valid file name.")
        if self.state.has_file(call.account, file_id):
            raise Refused(Why.ALREADY_EXISTS, f"File {file_id} already exists.")
        mime_type = named(given, "mimeType") or headers.get("x-goog-upload-header-content-type", "")
        upload_id = self.state.new_id()
        self.uploads[upload_id] = Upload(
            self.credential(call) or "", int(size), file_id, named(given, "displayName"), mime_type
        )
        version = _version(call)
        address = f"{call.origin}{self.prefix}/upload/{version}/files/{upload_id}"
        told = {
            "x-goog-upload-url": f"{address}?upload_protocol=resumable",
            "x-goog-upload-status": "active",
        }
        return Answer(headers=told)

    def upload(self, call: Call) -> Answer:
        upload = self.uploads.get(call.params["upload"])
        if upload is None:
            raise Refused(Why.NOT_FOUND, "The upload is not known.")
        commands = {
            part.strip() for part in call.headers.get("x-goog-upload-command", "").split(",")
        }
        if not commands or not commands <= {"upload", "finalize", "query"}:
            raise Refused(Why.INVALID, "X-Goog-Upload-Command: upload, finalize or query")
        if "upload" in commands:
            offset = call.headers.get("x-goog-upload-offset", "")
            if offset != str(upload.blob.size):
                message = f"The offset is {offset}, and {upload.blob.size} bytes were received."
                raise Refused(Why.INVALID, message, headers={"x-goog-upload-status": "active"})
            for piece in call.body.pieces():
                upload.blob.write(piece)
        if "finalize" not in commands:
            received = {"x-goog-upload-size-received": str(upload.blob.size)}
            return Answer(headers={"x-goog-upload-status": "active", **received})
        del self.uploads[call.params["upload"]]
        file = self._finalize(call.account, upload)
        final = {"x-goog-upload-status": "final"}
        return Answer.from_json({"file": self._file(call, file)}, headers=final)

    def _finalize(self, account: str, upload: Upload) -> File:
        if upload.blob.size != upload.size:
            message = f"{upload.size} bytes were announced and {upload.blob.size} received."
            raise Refused(Why.INVALID, message, headers={"x-goog-upload-status": "final"})
        return self.state.add_file(
            account,
            upload.display_name or upload.file_id,
            upload.blob,
            file_id=upload.file_id,
            expires_at=self.state.now + FILE_LIVES,
            displayName=upload.display_name,
            mimeType=upload.mime_type,
        )

    def list_files(self, call: Call) -> Answer:
        files = self.state.list_files(call.account)
        ids = [file.id for file in files]
        after = call.query.get("pageToken")
        start = ids.index(after) + 1 if after in ids else 0
        size = _page_size(call)
        page = files[start : start + size]
        answer: dict[str, Any] = {"files": [self._file(call, file) for file in page]}
        if len(files) > start + size:
            answer["nextPageToken"] = page[-1].id
        return Answer.from_json(answer if page else {})

    def get_file(self, call: Call) -> Answer:
        return Answer.from_json(self._file(call, self._find(call.account, call.params["id"])))

    def delete_file(self, call: Call) -> Answer:
        self._find(call.account, call.params["id"])
        self.state.delete_file(call.account, call.params["id"])
        return Answer.from_json({})

    def content(self, call: Call) -> Answer:
        file = self._find(call.account, call.params["id"])
        if file.batch_id is None or call.query.get("alt") != "media":
            raise Refused(Why.INVALID, "Only generated files can be downloaded, with alt=media.")
        kind = {"content-type": "application/octet-stream"}
        return Answer(headers=kind, pieces=file.blob.pieces, size=file.size)

    def _find(self, account: str, file_id: str) -> File:
        """Find a file. Like the API, a missing file is reported as one without permission."""
        try:
            return self.state.find_file(account, file_id)
        except Refused as refused:
            message = (
                f"You do not have permission to access the File {file_id} or it may not exist."
            )
            raise Refused(Why.FORBIDDEN, message) from refused

    def _file(self, call: Call, file: File) -> dict[str, Any]:
        return write_file(file, f"{call.origin}{self.prefix}/{_version(call)}")

    # -- batches

    def create(self, call: Call) -> Answer:
        batch = call.json.get("batch")
        given = named(batch, "inputConfig") if isinstance(batch, dict) else None
        if not isinstance(given, dict):
            raise Refused(Why.INVALID, "batch.input_config: required")
        name = str(named(batch, "displayName") or "")
        extra: dict[str, Any] = {}
        source: File | Blob
        if named(given, "fileName"):
            source = self._find(call.account, str(named(given, "fileName")).removeprefix("files/"))
        else:
            source = Blob()
            extra["inlined"] = _write_inline(call, given, source)
            extra["count"] = len(extra["inlined"])
        shown = self.state.create_batch(
            self,
            call.account,
            source,
            batch_id=self.state.new_id("", 24),
            model=call.params["model"],
            name=name,
            # Listings return only the display name, so faults treat it like metadata.
            metadata={"displayName": name} if name else None,
            **extra,
        )
        return Answer.from_json(self._batch(shown))

    def get(self, call: Call) -> Answer:
        return Answer.from_json(self._batch(self.state.find_batch(call.account, call.params["id"])))

    def list(self, call: Call) -> Answer:
        page = self.state.page(
            call.account,
            self.state.list_batches(call.account),
            _page_size(call),
            after=call.query.get("pageToken"),
        )
        answer: dict[str, Any] = {"operations": [self._batch(shown) for shown in page.batches]}
        if page.has_more and page.batches:
            answer["nextPageToken"] = page.batches[-1].batch.id
        return Answer.from_json(answer if page.batches else {})

    def cancel(self, call: Call) -> Answer:
        self.state.cancel_batch(call.account, call.params["id"])
        return Answer.from_json({})

    def delete(self, call: Call) -> Answer:
        shown = self.state.find_batch(call.account, call.params["id"])
        if not shown.stage.is_over:
            raise Refused(Why.INVALID, "The batch is running; cancel it before deleting it.")
        self.state.delete_batch(call.account, call.params["id"])
        return Answer.from_json({})

    def _batch(self, shown: Shown) -> dict[str, Any]:
        output: dict[str, Any] | None = None
        if shown.output_id and shown.batch.file_id is None:
            written = shown.batch.output
            lines = [] if written is None else written.blob.read().splitlines()
            inlined = [_inlined(shown.batch, json.loads(line)) for line in lines]
            output = {"inlinedResponses": {"inlinedResponses": inlined}}
        elif shown.output_id is not None:
            file_id = f"files/{shown.output_id}" if shown.output_id else ""
            output = {"responsesFile": file_id}
        return write_batch(shown, output)

    # -- one item

    def read(self, batch: Batch, number: int, line: bytes) -> Item:
        """Parse one item. A bad line fails alone: the batch succeeds, and its row has an error.

        The key of a bad line is stored as the error code, which is not rendered, so that its row
        has a key.
        """
        try:
            given = json.loads(line)
        except ValueError:
            raise BadLine("", f"Line {number} is not valid JSON.") from None
        if not isinstance(given, dict) or not isinstance(given.get("key"), str):
            raise BadLine("", f"Line {number} has no key.")
        key, request = given["key"], given.get("request")
        strange = sorted(set(given) - {"key", "request"})
        wrong = f'Unknown name "{strange[0]}"' if strange else find_wrong(request)
        if wrong is not None or not isinstance(request, dict):
            raise BadLine(key, wrong or "Invalid value at 'request'")
        return Item(key, batch.model, without_json_schema(request))

    def prompt(self, model: str, body: Mapping[str, Any]) -> Prompt:
        return read_request(self.name, model, body)

    def render(self, batch: Batch, item: Item, custom_id: str, answered: Said) -> bytes:
        line: dict[str, Any] = {"key": custom_id}
        if answered.error is not None:
            line["key"] = custom_id or answered.error.code
            line["error"] = write_status(answered.error)
        else:
            name = self.state.digest(f"response {batch.id} {item.custom_id}")[:22]
            line["response"] = write_response(name, answered)
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"

    # -- direct calls

    def generate(self, call: Call) -> Answer:
        body = self._request(call.json)
        said = self.state.direct(self, call, call.params["model"], body)
        if said.error is not None:
            status = said.error.status
            _, word = CODES.get(status, (13, "INTERNAL"))
            return Answer.from_json(write_error(status, word, said.error.message), status)
        return Answer.from_json(write_response(self.state.new_id("", 22), said))

    def count_tokens(self, call: Call) -> Answer:
        given = call.json
        prompt = self.prompt("", self._request(named(given, "generateContentRequest") or given))
        size = len(prompt.instructions.encode()) + len(prompt.text.encode())
        tokens = size // 4 + 8
        details = [{"modality": "TEXT", "tokenCount": tokens}]
        return Answer.from_json({"totalTokens": tokens, "promptTokensDetails": details})

    def _request(self, body: Any) -> dict[str, Any]:
        wrong = find_wrong(body)
        if wrong is not None:
            raise Refused(Why.INVALID, wrong)
        return dict(body)


def _version(call: Call) -> str:
    return next(version for version in VERSIONS if f"/{version}/" in f"{call.path}/")


def _page_size(call: Call) -> int:
    given = call.query.get("pageSize", str(PAGE))
    if not given.isdecimal():
        raise Refused(Why.INVALID, f"Invalid value at 'page_size' (TYPE_INT32), \"{given}\"")
    return min(int(given) or PAGE, LONGEST_PAGE)


def _write_inline(call: Call, given: Mapping[str, Any], lines: Blob) -> dict[str, Any]:
    """Convert inline requests to lines. Their metadata is returned with the results."""
    if call.body.size > INLINE_BYTES:
        message = f"Request payload size exceeds the limit: {INLINE_BYTES} bytes."
        raise Refused(Why.TOO_LARGE, message)
    requests = (given.get("requests") or {}).get("requests")
    if not isinstance(requests, list) or not requests:
        raise Refused(Why.INVALID, "batch.input_config: file_name or requests is required")
    kept: dict[str, Any] = {}
    for index, one in enumerate(requests):
        metadata = one.get("metadata")
        key = str((metadata or {}).get("key") or index)
        kept[key] = metadata
        line = {"key": key, "request": one.get("request")}
        lines.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    return kept


def _inlined(batch: Batch, line: dict[str, Any]) -> dict[str, Any]:
    metadata = batch.extra.get("inlined", {}).get(line.pop("key"))
    return line if metadata is None else {**line, "metadata": metadata}
