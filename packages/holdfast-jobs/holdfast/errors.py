"""Our errors. Two questions decide the class: whose fault is it, and may it be tried again?

* HoldfastError
  x ConfigError              the settings cannot be used; says which one and how to mend it
  x InvalidArgument          a call is wrong; names every bad argument
    + InvalidJob             the request to enqueue
      - SecretInPayload      a payload carries something shaped like a secret
      - ForeignKeyScope      an idempotency key was made for another tenant or job type
    + InvalidSchedule        what is declared for the clock
    + InvalidArtifact        what was asked of an artifact
      - ArtifactTooLarge     there are more bytes than may be stored
  x NotFound                 what was asked for is not there, or not yours
    + JobNotFound
    + ArtifactNotFound
    + LinkRefused            a download link is edited, expired or not ours
    + ScheduleNotFound
    + UnknownKind
    + UnknownQueue
    + UnknownRun
    + RunNotFound
  x Conflict                 the thing is there, but not in a state that allows this
    + LeaseLost              the claim was lost to another worker; its result is discarded
    + QueueFull              a queue is as deep as it may be; nothing was enqueued
  x Forbidden                the actor may not do this to this tenant
  x StoreError               the database said no
    + StoreBusy              it may say yes in a moment
    + StoreDown              it cannot be reached
    + RuleBroken             a constraint or trigger of the contract refused the write
    + SchemaMismatch         the schema is older or newer than this code
    + ForkedStore            a store was used in a child of the process that opened it
  x Failure                  a stage did not succeed; carries error_class and a safe context
    + Transient              may be tried again
      - NetworkTimeout
      - RateLimited
      - UpstreamDown
      - UpstreamError
      - WriteConflict
      - StoreUnavailable
      - ArtifactStoreDown
      - HandlerTimeout
      - WorkerCrashed
    + Permanent              must not be tried again
      - SchemaInvalid
      - AuthDenied
      - Gone
      - ChecksumMismatch
      - PolicyRejected
      - RuleViolated
      - ConfigInvalid
      - Defect
      - PipelineChanged
      - UnknownJobType
      - RowInvalid
      - ResultInvalid
* Signal                     not an error: a BaseException that `except Exception` cannot swallow
  x Snooze                   come back later; costs no attempt
  x JobCanceled              the cancel request was honoured
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import ClassVar


class HoldfastError(Exception):
    """The root of everything Holdfast raises as an error."""


class ConfigError(HoldfastError):
    """The settings cannot be used."""


class InvalidArgument(HoldfastError):
    """A call is wrong; *fields* maps each bad argument to what is wrong with it."""

    outcome: ClassVar[str] = "Nothing was done."

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = dict(fields)
        listed = "; ".join(f"{name}: {problem}" for name, problem in self.fields.items())
        super().__init__(f"{self.outcome} {listed}.")


def _length(name: str, value: timedelta | float) -> timedelta:
    try:
        return value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument({name: "must be a timedelta or a number of seconds"}) from None


class InvalidJob(InvalidArgument):
    """The request to enqueue is wrong."""

    outcome = "Job not enqueued."


class SecretInPayload(InvalidJob):
    """A payload carries something shaped like a secret. The value itself is never repeated."""


class ForeignKeyScope(InvalidJob):
    """An idempotency key in full form names another tenant, project or job type."""


class InvalidSchedule(InvalidArgument):
    """What is declared for the clock is wrong."""

    def __init__(self, name: str, fields: Mapping[str, str]) -> None:
        self.outcome = f"Schedule {name[:63]!r} not accepted."  # type: ignore[misc]
        super().__init__(fields)


class InvalidArtifact(InvalidArgument):
    """What was asked of an artifact is wrong."""

    outcome = "Nothing was done with the artifact."


class ArtifactTooLarge(InvalidArtifact):
    """There are more bytes than may be stored."""


class NotFound(HoldfastError):
    """What was asked for is not there, or belongs to somebody else."""


class JobNotFound(NotFound):
    """There is no such job, or it is another tenant's."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"Job {job_id} not found. Check the id and the tenant it belongs to.")


class ArtifactNotFound(NotFound):
    """There is no such artifact, or it has ended, or it is not yours."""

    def __init__(self, artifact_id: object) -> None:
        self.artifact_id = str(artifact_id)[:100]
        super().__init__(f"Artifact {self.artifact_id} not found. Check the id, tenant and expiry.")


class LinkRefused(NotFound):
    """The link is not valid here or has expired. Ask for another one."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


class ScheduleNotFound(NotFound):
    """There is no schedule of that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"Schedule {name[:63]!r} not found. List them: holdfast schedules list.")


class UnknownKind(NotFound):
    """No handler is registered for the job type."""

    def __init__(self, job_type: str) -> None:
        self.job_type = job_type
        super().__init__(
            f"No job type {job_type!r:.100} is registered. Import the module that declares it, "
            f"or declare it with @hf.job({job_type!r:.100})."
        )


class UnknownRun(NotFound):
    """No run of that name is in the settings."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        self.name = name
        super().__init__(
            f"No run {name!r} is declared; there is: {', '.join(sorted(known)) or 'none'}. "
            f"Declare it in holdfast.toml: [runs.{name}] with its queues."
        )


class RunNotFound(NotFound):
    """The run log has no such run."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"Run {run_id} not found. List the runs: holdfast runs list.")


class UnknownQueue(NotFound):
    """No queue of that name is registered."""

    def __init__(self, queue: str, known: Iterable[str] = ()) -> None:
        self.queue = queue
        there = f" There is: {', '.join(sorted(known))}." if known else ""
        mend = f"Declare it with hf.queue({queue!r})."
        if queue == "q:deadletter":
            mend = "Nothing is claimed from the dead letters: see holdfast dead-letters."
        super().__init__(f"No queue {queue!r} is registered.{there} {mend}")


class Conflict(HoldfastError):
    """The thing is there, but its state does not allow this."""


class LeaseLost(Conflict):
    """The claim was lost to another worker; its result is discarded."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"The lease on job {job_id} was lost to another worker; result discarded.")


class QueueFull(Conflict):
    """A queue is as deep as it may be. Nothing was enqueued; try again when it has drained."""

    def __init__(self, queue: str, limit: int | None, per_tenant: int | None) -> None:
        self.queue, self.limit, self.per_tenant = queue, limit, per_tenant
        limits = [f"{limit} jobs" if limit else "", f"{per_tenant} a tenant" if per_tenant else ""]
        super().__init__(
            f"Queue {queue} is full: it may hold {' and '.join(filter(None, limits))}. Nothing was "
            "enqueued. Try again later, add workers, or raise its max_depth."
        )


class Forbidden(HoldfastError):
    """The actor may not do this to this tenant."""


class StoreError(HoldfastError):
    """The database said no."""


class StoreBusy(StoreError):
    """The database is busy or a race was lost; the same call may go through in a moment."""


class StoreDown(StoreError):
    """The database cannot be reached."""


class RuleBroken(StoreError):
    """A constraint or trigger refused the write; *rule* is its name."""

    def __init__(self, rule: str, message: str) -> None:
        self.rule = rule
        super().__init__(f"The database refused the write by rule {rule}: {message}")


class SchemaMismatch(StoreError):
    """The schema is older or newer than this code."""


class ForkedStore(StoreError):
    """A store was used in a child of the process that opened it; open a new one there."""


class Failure(HoldfastError):
    """A stage did not succeed.

    ``error_class`` is stable: classes may be renamed, the string may not. ``context`` holds ids,
    codes and hashes only; it is stored and shown to operators. The message is never stored.
    """

    error_class: ClassVar[str] = "FAILURE"
    retryable: ClassVar[bool] = False
    pages_operator: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if not re.fullmatch(r"[A-Z][A-Z0-9_]{0,63}", str(cls.error_class)):
            says = "up to 64 capitals, digits and underscores, like 'PRINTER_JAM'"
            raise ConfigError(f"{cls.__name__[:100]}: error_class must be {says}.")

    def __init__(self, message: str = "", **context: int | str) -> None:
        self.context = context
        super().__init__(message or (self.__doc__ or type(self).__name__))


class Transient(Failure):
    """It may work the next time."""

    error_class = "TRANSIENT"
    retryable = True
    retry_after: timedelta | None = None

    def __init__(
        self,
        message: str = "",
        *,
        retry_after: timedelta | float | None = None,
        **context: int | str,
    ) -> None:
        super().__init__(message, **context)
        self.retry_after = None if retry_after is None else _length("retry_after", retry_after)


class NetworkTimeout(Transient):
    """DNS, connect, read or write took too long, or the connection was reset."""

    error_class = "NETWORK_TIMEOUT"


class RateLimited(Transient):
    """The other side asked us to slow down."""

    error_class = "RATE_LIMITED"


class UpstreamDown(Transient):
    """The other side is unavailable: 502, 503, 504."""

    error_class = "UPSTREAM_DOWN"


class UpstreamError(Transient):
    """The other side failed inside: another 5xx, or a provider's `internal_error`."""

    error_class = "UPSTREAM_ERROR"


class WriteConflict(Transient):
    """A race was lost: version mismatch, unique-key race, serialization failure, deadlock."""

    error_class = "WRITE_CONFLICT"


class StoreUnavailable(Transient):
    """The database was away while the handler needed it."""

    error_class = "STORE_UNAVAILABLE"


class ArtifactStoreDown(Transient):
    """The place where artifacts lie cannot be reached, or has no room."""

    error_class = "ARTIFACT_STORE_DOWN"


class HandlerTimeout(Transient):
    """The handler ran longer than it may."""

    error_class = "HANDLER_TIMEOUT"


class WorkerCrashed(Transient):
    """The worker died or froze while it held the job."""

    error_class = "WORKER_CRASHED"


class Permanent(Failure):
    """It will not work the next time either."""

    error_class = "PERMANENT"


class SchemaInvalid(Permanent):
    """A required field is missing, JSON is malformed, or the schema does not match."""

    error_class = "SCHEMA_INVALID"


class AuthDenied(Permanent):
    """A credential is invalid or expired, or the permission is missing."""

    error_class = "AUTH_DENIED"


class Gone(Permanent):
    """The resource does not exist, or no longer does."""

    error_class = "GONE"


class ChecksumMismatch(Permanent):
    """The bytes of an artifact are not those that were stored."""

    error_class = "CHECKSUM_MISMATCH"
    pages_operator = True


class PolicyRejected(Permanent):
    """A content policy or an explicit deny rule said no."""

    error_class = "POLICY_REJECTED"


class RuleViolated(Permanent):
    """An ownership or business rule said no, or a transition is forbidden."""

    error_class = "RULE_VIOLATED"


class ConfigInvalid(Permanent):
    """The deployment is configured wrongly, or a paid quota is exhausted."""

    error_class = "CONFIG_INVALID"
    pages_operator = True


class Defect(Permanent):
    """An exception nobody named: a bug until somebody says otherwise."""

    error_class = "DEFECT"
    pages_operator = True


class PipelineChanged(Permanent):
    """The stages of the pipeline are not those the job was started with."""

    error_class = "PIPELINE_CHANGED"
    pages_operator = True


class UnknownJobType(Permanent):
    """No worker knew the job type for as long as we wait for one."""

    error_class = "UNKNOWN_JOB_TYPE"
    pages_operator = True


class RowInvalid(Permanent):
    """A stored row cannot be read; it is quarantined."""

    error_class = "ROW_INVALID"
    pages_operator = True


class ResultInvalid(Permanent):
    """The handler returned something that cannot be stored."""

    error_class = "RESULT_INVALID"
    pages_operator = True


class Signal(BaseException):
    """Not an error: a handler's word to the engine, which `except Exception` cannot swallow."""


class Snooze(Signal):
    """Come back after *delay*. Costs no attempt."""

    def __init__(self, delay: timedelta | float) -> None:
        self.delay = _length("delay", delay)
        super().__init__(f"snooze for {self.delay}")


class JobCanceled(Signal):
    """The cancel request was honoured between two steps."""
