"""A scripted provider in memory: files, batches, replies and charges.

``script("create", …)`` adds faults: each call uses up one of them, and without faults the provider
works normally. Its time is the test's clock. Charges are recorded by the first input of each
request, so a text that was executed twice is found under any name.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from holdfast.clock import FakeClock
from holdfast.errors import ConfigError
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import (
    BatchPhase,
    BatchTag,
    Capabilities,
    Content,
    Limits,
    Lookup,
    ProviderBatch,
    ProviderClient,
)
from holdfast_llm.provider.echo import ECHO
from holdfast_llm.provider.reply import (
    Answer,
    Failure,
    FailureKind,
    ItemAnswer,
    ProviderRefused,
    ProviderUnsure,
    Reply,
    Usage,
)
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import Route

LIMITS = Limits(max_items=1_000, max_bytes=10 * 1024 * 1024)
WINDOW = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Refuse:
    """The provider refuses the call and does nothing."""

    kind: FailureKind = FailureKind.CAPACITY
    code: str = "slow_down"
    status: int | None = 429
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Lose:
    """The answer is lost. *accepted*: the call took effect. *later*: it takes effect afterwards."""

    accepted: bool = False
    later: timedelta | None = None
    reason: str = "timeout"
    # The provider's own error, such as 529: it does not tell whether the call took effect.
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Act:
    """Call a function of the test just before the provider answers."""

    before: Callable[[], None]


Step = Refuse | Lose | Act


@dataclass(slots=True)
class StoredFile:
    id: str
    name: str
    data: bytes
    deleted_at: datetime | None = None


@dataclass(slots=True)
class StoredBatch:
    id: str
    model: str
    name: BatchTag | None
    file_id: str | None
    data: bytes
    created_at: datetime
    phase: BatchPhase = BatchPhase.RUNNING
    status: str = "in_progress"
    failure: Failure | None = None
    named_lines: tuple[int, ...] = ()
    result_files: tuple[str, ...] = ()
    counts: tuple[int, int] = (0, 0)
    cancels: int = 0
    was_paid: bool = False

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.data.split(b"\n") if line]


@dataclass(slots=True)
class ScriptedProvider:
    """The adapter and the provider that it calls."""

    clock: FakeClock
    kind: str = "scripted"
    limits: Limits = LIMITS
    capabilities: Capabilities = field(default_factory=Capabilities)
    list_lag: timedelta = timedelta(0)
    files: dict[str, StoredFile] = field(default_factory=dict)
    batches: dict[str, StoredBatch] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    paid: Counter[str] = field(default_factory=Counter)
    # The answer to an item; a Failure is an answer, None omits the item from the results.
    answer: Callable[[dict[str, Any]], Answer | None] | None = None
    _steps: dict[str, deque[Step]] = field(default_factory=lambda: defaultdict(deque))
    _later: list[tuple[datetime, Callable[[], None]]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.RLock = field(default_factory=threading.RLock)

    # -- scripts and inspection

    def script(self, operation: str, *steps: Step) -> None:
        """Script the next calls of *operation*: upload, create, get, scan, cancel, read …"""
        self._steps[operation].extend(steps)

    def double_paid(self) -> dict[str, int]:
        """The texts that were executed more than once."""
        return {text: times for text, times in self.paid.items() if times > 1}

    @property
    def live(self) -> list[StoredBatch]:
        """The batches that ran, run or will run."""
        self._catch_up()
        return [one for one in self.batches.values() if one.phase is not BatchPhase.FAILED]

    @property
    def standing_files(self) -> list[StoredFile]:
        return [file for file in self.files.values() if file.deleted_at is None]

    def complete(self, *batch_ids: str, phase: BatchPhase = BatchPhase.COMPLETED) -> None:
        """End these batches, or all running ones; executed items are charged."""
        self._catch_up()
        for batch in list(self.batches.values()):
            if batch.phase is not BatchPhase.RUNNING or (batch_ids and batch.id not in batch_ids):
                continue
            self._execute(batch, phase)

    def _execute(self, batch: StoredBatch, phase: BatchPhase) -> None:
        lines, failed = [], 0
        for line in batch.lines:
            found = self._answer(line)
            if found is None:
                continue
            if isinstance(found, Reply) or found.usage is not None:
                self.paid[line["body"]["input"][0]] += 1
            failed += isinstance(found, Failure)
            lines.append(result_line(line["custom_id"], found))
        stored = self._store_file(f"out-{batch.id}", b"".join(lines))
        batch.phase, batch.status = phase, str(phase)
        batch.result_files = (stored.id,)
        batch.counts = (len(lines) - failed, failed)
        batch.was_paid = True

    def _answer(self, line: Mapping[str, Any]) -> Answer | None:
        if self.answer is not None:
            return self.answer(dict(line))
        data = {"text": line["body"]["input"][0].upper()}
        if line["body"].get("echo"):
            data[ECHO] = line["body"]["echo"]
        usage = Usage(input=10, output=5)
        return Reply(json.dumps(data), "model-1", usage, f"req-{line['custom_id']}", None, data)

    # -- the adapter: one item

    def body(self, route: Route, request: Request) -> dict[str, Any]:
        echo = None
        if request.schema is not None and ECHO in request.schema.get("properties", {}):
            echo = request.inputs[-1].split('"')[-2]
        return {"model": route.model, "input": list(request.inputs), "echo": echo}

    def line(self, route: Route, custom_id: str, body: Mapping[str, Any]) -> bytes:
        return json.dumps({"custom_id": custom_id, "body": body}, sort_keys=True).encode() + b"\n"

    def parse(self, line: bytes) -> ItemAnswer:
        try:
            found = json.loads(line)
            custom_id = found["custom_id"]
            answer = read_answer(found)
        except (KeyError, TypeError, UnicodeDecodeError) as exc:
            raise ValueError("not a result") from exc
        return ItemAnswer(custom_id, answer, hashlib.sha256(line.strip()).hexdigest())

    def call(self, client: ProviderClient, route: Route, body: Mapping[str, Any]) -> Answer:
        found: list[Answer | None] = []

        def act() -> None:
            answer = self._answer({"custom_id": "call", "body": body})
            if isinstance(answer, Reply) or (answer is not None and answer.usage is not None):
                self.paid[body["input"][0]] += 1
            found.append(answer)

        try:
            self._do("call", act)
        except ProviderRefused as exc:
            return exc.failure
        assert found[0] is not None
        return found[0]

    # -- the adapter: a batch

    def upload(self, client: ProviderClient, tag: BatchTag, content: Content) -> str | None:
        if not self.capabilities.has_input_file:
            return None
        data = b"".join(content.chunks())
        assert len(data) == content.size
        assert hashlib.sha256(data).hexdigest() == content.sha256
        assert data.count(b"\n") == content.items
        made: list[StoredFile] = []
        self._do("upload", lambda: made.append(self._store_file(tag.file, data)))
        return made[0].id

    def create(
        self,
        client: ProviderClient,
        route: Route,
        tag: BatchTag,
        file_id: str | None,
        content: Content,
    ) -> ProviderBatch:
        data = b"" if self.capabilities.has_input_file else b"".join(content.chunks())
        made: list[StoredBatch] = []
        self._do("create", lambda: made.append(self._make_batch(route, tag, file_id, data)))
        return self._provider_batch(made[0])

    def _make_batch(
        self, route: Route, tag: BatchTag, file_id: str | None, data: bytes
    ) -> StoredBatch:
        batch = StoredBatch(
            f"batch_{next(self._numbers)}", route.model, tag, file_id, data, self.clock.now()
        )
        if file_id is not None:
            file = self.files.get(file_id)
            if file is None or file.deleted_at is not None:
                batch.phase, batch.status = BatchPhase.FAILED, "failed"
                batch.failure = Failure(FailureKind.INVALID, "input_file_not_found")
            else:
                batch.data = file.data
        self.batches[batch.id] = batch
        return batch

    def get(self, client: ProviderClient, provider_batch_id: str) -> ProviderBatch:
        self._do("get", lambda: None)
        if provider_batch_id not in self.batches:
            raise ProviderRefused(Failure(FailureKind.INVALID, "not_found", 404))
        return self._provider_batch(self.batches[provider_batch_id])

    def scan(self, client: ProviderClient, since: datetime) -> Iterator[ProviderBatch]:
        self._do("scan", lambda: None)
        shown = [
            batch
            for batch in self.batches.values()
            if since <= batch.created_at <= self.clock.now() - self.list_lag
        ]
        for batch in sorted(shown, key=lambda one: one.created_at, reverse=True):
            yield self._provider_batch(batch)

    def cancel(self, client: ProviderClient, provider_batch_id: str) -> None:
        def act() -> None:
            batch = self.batches[provider_batch_id]
            batch.cancels += 1
            if batch.phase is BatchPhase.RUNNING:
                batch.phase, batch.status = BatchPhase.CANCELED, "canceled"

        self._do("cancel", act)

    @contextmanager
    def read(self, client: ProviderClient, file: str) -> Iterator[Iterator[bytes]]:
        self._do("read", lambda: None)
        stored = self.files.get(file)
        if stored is None or stored.deleted_at is not None:
            raise ProviderRefused(Failure(FailureKind.INVALID, "not_found", 404))
        data = stored.data
        yield (data[at : at + 65_536] for at in range(0, len(data), 65_536))

    def find_file(self, client: ProviderClient, tag: BatchTag) -> str | None:
        self._do("find_file", lambda: None)
        found = [file.id for file in self.standing_files if file.name == tag.file]
        return found[0] if found else None

    def delete_file(self, client: ProviderClient, file_id: str) -> None:
        def act() -> None:
            file = self.files.get(file_id)
            if file is not None and file.deleted_at is None:
                file.deleted_at = self.clock.now()

        self._do("delete_file", act)

    def delete_batch(self, client: ProviderClient, provider_batch_id: str) -> None:
        if self.capabilities.can_delete_batch:
            self._do("delete_batch", lambda: self.batches.pop(provider_batch_id, None))

    # -- inside

    def _store_file(self, name: str, data: bytes) -> StoredFile:
        file = StoredFile(f"file_{next(self._numbers)}", name, data)
        self.files[file.id] = file
        return file

    def _do(self, operation: str, act: Callable[[], object]) -> None:
        with self._lock:
            self._catch_up()
            self.calls[operation] += 1
            step = self._steps[operation].popleft() if self._steps[operation] else None
        match step:
            case Refuse(kind, code, status, retry_after):
                raise ProviderRefused(Failure(kind, code, status, retry_after=retry_after))
            case Lose(accepted, later, reason, status):
                with self._lock:
                    if later is not None:
                        self._later.append((self.clock.now() + later, lambda: _drop(act())))
                    elif accepted:
                        act()
                said = None if status is None else Failure(FailureKind.TRANSIENT, reason, status)
                raise ProviderUnsure(reason, failure=said)
            case Act(before):
                before()
        with self._lock:
            act()

    def _catch_up(self) -> None:
        due = [step for at, step in self._later if at <= self.clock.now()]
        self._later = [(at, step) for at, step in self._later if at > self.clock.now()]
        for step in due:
            step()

    def _provider_batch(self, batch: StoredBatch) -> ProviderBatch:
        name = batch.name if self.capabilities.lookup is Lookup.KEY else None
        return ProviderBatch(
            batch.id,
            batch.phase,
            batch.status,
            key=None if name is None else name.key,
            attempt=None if name is None else name.attempt,
            environment=None if name is None else name.environment,
            created_at=batch.created_at,
            expires_at=batch.created_at + WINDOW,
            input_file_id=batch.file_id,
            result_files=batch.result_files,
            total=len(batch.lines),
            succeeded=batch.counts[0],
            failed=batch.counts[1],
            failure=batch.failure,
            named_lines=batch.named_lines,
        )


def _drop(made: object) -> None:
    """The result of a late call belongs to no caller."""


class NoClient:
    """The scripted provider needs no network."""

    def request(self, *args: Any, **options: Any) -> Any:
        raise AssertionError("a scripted provider is not asked over HTTP")

    def stream(self, *args: Any, **options: Any) -> Any:
        raise AssertionError("a scripted provider is not asked over HTTP")


@dataclass(slots=True)
class ScriptedAccounts:
    """One account for each provider's name, all at the same scripted provider."""

    adapter: ScriptedProvider
    providers: Sequence[str] = ("openai", "gemini")
    missing: set[str] = field(default_factory=set)
    # The credential that replaced a missing one reaches this provider.
    after: ScriptedProvider | None = None

    def for_route(self, route: Route) -> Account:
        if route.provider not in self.providers:
            raise ConfigError(f"No account is configured for provider {route.provider!r}.")
        return self._account(route.provider)

    def by_key(self, key: str) -> Account | None:
        provider = key.partition("|")[0]
        if key in self.missing or provider not in self.providers:
            return None
        return self._account(provider)

    def in_place_of(self, key: str) -> Account | None:
        provider = key.partition("|")[0]
        if self.after is None or provider not in self.providers:
            return None
        return replace(self._account(provider), key=f"{provider}|rotated", adapter=self.after)

    def _account(self, provider: str) -> Account:
        adapter = self.adapter
        return Account(
            f"{provider}|https://{provider}.test/v1|abc123def456",
            provider,
            f"https://{provider}.test/v1",
            adapter,
            adapter.limits,
            adapter.capabilities,
            NoClient(),
        )


def result_line(custom_id: str, answer: Answer) -> bytes:
    """A line of results as the scripted provider writes it."""
    found: dict[str, Any] = {"custom_id": custom_id}
    if isinstance(answer, Reply):
        found |= {"text": answer.text, "model": answer.model, "data": answer.data}
        found["request_id"] = answer.provider_request_id
    else:
        found |= {"failure": answer.kind, "code": answer.code, "status": answer.status}
    if answer.usage is not None:
        usage = answer.usage
        found["usage"] = {name: getattr(usage, name) for name in Usage.__slots__}
    return json.dumps(found, sort_keys=True).encode() + b"\n"


def read_answer(found: Mapping[str, Any]) -> Answer:
    usage = Usage(**found["usage"]) if "usage" in found else None
    if "failure" in found:
        kind = FailureKind(found["failure"])
        return replace(Failure(kind, found["code"], found["status"]), usage=usage)
    return Reply(found["text"], found["model"], usage, found["request_id"], None, found["data"])
