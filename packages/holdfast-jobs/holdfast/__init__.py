"""Background work that must not be lost, doubled or leaked, in your own database.

Every public name is imported from here. Importing the package loads none of its modules: the first
use of a name imports the module that defines it. The names that an installed extension exports at
its own top level can be imported from here too.
"""

TYPE_CHECKING = False  # Type checkers know the name; importing typing costs more than all of this.

if TYPE_CHECKING:
    from holdfast.actor import Role
    from holdfast.app import Holdfast
    from holdfast.artifacts.artifact import Access, Artifact, ArtifactState
    from holdfast.artifacts.settings import ArtifactSettings
    from holdfast.channel.channel import (
        Accepted,
        Ambiguous,
        Capabilities,
        Channel,
        ChannelRefused,
        Found,
        Lookup,
        LookupFailed,
        LookupKey,
        NotFound,
        Rejected,
        Throttled,
        Unsure,
    )
    from holdfast.channel.kind import ChannelKind
    from holdfast.channel.message import Message
    from holdfast.clock import FakeClock, SystemClock
    from holdfast.config import (
        AlertSettings,
        Cadence,
        ChannelSettings,
        CommonChannelSettings,
        KeySettings,
        OutboxSettings,
        QueueSettings,
        Rate,
        RetentionRule,
        RetentionSettings,
        RunProfile,
        RunSettings,
        ScheduleSettings,
        ServeSettings,
        Settings,
        TenantSettings,
    )
    from holdfast.config.setting_type import Section, SettingType, setting
    from holdfast.declared_job import DeclaredJob
    from holdfast.engine.cancel import CancelAnswer
    from holdfast.engine.context import Context
    from holdfast.engine.enqueue import Enqueued
    from holdfast.engine.handler import EnqueueRefused, Producer
    from holdfast.engine.job import (
        Actor,
        ActorType,
        Job,
        KeyRecord,
        KeyStatus,
        Priority,
        ResultWithRows,
    )
    from holdfast.engine.job_result import JobFailed, ResultCanceled
    from holdfast.engine.job_state import State
    from holdfast.engine.pass_counts import PassCounts
    from holdfast.engine.pipeline import Pipeline
    from holdfast.engine.request import JobRequest, key_for
    from holdfast.engine.retry import RetryPolicy
    from holdfast.engine.run_log import RunReport
    from holdfast.engine.schedule.dispatcher import Dispatcher, dispatch_once
    from holdfast.engine.schedule.rows import sync_schedules
    from holdfast.engine.worker.worker import Worker
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
    from holdfast.extension import Extension
    from holdfast.operate.dead_letter_input import DeadLetterFilter
    from holdfast.operate.verify.check import Check, selects
    from holdfast.outbound.credential import Credential
    from holdfast.outbox.delivery import Content
    from holdfast.outbox.intend import OutgoingMessage
    from holdfast.step import OnFailure, Step
    from holdfast.store import Component, Statements, StateStatement
    from holdfast.telemetry.alert import Alert, alert
    from holdfast.telemetry.log import JobFields, configure_logging, log_event
    from holdfast.telemetry.metrics import Metrics as Metrics
    from holdfast.telemetry.trace import span_of as span_of
    from holdfast.telemetry.trace import trace as trace
    from holdfast.tenant import Tenant
    from holdfast.workflows.failure import WaitTimedOut
    from holdfast.workflows.graph import Workflow, chain, chord, group
    from holdfast.workflows.handle import (
        EnqueuedWorkflow,
        WorkflowFailed,
        WorkflowNotFound,
        WorkflowState,
    )

__version__ = "0.1.0"

__all__ = [
    "Accepted",
    "Access",
    "Actor",
    "ActorType",
    "Alert",
    "AlertSettings",
    "Ambiguous",
    "Artifact",
    "ArtifactNotFound",
    "ArtifactSettings",
    "ArtifactState",
    "ArtifactStoreDown",
    "ArtifactTooLarge",
    "AuthDenied",
    "Cadence",
    "CancelAnswer",
    "Capabilities",
    "Channel",
    "ChannelKind",
    "ChannelRefused",
    "ChannelSettings",
    "Check",
    "ChecksumMismatch",
    "CommonChannelSettings",
    "Component",
    "ConfigError",
    "ConfigInvalid",
    "Content",
    "Context",
    "Credential",
    "DeadLetterFilter",
    "DeclaredJob",
    "Defect",
    "Dispatcher",
    "EnqueueRefused",
    "Enqueued",
    "EnqueuedWorkflow",
    "Extension",
    "Failure",
    "FakeClock",
    "Forbidden",
    "Found",
    "Gone",
    "Holdfast",
    "HoldfastError",
    "InvalidArgument",
    "InvalidArtifact",
    "InvalidJob",
    "InvalidSchedule",
    "Job",
    "JobCanceled",
    "JobFailed",
    "JobFields",
    "JobNotFound",
    "JobRequest",
    "KeyRecord",
    "KeySettings",
    "KeyStatus",
    "LeaseLost",
    "LinkRefused",
    "Lookup",
    "LookupFailed",
    "LookupKey",
    "Message",
    "NetworkTimeout",
    "NotFound",
    "OnFailure",
    "OutboxSettings",
    "OutgoingMessage",
    "PassCounts",
    "Permanent",
    "Pipeline",
    "PolicyRejected",
    "Priority",
    "Producer",
    "QueueFull",
    "QueueSettings",
    "Rate",
    "RateLimited",
    "Rejected",
    "ResultCanceled",
    "ResultWithRows",
    "RetentionRule",
    "RetentionSettings",
    "RetryPolicy",
    "Role",
    "RuleViolated",
    "RunProfile",
    "RunReport",
    "RunSettings",
    "ScheduleSettings",
    "SchemaInvalid",
    "Section",
    "ServeSettings",
    "SettingType",
    "Settings",
    "Snooze",
    "State",
    "StateStatement",
    "Statements",
    "Step",
    "StoreDown",
    "SystemClock",
    "Tenant",
    "TenantSettings",
    "Throttled",
    "Transient",
    "UnknownKind",
    "UnknownQueue",
    "Unsure",
    "UpstreamDown",
    "UpstreamError",
    "WaitTimedOut",
    "Worker",
    "Workflow",
    "WorkflowFailed",
    "WorkflowNotFound",
    "WorkflowState",
    "WriteConflict",
    "alert",
    "chain",
    "chord",
    "configure_logging",
    "dispatch_once",
    "group",
    "key_for",
    "log_event",
    "selects",
    "setting",
    "sync_schedules",
]

# The module of every public name: tests compare it with __all__ and with the imports above.
_MODULES = {
    "holdfast.actor": "Role",
    "holdfast.artifacts.artifact": "Access Artifact ArtifactState",
    "holdfast.artifacts.settings": "ArtifactSettings",
    "holdfast.clock": "FakeClock SystemClock",
    "holdfast.config": """
        AlertSettings Cadence ChannelSettings CommonChannelSettings KeySettings OutboxSettings
        QueueSettings Rate RetentionRule RetentionSettings RunProfile RunSettings ScheduleSettings
        ServeSettings Settings TenantSettings
    """,
    "holdfast.declared_job": "DeclaredJob",
    "holdfast.engine.job_result": "JobFailed ResultCanceled",
    "holdfast.engine.schedule.rows": "sync_schedules",
    "holdfast.engine.cancel": "CancelAnswer",
    "holdfast.engine.context": "Context",
    "holdfast.engine.schedule.dispatcher": "Dispatcher dispatch_once",
    "holdfast.engine.enqueue": "Enqueued",
    "holdfast.engine.handler": "EnqueueRefused Producer",
    "holdfast.engine.job": "Actor ActorType Job ResultWithRows KeyRecord KeyStatus Priority",
    "holdfast.engine.job_state": "State",
    "holdfast.engine.run_log": "RunReport",
    "holdfast.engine.pass_counts": "PassCounts",
    "holdfast.engine.pipeline": "Pipeline",
    "holdfast.engine.request": "JobRequest key_for",
    "holdfast.engine.retry": "RetryPolicy",
    "holdfast.engine.worker.worker": "Worker",
    "holdfast.errors": """
        ArtifactNotFound ArtifactStoreDown ArtifactTooLarge AuthDenied ChecksumMismatch ConfigError
        ConfigInvalid Defect Failure Forbidden Gone HoldfastError InvalidArgument InvalidArtifact
        InvalidJob InvalidSchedule JobCanceled JobNotFound LeaseLost LinkRefused NetworkTimeout
        Permanent PolicyRejected QueueFull RateLimited RuleViolated SchemaInvalid Snooze StoreDown
        Transient UnknownKind UnknownQueue UpstreamDown UpstreamError WriteConflict
    """,
    "holdfast.channel.channel": """
        Accepted Ambiguous Capabilities Channel ChannelRefused Found Lookup LookupFailed LookupKey
        NotFound Rejected Throttled Unsure
    """,
    "holdfast.channel.kind": "ChannelKind",
    "holdfast.channel.message": "Message",
    "holdfast.config.setting_type": "Section SettingType setting",
    "holdfast.app": "Holdfast",
    "holdfast.extension": "Extension",
    "holdfast.operate.dead_letter_input": "DeadLetterFilter",
    "holdfast.operate.verify.check": "Check selects",
    "holdfast.outbound.credential": "Credential",
    "holdfast.outbox.delivery": "Content",
    "holdfast.outbox.intend": "OutgoingMessage",
    "holdfast.store": "Component StateStatement Statements",
    "holdfast.telemetry.alert": "Alert alert",
    "holdfast.telemetry.log": "JobFields configure_logging log_event",
    "holdfast.step": "OnFailure Step",
    "holdfast.tenant": "Tenant",
    "holdfast.workflows.failure": "WaitTimedOut",
    "holdfast.workflows.graph": "Workflow chain chord group",
    "holdfast.workflows.handle": "EnqueuedWorkflow WorkflowFailed WorkflowNotFound WorkflowState",
}
# These need an extra, so `from holdfast import *` leaves them out.
_MODULES_OF_EXTRAS = {
    "holdfast.telemetry.metrics": "Metrics",
    "holdfast.telemetry.trace": "span_of trace",
}
_MODULE_OF = {
    name: module
    for module, names in (_MODULES | _MODULES_OF_EXTRAS).items()
    for name in names.split()
}

if not TYPE_CHECKING:

    def __getattr__(name):
        """Import the module of a public name on its first use (PEP 562)."""
        from importlib import import_module

        if name in _MODULE_OF:
            module = import_module(_MODULE_OF[name])
        elif name.startswith("_") or (module := _find_extension(name)) is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(module, name)
        return value

    def _find_extension(name):
        """The package of an installed extension that exports *name*."""
        from importlib import import_module
        from importlib.metadata import entry_points

        for found in entry_points(group="holdfast.extensions"):
            package = import_module(found.module.partition(".")[0])
            if name in getattr(package, "__all__", ()):
                return package
        return None


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
