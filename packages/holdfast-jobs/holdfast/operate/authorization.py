"""The actor, the application and the permissions of a role.

Every method of the operator API checks its role and tenant here and records refusals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NoReturn

from holdfast.actor import Actor, Role
from holdfast.errors import Forbidden, HoldfastError

if TYPE_CHECKING:
    from holdfast.config import Settings
    from holdfast.engine.handler import Registry
    from holdfast.event import Events
    from holdfast.extension import Extension
    from holdfast.ids import IdSource
    from holdfast.operate.operated_app import OperatedApp
    from holdfast.store import Store


class Action(StrEnum):
    """The name of an action in the audit, the API and the CLI."""

    LOOK = "look"
    ENQUEUE = "enqueue"
    CANCEL = "cancel"
    TRIAGE = "triage"
    REMEDIATE = "remediate"
    VALIDATE = "validate"
    REPLAY = "replay"
    VERIFY_REPLAY = "verify_replay"
    RESOLVE = "resolve"
    DISCARD = "discard"
    FIX_FORWARD = "fix_forward"
    NOTE = "note"
    READ_AUDIT = "read_audit"
    EXPORT_AUDIT = "export_audit"
    VERIFY = "verify"
    DOCTOR = "doctor"
    GRANT = "grant"
    CANCEL_BATCH = "cancel_batch"
    RELEASE_BATCH = "release_batch"
    ADOPT_BATCH = "adopt_batch"
    ACCEPT_ANSWERS = "accept_answers"
    PROBE_ACCOUNT = "probe_account"
    CONFIRM_DELIVERY = "confirm_delivery"
    RESEND_DELIVERY = "resend_delivery"
    DROP_DELIVERY = "drop_delivery"
    PAUSE_QUEUE = "pause_queue"
    SET_QUEUE = "set_queue"
    SET_LIMIT_KEY = "set_limit_key"
    SET_TENANT = "set_tenant"
    PAUSE_SCHEDULE = "pause_schedule"
    CHANGE_SCHEDULE = "change_schedule"
    TRIGGER_SCHEDULE = "trigger_schedule"
    START_RUN = "start_run"
    LINK_ARTIFACT = "link_artifact"
    REMOVE_ARTIFACT = "remove_artifact"
    SWEEP_ARTIFACTS = "sweep_artifacts"
    READ_COSTS = "read_costs"
    SET_WEBHOOK = "set_webhook"
    SEND_EVENT = "send_event"
    READ_HELD = "read_held"
    DECIDE_HELD = "decide_held"
    ERASE = "erase"
    EXPORT = "export"
    READ_KEYS = "read_keys"
    CREATE_KEY = "create_key"
    ROTATE_KEY = "rotate_key"
    REVOKE_KEY = "revoke_key"


# The lowest role that may take an action. An action that is not listed needs an admin.
_LEAST: Mapping[Action, Role] = {
    Action.LOOK: Role.VIEWER,
    Action.CANCEL: Role.MEMBER,
    Action.ENQUEUE: Role.OPERATOR,
    Action.TRIAGE: Role.OPERATOR,
    Action.REMEDIATE: Role.OPERATOR,
    Action.VALIDATE: Role.OPERATOR,
    Action.REPLAY: Role.OPERATOR,
    Action.VERIFY_REPLAY: Role.OPERATOR,
    Action.RESOLVE: Role.OPERATOR,
    Action.DISCARD: Role.OPERATOR,
    Action.FIX_FORWARD: Role.OPERATOR,
    Action.NOTE: Role.OPERATOR,
    Action.READ_AUDIT: Role.OPERATOR,
    # Batches, queues and schedules serve every tenant: a context of one tenant is refused.
    Action.CANCEL_BATCH: Role.OPERATOR,
    Action.RELEASE_BATCH: Role.OPERATOR,
    Action.ADOPT_BATCH: Role.OPERATOR,
    Action.ACCEPT_ANSWERS: Role.OPERATOR,
    Action.PROBE_ACCOUNT: Role.OPERATOR,
    Action.CONFIRM_DELIVERY: Role.OPERATOR,
    Action.RESEND_DELIVERY: Role.OPERATOR,
    Action.DROP_DELIVERY: Role.OPERATOR,
    Action.PAUSE_QUEUE: Role.OPERATOR,
    Action.PAUSE_SCHEDULE: Role.OPERATOR,
    Action.LINK_ARTIFACT: Role.OPERATOR,
    Action.REMOVE_ARTIFACT: Role.OPERATOR,
    Action.READ_COSTS: Role.OPERATOR,
    Action.SET_WEBHOOK: Role.OPERATOR,
    Action.SEND_EVENT: Role.MEMBER,
    # For one tenant; for all tenants an admin is required.
    Action.VERIFY: Role.OPERATOR,
}


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """An actor in a role on an application: for one tenant or, without *org_id*, for all."""

    app: OperatedApp
    actor: Actor
    role: Role
    org_id: str | None = None

    def __post_init__(self) -> None:
        if self.role is Role.MEMBER and self.org_id is None:
            raise Forbidden("The role member requires a tenant: pass org_id or --org.")

    @property
    def available_extensions(self) -> list[Extension]:
        """Return the extensions whose checks are offered: those that are enabled or installed."""
        return self.app.extensions.available()

    @property
    def migrated_extensions(self) -> list[Extension]:
        """Return those of them whose tables are in the database, or that have no tables."""
        versions = self.store.component_versions()
        return [
            extension
            for extension in self.available_extensions
            if extension.component is None or extension.component.name in versions
        ]

    @property
    def store(self) -> Store:
        return self.app.store

    @property
    def settings(self) -> Settings:
        return self.app.settings

    @property
    def registry(self) -> Registry:
        return self.app.registry

    @property
    def ids(self) -> IdSource:
        return self.app.ids

    @property
    def events(self) -> Events:
        return self.app.events

    def check(self, action: Action, *, org_id: str | None, subject: str) -> None:
        """Raise Forbidden, audited, unless *action* is allowed for *org_id*.

        Without *org_id* it concerns every tenant. *subject* names the object, like ``job:…``.
        """
        why = self._why_not(action, org_id)
        if why is not None:
            error = Forbidden(f"{action} of {subject} was refused: {why}.")
            self.refuse(action, error, org_id=org_id, subject=subject)

    def tenant_for(self, action: Action, org_id: str | None, *, subject: str) -> str | None:
        """Return the tenant whose rows a method reads, None for all, if *action* is allowed.

        *org_id* is the requested tenant. A context of one tenant reads that tenant only; another
        one is refused, whether or not it exists.
        """
        tenant = self.org_id if org_id is None else org_id
        self.check(action, org_id=tenant, subject=subject)
        return tenant

    def refuse(
        self, action: Action, error: HoldfastError, *, org_id: str | None, subject: str
    ) -> NoReturn:
        """Audit the refusal of an action under the actor's tenant, and raise *error*."""
        # A command that only reads does not need the modules of the engine.
        from holdfast.engine.audit import PLATFORM_ORG, record_action

        detail = {"action": action, "role": self.role, "why": type(error).__name__}
        self.store.write(
            lambda tx: record_action(
                tx,
                self.actor,
                subject=subject,
                name="operator.refused",
                detail=detail,
                org_id=self.org_id or org_id or PLATFORM_ORG,
            )
        )
        raise error

    def _why_not(self, action: Action, org_id: str | None) -> str | None:
        if self.org_id is not None and org_id != self.org_id:
            return f"{self.actor.id} acts for tenant {self.org_id} only"
        least = _LEAST.get(action, Role.ADMIN)
        if self.role.rank < least.rank:
            return f"the role {self.role} may not, {least} may"
        return None
