"""Background work that must not be lost, doubled or leaked, in your own database."""

from holdfast.clock import FakeClock, SystemClock
from holdfast.config import Settings
from holdfast.engine.cancel import CancelAnswer
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.execute import Context
from holdfast.engine.job import Actor, ActorType, Job, KeyRecord, KeyStatus, Priority, State
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.request import JobRequest, key_for
from holdfast.engine.retry import RetryPolicy
from holdfast.engine.worker import Worker
from holdfast.errors import (
    AuthDenied,
    ConfigError,
    ConfigInvalid,
    Defect,
    Failure,
    Forbidden,
    Gone,
    HoldfastError,
    InvalidJob,
    JobCanceled,
    JobNotFound,
    LeaseLost,
    NetworkTimeout,
    Permanent,
    PolicyRejected,
    RateLimited,
    RuleViolated,
    SchemaInvalid,
    Snooze,
    StoreDown,
    Transient,
    UnknownKind,
    UpstreamDown,
    UpstreamError,
    WriteConflict,
)
from holdfast.holdfast import Holdfast, Tenant

__version__ = "0.1.0"

__all__ = [
    "Actor",
    "ActorType",
    "AuthDenied",
    "CancelAnswer",
    "ConfigError",
    "ConfigInvalid",
    "Context",
    "Defect",
    "Enqueued",
    "Failure",
    "FakeClock",
    "Forbidden",
    "Gone",
    "Holdfast",
    "HoldfastError",
    "InvalidJob",
    "Job",
    "JobCanceled",
    "JobNotFound",
    "JobRequest",
    "KeyRecord",
    "KeyStatus",
    "LeaseLost",
    "NetworkTimeout",
    "Permanent",
    "Pipeline",
    "PolicyRejected",
    "Priority",
    "RateLimited",
    "RetryPolicy",
    "RuleViolated",
    "SchemaInvalid",
    "Settings",
    "Snooze",
    "State",
    "StoreDown",
    "SystemClock",
    "Tenant",
    "Transient",
    "UnknownKind",
    "UpstreamDown",
    "UpstreamError",
    "Worker",
    "WriteConflict",
    "key_for",
]
