"""The outcome of an item: the meaning of a batch or direct-call answer for its job.

An answer is parsed, checked against the requested schema and echo, and then passed to the
application. This module writes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, assert_never

from holdfast.clock import ms
from holdfast.document import BadDocument, check
from holdfast.engine.classify import failure_of, failure_of_status, fault_of, safe_context
from holdfast.engine.execute import Execution, outcome_of_result, retry_or_dead_letter
from holdfast.engine.handler import Handler, Stage
from holdfast.engine.job import Claimed, Dead, Outcome, Released, Retry
from holdfast.errors import Failure as JobFailure
from holdfast.errors import (
    NetworkTimeout,
    Permanent,
    PolicyRejected,
    RateLimited,
    ResultInvalid,
    SchemaInvalid,
    Signal,
    Transient,
    UpstreamDown,
    UpstreamError,
)
from holdfast_llm.batch.failure import (
    AnswerNotTaken,
    BatchCanceled,
    BatchExpired,
    BatchFailed,
    OutputInvalid,
    OutputTruncated,
    PromptRefused,
    ResultConflict,
    ResultMissing,
    is_defect,
)
from holdfast_llm.batch.load import Loaded, item_of, request_again
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.batch.work import Item
from holdfast_llm.provider.echo import PLAIN, TEXT, echo_name
from holdfast_llm.provider.lines import strict_decode
from holdfast_llm.provider.reply import Answer, Failure, FailureKind, Reply
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.schema_text import schema_text

NO_CODE = "none"


class ItemState(StrEnum):
    """The state of an item."""

    OPEN = "open"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NOT_RUN = "not_run"
    MISSING = "missing"
    CONFLICT = "conflict"
    RELEASED = "released"
    UNKNOWN = "unknown"


# Not frozen: there is one for every answer.
@dataclass(slots=True)
class ItemOutcome:
    """The outcome of a job, and the stored fields of its item.

    *stops_account* is the failure that pauses the account. *may_wait* says that the same answer may
    be processed later, because the failure is not the answer's and may pass. The outcome applies if
    waiting is not possible; a new request would be paid again.
    """

    outcome: Outcome
    state: ItemState
    error_class: str | None = None
    error_code: str | None = None
    is_cross_wired: bool = False
    stops_account: Failure | None = None
    may_wait: bool = False
    # The application's code failed, not the answer: the answer is kept until the code is fixed.
    is_held: bool = False


class _Wrong(OutputInvalid):
    """The answer is invalid; *code* says how."""

    def __init__(self, code: str, **context: int | str) -> None:
        super().__init__("", code=code, **context)
        self.code = code


class OutcomeRules:
    """Turns answers and failures of a provider into outcomes of jobs."""

    def __init__(self, resources: BatchResources) -> None:
        self.resources = resources
        self.settings = resources.settings
        self.registry = resources.registry
        self.rng = resources.rng

    def of_answer(
        self,
        job: Claimed,
        answer: Answer,
        *,
        echo: str = "",
        asked_hash: str | None = None,
        loaded: Loaded | None = None,
    ) -> ItemOutcome:
        """Evaluate *answer* for *job*; *echo* is the text that it had to repeat, if any.

        *asked_hash* is the hash of the requested schema, if known.
        """
        if isinstance(answer, Failure):
            return self.of_failure(job, answer)
        handler = self.registry.get(job.job_type)
        stage = _stage(handler, job)
        try:
            item = item_of(job, loaded or {})
            request = request_again(handler, item)
            reply = _read(answer, request, echo, asked_hash)
            value = handler.work.accept(item, reply)
        except (Signal, Exception, SystemExit) as exc:
            return _thrown(exc, job, stage)
        outcome = outcome_of_result(
            value, job, Execution(handler, stage, item.payload, self.registry.categories)
        )
        if isinstance(outcome, Dead):
            error_class = outcome.fault.error_class
            is_held = error_class == ResultInvalid.error_class
            return ItemOutcome(outcome, ItemState.FAILED, error_class, NO_CODE, is_held=is_held)
        return ItemOutcome(outcome, ItemState.SUCCEEDED)

    def of_reuse(self, job: Claimed, item: Item) -> Outcome | None:
        """The outcome of a job with a known result; None if the provider must be called."""
        handler = self.registry.get(job.job_type)
        known = getattr(handler.work, "reuse", None)
        value = None if known is None else known(item)
        if value is None:
            return None
        execution = Execution(handler, _stage(handler, job), item.payload, self.registry.categories)
        return outcome_of_result(value, job, execution)

    # -- failures

    def of_failure(self, job: Claimed, failure: Failure) -> ItemOutcome:
        """The outcome of a job after a failure."""
        code = safe_code(failure.code)
        if failure.kind is FailureKind.CAPACITY:
            # Longer if the provider requests it.
            pause = max(self.resources.overflow_seconds, failure.retry_after or 0.0)
            return ItemOutcome(Released("capacity", ms(pause)), ItemState.NOT_RUN, error_code=code)
        if failure.kind is FailureKind.ACCOUNT:
            return ItemOutcome(
                Released("account", ms(self.settings.batch.circuit_seconds)),
                ItemState.NOT_RUN,
                error_code=code,
                stops_account=failure,
            )
        kind, status = class_of(failure), failure.status
        found = kind("", code=code) if status is None else kind("", code=code, status=status)
        stage = _stage(self.registry.get(job.job_type), job)
        fault = fault_of(found, stage=stage.name, attempt=job.attempt)
        wait = None if failure.retry_after is None else timedelta(seconds=failure.retry_after)
        outcome = retry_or_dead_letter(fault, job, stage, self.rng, wait)
        return ItemOutcome(outcome, _state_of(failure), fault.error_class, code)

    def of_batch_failure(
        self, job: Claimed, failure: Failure, *, items: int, is_named: bool | None = None
    ) -> ItemOutcome:
        """The outcome of one job after its whole batch of *items* failed.

        An item that was not alone may not be the cause, so the failure never ends its job. If the
        provider names items, it does not count as an attempt; *is_named* is None if it names none.
        """
        found = self.of_failure(job, failure)
        if items == 1 or found.error_class != BatchFailed.error_class:
            return found
        if is_named is None and not isinstance(found.outcome, Dead):
            return found
        outcome = Released(BATCH_FAILED, ms(self.resources.overflow_seconds))
        if is_named is None:
            return replace(found, outcome=outcome)
        return replace(found, outcome=outcome, error_code=NAMED if is_named else NOT_NAMED)


MISSING = "missing_result"
CONFLICT = "conflicting_result"
# An item of a batch that failed as a whole, and whether the provider names it as the cause.
BATCH_FAILED = "batch_failed"
NAMED = "named_line"
NOT_NAMED = "other_line"


def class_of(failure: Failure) -> type[JobFailure]:
    """The exception class of a failure. This is the only mapping from provider errors."""
    match failure.kind:
        case FailureKind.TRANSIENT:
            return _transient(failure)
        case FailureKind.NOT_RUN:
            return _not_run(failure.code)
        case FailureKind.CAPACITY | FailureKind.ACCOUNT:
            # Neither fails a job; this class is used in reports only.
            return RateLimited
        case FailureKind.INVALID:
            return PromptRefused
        case FailureKind.POLICY:
            return PolicyRejected
        case FailureKind.TRUNCATED:
            return OutputTruncated
        case FailureKind.OUTPUT_INVALID:
            return OutputInvalid
        case FailureKind.INTEGRITY:
            return ResultMissing if failure.code == MISSING else ResultConflict
        case _:
            assert_never(failure.kind)


def _transient(failure: Failure) -> type[JobFailure]:
    if failure.status is not None and failure.status >= 400:
        found = failure_of_status(failure.status, idempotent=True)
        if issubclass(found, Transient):
            return found
    code = failure.code.lower()
    for words, found in _TRANSIENT_WORDS:
        if any(word in code for word in words):
            return found
    return UpstreamError


_TRANSIENT_WORDS: tuple[tuple[tuple[str, ...], type[Transient]], ...] = (
    (("rate", "slow_down", "exhausted", "too_many"), RateLimited),
    (("timeout", "deadline", "reset"), NetworkTimeout),
    (("overloaded", "unavailable"), UpstreamDown),
)


def _not_run(code: str) -> type[JobFailure]:
    code = code.lower()
    if "expire" in code:
        return BatchExpired
    return BatchCanceled if "cancel" in code else BatchFailed


def _state_of(failure: Failure) -> ItemState:
    match failure.kind:
        case FailureKind.NOT_RUN | FailureKind.CAPACITY | FailureKind.ACCOUNT:
            return ItemState.NOT_RUN
        case FailureKind.INTEGRITY:
            return ItemState.MISSING if failure.code == MISSING else ItemState.CONFLICT
        case _:
            return ItemState.FAILED


def _thrown(exc: BaseException, job: Claimed, stage: Stage) -> ItemOutcome:
    """The outcome of an exception in the application's code or in Holdfast.

    A retry, a snooze or a lost lease is not accepted as a result: each would pay again. With
    retry_on= the same answer is processed again later; give_up_on= rejects it.
    """
    failure = failure_of(exc, stage.errors)
    fault = fault_of(exc, stage=stage.name, attempt=job.attempt, failure=failure)
    if isinstance(exc, Exception) and fault.retryable:
        not_taken = AnswerNotTaken(cause=fault.error_class)
        fault = fault_of(not_taken, stage=stage.name, attempt=job.attempt)
        return ItemOutcome(Dead(fault), ItemState.FAILED, fault.error_class, NO_CODE, may_wait=True)
    code = exc.code if isinstance(exc, _Wrong) else NO_CODE
    return ItemOutcome(
        Dead(fault),
        ItemState.FAILED,
        fault.error_class,
        code,
        is_cross_wired=code == CROSS_WIRED,
        is_held=is_defect(exc) and type(failure) is not Permanent,
    )


def is_retryable(exc: BaseException) -> bool:
    """Whether an exception raised while an answer was processed is worth a retry."""
    return isinstance(exc, Exception) and fault_of(exc, stage="", attempt=0).retryable


def _stage(handler: Handler, job: Claimed) -> Stage:
    first = handler.first
    return first if job.stage == first.name else handler.stage(job.stage) or first


@lru_cache(maxsize=1_024)
def safe_code(code: str) -> str:
    """A provider's code in a storable form: the code itself, or a hash of invalid text."""
    return str(safe_context({"code": code})["code"])[:64] if code else NO_CODE


def error_of(outcome: Outcome) -> str | None:
    """The error class of an outcome."""
    return outcome.fault.error_class if isinstance(outcome, (Dead, Retry)) else None


# -- replies

CROSS_WIRED = "cross_wired"


class _SchemaChanged(Transient):
    """The declared schema differs from the one that the answer was requested with.

    Fault: the deployment. Remedy: deploy the schema that the answer was requested with, or wait for
    a worker that has it.
    """

    error_class = "SCHEMA_CHANGED"


def _read(reply: Reply, request: Request, echo: str, asked_hash: str | None) -> Reply:
    try:
        return read_reply(reply, request, echo)
    except _Wrong as wrong:
        if asked_hash is None or wrong.code not in ("schema", "not_json"):
            raise
        if schema_hash(request.with_echo(echo) if echo else request) == asked_hash:
            raise
        raise _SchemaChanged from wrong


def schema_hash(request: Request) -> str:
    """A hash that identifies the schema of a sent request."""
    return _hash_of("" if request.schema is None else schema_text(request.schema))


@lru_cache(maxsize=256)
def _hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_reply(reply: Reply, request: Request, echo: str) -> Reply:
    """The parsed reply without its echo. Raises OutputInvalid for an invalid reply."""
    if request.schema is None and not echo:
        return _plain(reply, reply.text)
    data = _decode(reply.text)
    if echo:
        data = _without_echo(data, echo_name(request.schema), echo)
    if request.schema is None:
        _validate(PLAIN, data)
        return _plain(reply, data[TEXT])
    _validate(request.schema, data)
    return _reply(reply, reply.text, data)


def _plain(reply: Reply, text: str) -> Reply:
    if not text.strip():
        raise _Wrong("empty")
    _check_storable(text, text)
    return _reply(reply, text, reply.data)


def _reply(reply: Reply, text: str, data: Any) -> Reply:
    # dataclasses.replace takes twice as long.
    of = reply.provider_request_id, reply.finished_at
    return Reply(text, reply.model, reply.usage, *of, data)


def _decode(text: str) -> Any:
    try:
        data = strict_decode(text)
    except (ValueError, RecursionError):
        raise _Wrong("not_json") from None
    if "\\u" in text or not text.isascii():
        # Only an escape or an unpaired surrogate can produce text that a database cannot store.
        _check_storable(text, data)
    return data


def _check_storable(text: str, value: Any) -> None:
    try:
        check(value)
        text.encode()
    except (BadDocument, UnicodeEncodeError):
        raise _Wrong("not_storable") from None


def _without_echo(data: Any, name: str, echo: str) -> Any:
    """Remove and check the echo of an answer.

    A different echo of the same form means that the answer belongs to another item. Anything else
    is just an invalid answer.
    """
    said = data.get(name) if isinstance(data, dict) else None
    if said != echo:
        is_echo = isinstance(said, str) and len(said) == len(echo) and said.isalnum()
        raise _Wrong(CROSS_WIRED if is_echo else "no_echo")
    # The decoder has just built it for this check.
    del data[name]
    return data


def _validate(schema: Mapping[str, Any], data: Any) -> None:
    from fastjsonschema import JsonSchemaException

    validate = validator_for(schema)
    try:
        validate(data)
    except JsonSchemaException as exc:
        # The rule is a JSON Schema keyword; the rest of the message quotes the answer.
        raise _Wrong("schema", rule=str(getattr(exc, "rule", None) or NO_CODE)) from None
    except RecursionError:
        raise _Wrong("schema", rule="depth") from None


def validator_for(schema: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return the validator of a JSON schema. Raises SchemaInvalid."""
    try:
        text = schema_text(schema)
    except (TypeError, ValueError, RecursionError):
        raise _unusable("it is not a JSON document") from None
    return validator_of(text)


@lru_cache(maxsize=256)
def validator_of(schema: str) -> Callable[[Any], Any]:
    """Return the validator of a JSON schema given as text. Raises SchemaInvalid.

    A schema that refers to another URL is refused; nothing is fetched.
    """
    import fastjsonschema

    try:
        document = strict_decode(schema)
    except ValueError:
        raise _unusable("it is not a JSON document") from None
    try:
        found: Callable[[Any], Any] = fastjsonschema.compile(
            document,
            handlers=dict.fromkeys(("http", "https", "ftp", "file", "data"), _fetch_nothing),
            use_default=False,
        )
    except SchemaInvalid:
        raise
    except Exception as exc:
        # The library raises its own error for some mistakes, and crashes on others.
        raise _unusable(str(exc) or type(exc).__name__) from None
    return found


def _unusable(why: str) -> SchemaInvalid:
    return SchemaInvalid(f"The schema of a request cannot be used: {why}.", field="schema")


def _fetch_nothing(_: str) -> Any:
    raise _unusable("external $ref is not supported; inline the schema")
