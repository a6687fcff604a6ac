"""Background work that must not be lost, doubled or leaked, in your own database."""

import importlib
import typing

from holdfast.actor import Role
from holdfast.artifact.artifact import Access, Artifact, ArtifactState
from holdfast.batch.work import BatchWork, Item
from holdfast.clock import FakeClock, SystemClock
from holdfast.config import KeySettings, QueueSettings, Rate, Settings, TenantSettings
from holdfast.engine.cancel import CancelAnswer
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.execute import Context
from holdfast.engine.handler import EnqueueRefused, Producer
from holdfast.engine.job import Actor, ActorType, Job, Kept, KeyRecord, KeyStatus, Priority, State
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
    InvalidArgument,
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
from holdfast.outbox.delivery import Content
from holdfast.outbox.intend import Intent
from holdfast.provider.reply import Reply, Usage
from holdfast.provider.request import Request
from holdfast.provider.route import ExecutionMode, Route
from holdfast.tenant import Tenant

if typing.TYPE_CHECKING:
    from holdfast.apps.review.model import Recipient, Source
    from holdfast.apps.review.reviews import Reviews
    from holdfast.apps.rewrite.gate import Submission
    from holdfast.apps.rewrite.rewrites import Rewrites

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
    "BatchWork",
    "CancelAnswer",
    "ChecksumMismatch",
    "ConfigError",
    "ConfigInvalid",
    "Content",
    "Context",
    "Defect",
    "EnqueueRefused",
    "Enqueued",
    "ExecutionMode",
    "Failure",
    "FakeClock",
    "Forbidden",
    "Gone",
    "Holdfast",
    "HoldfastError",
    "Intent",
    "InvalidArgument",
    "InvalidArtifact",
    "InvalidJob",
    "InvalidSchedule",
    "Item",
    "Job",
    "JobCanceled",
    "JobNotFound",
    "JobRequest",
    "Kept",
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
    "Producer",
    "QueueFull",
    "QueueSettings",
    "Rate",
    "RateLimited",
    "Recipient",
    "Reply",
    "Request",
    "RetryPolicy",
    "Reviews",
    "Rewrites",
    "Role",
    "Route",
    "RuleViolated",
    "RunReport",
    "SchemaInvalid",
    "Settings",
    "Snooze",
    "Source",
    "State",
    "StoreDown",
    "Submission",
    "SystemClock",
    "Tenant",
    "TenantSettings",
    "Transient",
    "UnknownKind",
    "UnknownQueue",
    "UpstreamDown",
    "UpstreamError",
    "Usage",
    "Worker",
    "WriteConflict",
    "key_for",
]

# Applications bring packages of their own, so they are imported when somebody asks for them.
_LATE = {
    "Recipient": "holdfast.apps.review.model",
    "Reviews": "holdfast.apps.review.reviews",
    "Rewrites": "holdfast.apps.rewrite.rewrites",
    "Source": "holdfast.apps.review.model",
    "Submission": "holdfast.apps.rewrite.gate",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATE[name]), name)
