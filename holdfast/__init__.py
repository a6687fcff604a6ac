"""Background work that must not be lost, doubled or leaked, in your own database."""

from holdfast.actor import Role
from holdfast.artifact.artifact import Access, Artifact, ArtifactState
from holdfast.clock import FakeClock, SystemClock
from holdfast.config import KeySettings, QueueSettings, Rate, Settings, TenantSettings
from holdfast.engine.cancel import CancelAnswer
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.execute import Context
from holdfast.engine.job import Actor, ActorType, Job, KeyRecord, KeyStatus, Priority, State
from holdfast.engine.ledger import RunReport
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.request import JobRequest, key_for
from holdfast.engine.retry import RetryPolicy
from holdfast.engine.worker import Worker
from holdfast.errors import (
    ArtifactNotFound,
    ArtifactStoreDown,
    ArtifactTooLarge,
    AuthDenied,
    ChecksumMismatch,
    ConfigError,
    ConfigInvalid,
    Defect,
    Failure,
    Forbidden,
    Gone,
    HoldfastError,
    InvalidArtifact,
    InvalidJob,
    InvalidSchedule,
    JobCanceled,
    JobNotFound,
    LeaseLost,
    LinkRefused,
    NetworkTimeout,
    Permanent,
    PolicyRejected,
    QueueFull,
    RateLimited,
    RuleViolated,
    SchemaInvalid,
    Snooze,
    StoreDown,
    Transient,
    UnknownKind,
    UnknownQueue,
    UpstreamDown,
    UpstreamError,
    WriteConflict,
)
from holdfast.holdfast import Holdfast
from holdfast.tenant import Tenant

__version__ = "0.1.0"

__all__ = [
    "Access",
    "Actor",
    "ActorType",
    "Artifact",
    "ArtifactNotFound",
    "ArtifactState",
    "ArtifactStoreDown",
    "ArtifactTooLarge",
    "AuthDenied",
    "CancelAnswer",
    "ChecksumMismatch",
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
    "InvalidArtifact",
    "InvalidJob",
    "InvalidSchedule",
    "Job",
    "JobCanceled",
    "JobNotFound",
    "JobRequest",
    "KeyRecord",
    "KeySettings",
    "KeyStatus",
    "LeaseLost",
    "LinkRefused",
    "NetworkTimeout",
    "Permanent",
    "Pipeline",
    "PolicyRejected",
    "Priority",
    "QueueFull",
    "QueueSettings",
    "Rate",
    "RateLimited",
    "RetryPolicy",
    "Role",
    "RuleViolated",
    "RunReport",
    "SchemaInvalid",
    "Settings",
    "Snooze",
    "State",
    "StoreDown",
    "SystemClock",
    "Tenant",
    "TenantSettings",
    "Transient",
    "UnknownKind",
    "UnknownQueue",
    "UpstreamDown",
    "UpstreamError",
    "Worker",
    "WriteConflict",
    "key_for",
]
