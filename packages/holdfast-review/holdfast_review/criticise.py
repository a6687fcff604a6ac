"""The second stage: calls a model for each part of a change and merges the answers.

Answers are stored as artifacts, so a retry calls the model only for the remaining parts. Every call
is recorded in the cost ledger, whatever its outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import Any, NoReturn

from holdfast.app import Holdfast
from holdfast.artifacts.artifact import Access
from holdfast.document import decode, encode, stable_hash
from holdfast.engine.context import Context
from holdfast.errors import ConfigError, ConfigInvalid, Snooze, Transient
from holdfast_llm.batch.budget import spent_over_budget
from holdfast_llm.batch.circuit import (
    PROBE_PAUSE,
    Passage,
    close_circuit,
    find_open_circuits,
    passage_of,
)
from holdfast_llm.batch.cost import CallEntry, CallKind, record_calls, used_by
from holdfast_llm.batch.item_outcome import class_of, read_reply, safe_code
from holdfast_llm.batch.price import Prices
from holdfast_llm.batch.service import BatchService
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.reply import (
    Answer,
    Failure,
    FailureKind,
    ProviderRefused,
    ProviderUnsure,
    Reply,
)
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import ExecutionMode, Route
from holdfast_review.coverage import Coverage
from holdfast_review.enums import Confidence, Severity
from holdfast_review.fetch import read_artifact
from holdfast_review.merge import Merged, Read, merge, read_findings
from holdfast_review.model import Criticism, Finding, Review
from holdfast_review.patch import Change, Limits, parse_patch
from holdfast_review.prompt import PROMPT_VERSION, prompt_for
from holdfast_review.refusal import ChangeMissing, ChangeTooLarge
from holdfast_review.secrets import redact_change
from holdfast_review.split import PART_CHARS, Part, count_unread, halve, split_change

# The first stage enforced the limits; redaction and rewriting may make the change longer.
READ_LIMITS = Limits(max_bytes=200 * 1024 * 1024, max_files=10_000)
# Stored answers are useful until the stage ends.
KEEP_PARTS = timedelta(days=7)
_HALVINGS = 3


def make_critic(hf: Holdfast) -> Critic:
    """Build the stage from the settings. Raises ConfigInvalid if they name no model."""
    said = hf.settings.review
    if said.provider is None or said.adapter_kind is None or said.model is None:
        raise ConfigInvalid("No model is configured: set review.model.", missing="review.model")
    return Critic(hf.batch.service, Route(said.provider, said.adapter_kind, said.model))


@dataclass(frozen=True, slots=True)
class Critic:
    """Reviews changes through one route, with one call for each part."""

    service: BatchService
    route: Route
    part_chars: int = PART_CHARS
    prompt_version: str = PROMPT_VERSION

    def __call__(self, job: Context, review: Review, fetched: Mapping[str, Any]) -> Criticism:
        """Return the model's review of the change that the first stage stored."""
        change = read_change(job, fetched)
        parts = split_change(change, self.part_chars)
        saved = _Saved(job, stable_hash(fetched["sha256"], self.prompt_version, self.part_chars))
        found: list[Read] = []
        for part in parts:
            read = saved.find(part)
            if read is None:
                read = merge_reads(self._criticise(job, part, _HALVINGS))
                saved.add(part, read, len(parts))
            found.append(read)
        merged = merge(found, change)
        route = replace(self.route, prompt_version=self.prompt_version)
        detail = describe(route, merged, len(parts), change)
        return Criticism(merged.findings, merged.summary, detail)

    def _criticise(self, job: Context, part: Part, halvings: int) -> Iterator[Read]:
        """Review one part. If the answer would be too long, review its halves."""
        job.raise_if_canceled()
        request = prompt_for(part, self.prompt_version)
        answer, echo = _Call(self.service, self.route, job).ask(part, request)
        if isinstance(answer, Reply):
            yield read_findings(read_reply(answer, request, echo).data, part.files)
            return
        smaller = halve(part) if answer.kind is FailureKind.TRUNCATED and halvings else (part,)
        if len(smaller) == 1:
            _raise(answer)
        for half in smaller:
            yield from self._criticise(job, half, halvings - 1)


def read_change(job: Context, fetched: Mapping[str, Any]) -> Change:
    """Load the stored change and redact it again."""
    data = read_artifact(job, str(fetched["artifact_id"]), READ_LIMITS.max_bytes)
    return redact_change(parse_patch(data, READ_LIMITS, may_be_empty=True))


def describe(route: Route, merged: Merged, parts: int, change: Change) -> dict[str, Any]:
    """Describe how a change was reviewed: counts and versions, no text."""
    coverage = Coverage.of_change(change).plus(
        dropped=merged.dropped,
        left_out=merged.left_out,
        cut_findings=merged.cut,
        unplaced=merged.unplaced,
    )
    return {
        "parts": parts,
        "findings": len(merged.findings),
        "unread_files": count_unread(change),
        **coverage.document,
        "provider": route.provider,
        "model": route.model,
        "prompt_version": route.prompt_version,
    }


def merge_reads(reads: Iterator[Read]) -> Read:
    """Merge several answers into one."""
    found = list(reads)
    findings = tuple(one for read in found for one in read.findings)
    return Read(findings, sum(read.dropped for read in found), sum(read.cut for read in found))


# -- the call


@dataclass(frozen=True, slots=True)
class _Call:
    service: BatchService
    route: Route
    job: Context

    def ask(self, part: Part, request: Request) -> tuple[Answer, str]:
        """Call the model for one part; return the answer and the echo that it must repeat."""
        route = replace(self.route, execution_mode=ExecutionMode.ASYNC)
        try:
            account = self.service.accounts.for_route(route)
        except ConfigError:
            raise ConfigInvalid(provider=route.provider, problem="no_account") from None
        self._wait_if_held(account)
        # Stable across attempts, different for each part, and does not reveal the job.
        echo = sha256((self.job.id + request.inputs[0]).encode()).hexdigest()[:8]
        request = request.with_echo(echo)
        body = account.adapter.body(route, request)
        if len(encode(body).encode()) > account.limits.max_line_bytes:
            raise ChangeTooLarge(limit_bytes=account.limits.max_line_bytes, part=part.number)
        is_unknown = False
        try:
            answer = account.adapter.call(account.client, route, body)
        except ProviderRefused as exc:
            answer = exc.failure
        except ProviderUnsure as exc:
            answer = exc.failure or Failure(
                FailureKind.TRANSIENT, exc.reason, retry_after=exc.retry_after
            )
            is_unknown = True
        self._record(account, route, request, answer, is_unknown)
        if isinstance(answer, Failure) and answer.kind is FailureKind.ACCOUNT:
            # An account failure affects all jobs and does not count as an attempt.
            self.service.stop_account(account.key, account.provider, answer)
            raise Snooze(self.service.resources.settings.batch.circuit_seconds)
        return answer, echo

    def _wait_if_held(self, account: Account) -> None:
        """Snooze without counting an attempt if the account or the tenant's budget is blocked."""
        settings, org_id = self.service.resources.settings, self.job.org_id
        store = self.service.resources.store
        if account.key in store.read(find_open_circuits):
            raise Snooze(settings.batch.circuit_seconds)
        until = store.read(lambda tx: spent_over_budget(tx, settings, [org_id])).get(org_id)
        if until is not None:
            raise Snooze(max(until - store.clock.now(), timedelta(seconds=1)))
        if passage_of(store, settings.batch, account.key) is Passage.SHUT:
            raise Snooze(PROBE_PAUSE)

    def _record(
        self, account: Account, route: Route, request: Request, answer: Answer, is_unknown: bool
    ) -> None:
        """Record the call in the ledger. An answer also closes the account's circuit."""
        now = self.service.resources.store.clock.now()
        prices = Prices(self.service.resources.settings.prices)
        entry = CallEntry.from_answer(
            answer,
            org_id=self.job.org_id,
            batch_id=self.service.resources.ids.new(),
            batch_item_index=0,
            provider_batch_id="",
            account=account.key,
            group_key=route.group_key,
            job_id=self.job.id,
            job_type=self.job.job_type,
            attempt=self.job.attempt,
            at_most_pico=prices.reserve(route, request, now.date()),
        )
        kind = CallKind.UNKNOWN if is_unknown else entry.kind
        entry = replace(entry, kind=kind, occurred_at=entry.occurred_at or now)

        def work(tx: Any) -> None:
            record_calls(tx, prices, [entry])
            if isinstance(answer, Reply):
                close_circuit(tx, account.key)

        self.service.resources.store.write(work)
        self.service.resources.events.emit(used_by(prices, entry, now))
        if is_unknown:
            # The call may have been billed.
            self.service.report_unknown_call(account.key)


def _raise(failure: Failure) -> NoReturn:
    """Raise the stage's failure for a provider failure, with the requested delay."""
    kind = class_of(failure)
    code, status = safe_code(failure.code), failure.status or 0
    if issubclass(kind, Transient):
        raise kind(retry_after=failure.retry_after, code=code, status=status)
    raise kind(code=code, status=status)


# -- answers of earlier attempts


class _Saved:
    """Answers of earlier attempts, by part. They are valid for the same change only."""

    def __init__(self, job: Context, key: str) -> None:
        self._job = job
        self._key = key
        left = job.saved if isinstance(job.saved, Mapping) else {}
        self._parts = dict(left.get("parts", {})) if left.get("key") == key else {}

    def find(self, part: Part) -> Read | None:
        artifact_id = self._parts.get(str(part.number))
        if artifact_id is None:
            return None
        try:
            data = read_artifact(self._job, artifact_id, READ_LIMITS.max_bytes)
        except ChangeMissing:
            return None
        return read_written(decode(data.decode()))

    def add(self, part: Part, read: Read, total: int) -> None:
        stored = self._job.artifacts.put(
            encode(write_read(read)).encode(),
            name=f"part-{part.number}.json",
            media_type="application/json",
            keep=KEEP_PARTS,
            access=Access.OWNER,
        )
        self._parts[str(part.number)] = stored.id
        self._job.checkpoint({"key": self._key, "parts": self._parts})
        self._job.progress(len(self._parts), total)


def write_read(read: Read) -> dict[str, Any]:
    """Serialize the answer for a part."""
    findings = [
        [
            one.file,
            one.line,
            one.severity.value,
            one.message,
            one.confidence.value,
            one.is_placed,
        ]
        for one in read.findings
    ]
    return {"dropped": read.dropped, "cut": read.cut, "findings": findings}


def read_written(document: Any) -> Read:
    """Parse a stored answer."""
    findings = tuple(
        Finding(file, line, Severity(severity), message, Confidence(confidence), is_placed)
        for file, line, severity, message, confidence, is_placed in document["findings"]
    )
    return Read(findings, document["dropped"], document["cut"])
