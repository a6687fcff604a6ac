"""The errors that Holdfast raises. docs/reference/errors.md lists all of them.

Errors of a call (InvalidArgument, NotFound, Conflict, Forbidden, StoreError) are raised to the
caller. A Failure ends an attempt of a job: Transient ones are retried, Permanent ones are
dead-lettered. A Signal is no error; it is a BaseException, so `except Exception` does not catch it.

The docstring of a Failure names whose fault it is and what to do about it. Without a message of its
own, its first line is the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import ClassVar


def first_line(kind: type) -> str:
    """The first line of a class's docstring, or its name."""
    return (kind.__doc__ or kind.__name__).partition("\n")[0]


class HoldfastError(Exception):
    """Base class of all errors that Holdfast raises."""


class ConfigError(HoldfastError):
    """A setting, a declaration or `conn=` cannot be used. Correct what the message names."""


class InvalidArgument(HoldfastError):
    """An argument of a call is invalid; *fields* maps each bad argument to its problem. Correct the
    call. Nothing was written."""

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
    """The request to enqueue is invalid; *fields* maps each bad field to its problem. Correct the
    request. Repeating it unchanged fails again."""

    outcome = "Job not enqueued."


class SecretInPayload(InvalidJob):
    """The payload contains something that looks like a secret. The value is never repeated. Pass a
    reference to the secret instead."""


class ForeignKeyScope(InvalidJob):
    """An idempotency key in full form names another tenant, project or job type. Pass a key of the
    job's own tenant and type."""


class InvalidSchedule(InvalidArgument):
    """A schedule is invalid; *fields* maps each bad field to its problem. Correct the
    declaration."""

    def __init__(self, name: str, fields: Mapping[str, str]) -> None:
        self.outcome = f"Schedule {name[:63]!r} not accepted."  # type: ignore[misc]
        super().__init__(fields)


class InvalidArtifact(InvalidArgument):
    """An operation on an artifact is invalid; *fields* maps each bad field to its problem. Correct
    the call."""

    outcome = "Nothing was done with the artifact."


class ArtifactTooLarge(InvalidArtifact):
    """The artifact is larger than `artifacts.max_bytes`. Store less, or raise the limit."""


class NotFound(HoldfastError):
    """The object does not exist, or belongs to another tenant. Check the id and the tenant."""


class JobNotFound(NotFound):
    """The job does not exist, or belongs to another tenant. Check the id and the tenant."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"Job {job_id} not found. Check the id and the tenant it belongs to.")


class ArtifactNotFound(NotFound):
    """The artifact does not exist, has expired, or belongs to another tenant or owner. Check the
    id, the tenant and the retention."""

    def __init__(self, artifact_id: object) -> None:
        self.artifact_id = str(artifact_id)[:100]
        super().__init__(f"Artifact {self.artifact_id} not found. Check the id, tenant and expiry.")


class LinkRefused(NotFound):
    """The download link is invalid or has expired. Request a new one."""

    def __init__(self) -> None:
        super().__init__(first_line(type(self)))


class ScheduleNotFound(NotFound):
    """No schedule has this name. List the schedules: `holdfast schedules list`."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"Schedule {name[:63]!r} not found. List them: holdfast schedules list.")


class UnknownKind(NotFound):
    """The job type is not registered in this process. Import the module that declares it."""

    def __init__(self, job_type: str) -> None:
        self.job_type = job_type
        super().__init__(
            f"No job type {job_type!r:.100} is registered. Import the module that declares it, "
            f"or declare it with @hf.job({job_type!r:.100})."
        )


class UnknownRun(NotFound):
    """No bounded run of this name is declared. Declare it in `holdfast.toml` as `[runs.NAME]`."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        self.name = name
        super().__init__(
            f"No run {name!r} is declared. Declared: {', '.join(sorted(known)) or 'none'}. Declare"
            f" it in holdfast.toml: [runs.{name}] with its queues."
        )


class RunNotFound(NotFound):
    """The run log has no run with this id. List the runs: `holdfast runs list`."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"Run {run_id} not found. List the runs: holdfast runs list.")


class UnknownQueue(NotFound):
    """No queue of this name is registered. Declare it with `hf.queue(…)` or in `holdfast.toml`."""

    def __init__(self, queue: str, known: Iterable[str] = ()) -> None:
        self.queue = queue
        there = f" Registered: {', '.join(sorted(known))}." if known else ""
        mend = f"Declare it with hf.queue({queue!r})."
        if queue == "q:deadletter":
            mend = "It holds dead letters and cannot be worked on: see holdfast dead-letters."
        super().__init__(f"No queue {queue!r} is registered.{there} {mend}")


class Conflict(HoldfastError):
    """The object exists, but its state does not allow the operation."""


class LeaseLost(Conflict):
    """The lease was lost to another worker; the result is discarded. Do not catch it in a
    handler."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"The lease on job {job_id} was lost to another worker; result discarded.")


class QueueFull(Conflict):
    """The queue has reached its maximum depth. Nothing was enqueued. Retry later, add workers, or
    raise `max_depth`."""

    def __init__(self, queue: str, limit: int | None, per_tenant: int | None) -> None:
        self.queue, self.limit, self.per_tenant = queue, limit, per_tenant
        limits = [f"{limit} jobs" if limit else "", f"{per_tenant} a tenant" if per_tenant else ""]
        super().__init__(
            f"Queue {queue} is full: its limit is {' and '.join(filter(None, limits))}. Nothing"
            " was enqueued. Try again later, add workers, or raise its max_depth."
        )


class Forbidden(HoldfastError):
    """The actor may not do this for this tenant. Use an actor of the tenant, or a role that may."""


class StoreError(HoldfastError):
    """The database rejected the operation."""


class StoreBusy(StoreError):
    """The database is busy or the transaction lost a race; the same call may succeed shortly.
    Retry."""


class StoreDown(StoreError):
    """The database cannot be reached. PostgreSQL was tried for 15 seconds. Retry later."""

    is_permanent = False  # Whether a repetition cannot help: the database does not exist.


class RuleBroken(StoreError):
    """A constraint or trigger rejected the write; *rule* is its name. Look up the rule in the
    reference of constraints."""

    def __init__(self, rule: str, message: str) -> None:
        self.rule = rule
        super().__init__(f"The database refused the write by rule {rule}: {message}")


class SchemaMismatch(StoreError):
    """The database schema is older or newer than this version of Holdfast. Run `holdfast migrate`,
    or upgrade the package."""


class ForkedStore(StoreError):
    """A store was used in a child of the process that opened it. Open a new store in the child
    process."""


class Failure(HoldfastError):
    """An attempt failed. Raise one of the subclasses, or declare your own.

    `error_class` is stored and must never change; the class may be renamed. `context` holds ids,
    codes and hashes only: it is stored and shown to operators. The message is never stored.

    Fault: the handler. Remedy: raise a more specific class.
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
        super().__init__(message or first_line(type(self)))


class Transient(Failure):
    """A temporary failure: the attempt may succeed if repeated.

    Fault: a dependency, temporarily. Remedy: nothing, or declare a subclass with its own
    `error_class`.
    """

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
    """A connection failed: DNS, refused, reset, TLS handshake, or a timeout.

    Fault: the network or the remote service. Remedy: check the remote service if it persists.
    """

    error_class = "NETWORK_TIMEOUT"


class RateLimited(Transient):
    """The remote service asked for fewer requests.

    Fault: the application: it sends too many requests. Remedy: pass `retry_after`; lower the
    concurrency.
    """

    error_class = "RATE_LIMITED"


class UpstreamDown(Transient):
    """The remote service is unavailable: HTTP 425, 502, 503 or 504, or a temporary SMTP reply.

    Fault: the remote service. Remedy: wait.
    """

    error_class = "UPSTREAM_DOWN"


class UpstreamError(Transient):
    """The remote service failed: another HTTP 5xx, or an `internal_error` of a provider.

    Fault: the remote service. Remedy: wait; report it if it persists.
    """

    error_class = "UPSTREAM_ERROR"


class WriteConflict(Transient):
    """A concurrent write won: version mismatch, unique key, serialization failure or deadlock.

    Fault: none: two transactions raced. Remedy: nothing, unless it is frequent.
    """

    error_class = "WRITE_CONFLICT"


class StoreUnavailable(Transient):
    """The database was unavailable while the handler used it.

    Fault: the database. Remedy: restore the database.
    """

    error_class = "STORE_UNAVAILABLE"


class ArtifactStoreDown(Transient):
    """The artifact store is unreachable, full or read-only.

    Fault: the file system or object store. Remedy: restore the store, or free space.
    """

    error_class = "ARTIFACT_STORE_DOWN"


class HandlerTimeout(Transient):
    """The handler ran longer than its timeout.

    Fault: the handler. Remedy: make it faster, or raise its `timeout`.
    """

    error_class = "HANDLER_TIMEOUT"


class WorkerCrashed(Transient):
    """The worker was killed or frozen while it executed the job.

    Fault: the worker process: killed, out of memory or frozen. Pages an operator when no attempt is
    left. Remedy: find out why the worker died; this job may be the cause.
    """

    error_class = "WORKER_CRASHED"


class Permanent(Failure):
    """A permanent failure: repeating the attempt is pointless.

    Fault: the handler decides. Remedy: declare a subclass with its own `error_class`.
    """

    error_class = "PERMANENT"


class SchemaInvalid(Permanent):
    """A required field is missing, JSON is malformed, or the schema does not match.

    Fault: the sender. Remedy: correct the source and enqueue a new job.
    """

    error_class = "SCHEMA_INVALID"


class AuthDenied(Permanent):
    """A credential is invalid or expired, or a permission is missing.

    Fault: the credential. Remedy: rotate the credential, or grant the permission.
    """

    error_class = "AUTH_DENIED"


class Gone(Permanent):
    """The resource does not exist, or no longer exists.

    Fault: none: the resource is gone. Remedy: usually nothing.
    """

    error_class = "GONE"


class ChecksumMismatch(Permanent):
    """The bytes of an artifact differ from those that were stored.

    Fault: the storage: bytes were changed or lost. Remedy: restore the bytes, or create the
    artifact again.
    """

    error_class = "CHECKSUM_MISMATCH"
    pages_operator = True


class PolicyRejected(Permanent):
    """A content policy or an explicit deny rule rejected the operation.

    Fault: the content. Remedy: change the content.
    """

    error_class = "POLICY_REJECTED"


class RuleViolated(Permanent):
    """An ownership or business rule was violated, or a transition is not allowed.

    Fault: the caller, or a handler that wrote what the rules of its category forbid. Remedy: find
    the source of the request.
    """

    error_class = "RULE_VIOLATED"


class ConfigInvalid(Permanent):
    """The deployment is misconfigured: a certificate, a quota or a database permission.

    Fault: the deployment. Remedy: correct the configuration or the quota; for a table: `holdfast
    grant TABLE`.
    """

    error_class = "CONFIG_INVALID"
    pages_operator = True


class Defect(Permanent):
    """The handler raised an unclassified exception. It is treated as a bug.

    Fault: the handler. Remedy: read `last_stack`, fix the bug, deploy; or declare `retry_on=`.
    """

    error_class = "DEFECT"
    pages_operator = True


class PipelineChanged(Permanent):
    """The stages of the pipeline differ from those that the job started with.

    Fault: the deployment. Remedy: list the old version in `accepts`, or drain the queue before such
    a change.
    """

    error_class = "PIPELINE_CHANGED"
    pages_operator = True


class UnknownJobType(Permanent):
    """No worker had the job type registered for `unknown_type_patience_seconds`.

    Fault: the deployment. Remedy: deploy a worker that declares the job type.
    """

    error_class = "UNKNOWN_JOB_TYPE"
    pages_operator = True


class RowInvalid(Permanent):
    """A stored row cannot be read. It is quarantined.

    Fault: the writer: the row bypassed the constraints. Remedy: inspect the row.
    """

    error_class = "ROW_INVALID"
    pages_operator = True


class ResultInvalid(Permanent):
    """The handler returned something that cannot be stored.

    Fault: the handler: the result is not JSON, is larger than 256 KiB, or lacks the artifact that
    the category requires. Remedy: return a reference.
    """

    error_class = "RESULT_INVALID"
    pages_operator = True


class Signal(BaseException):
    """Base class of signals to the engine. `except Exception` does not catch them."""


class Snooze(Signal):
    """Run the job again after *delay*. It does not count as an attempt."""

    def __init__(self, delay: timedelta | float) -> None:
        self.delay = _length("delay", delay)
        super().__init__(f"snooze for {self.delay}")


class JobCanceled(Signal):
    """The job stops because its cancellation was requested."""
