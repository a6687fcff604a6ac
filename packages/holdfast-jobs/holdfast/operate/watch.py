"""Who acts, on which application, and whether they may. Every action of an operator asks here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn

from holdfast.actor import Actor, Role
from holdfast.config import Settings
from holdfast.engine.audit import PLATFORM_ORG, record_action
from holdfast.engine.handler import Registry
from holdfast.errors import Forbidden, HoldfastError
from holdfast.event import Events
from holdfast.extension import Extension, Extensions
from holdfast.ids import IdSource
from holdfast.store import Store


class Action(StrEnum):
    """What can be done, in the word that the audit and every face use."""

    LOOK = "look"
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
    ERASE = "erase"
    EXPORT = "export"


_RANK: Mapping[Role, int] = {Role.MEMBER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}

# What everybody may who is not named here, only an admin may.
_LEAST: Mapping[Action, Role] = {
    Action.LOOK: Role.MEMBER,
    Action.CANCEL: Role.MEMBER,
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
    # A batch is every tenant's: who acts for one of them is refused all the same.
    Action.CANCEL_BATCH: Role.OPERATOR,
    Action.RELEASE_BATCH: Role.OPERATOR,
    Action.ADOPT_BATCH: Role.OPERATOR,
    Action.ACCEPT_ANSWERS: Role.OPERATOR,
    Action.PROBE_ACCOUNT: Role.OPERATOR,
    Action.CONFIRM_DELIVERY: Role.OPERATOR,
    Action.RESEND_DELIVERY: Role.OPERATOR,
    Action.DROP_DELIVERY: Role.OPERATOR,
    # Of one tenant; of all of them it is for an admin.
    Action.VERIFY: Role.OPERATOR,
}


@dataclass(frozen=True, slots=True)
class Watch:
    """Somebody at an application's store: as *role*, for one tenant or, without one, for all."""

    store: Store
    settings: Settings
    registry: Registry
    ids: IdSource
    events: Events
    actor: Actor
    role: Role
    org_id: str | None = None
    extensions: Extensions | None = None

    @property
    def available_extensions(self) -> list[Extension]:
        """The extensions whose checks are offered: those that are enabled or installed."""
        return [] if self.extensions is None else self.extensions.available()

    def __post_init__(self) -> None:
        if self.role is Role.MEMBER and self.org_id is None:
            raise Forbidden("A member is one tenant's: say which, with org_id or --org.")

    def check(self, action: Action, *, org_id: str | None, subject: str) -> None:
        """Raise Forbidden, audited, unless this may be done to what belongs to *org_id*.

        Without *org_id* it concerns every tenant. *subject* names the thing, like ``job:…``.
        """
        why = self._why_not(action, org_id)
        if why is not None:
            error = Forbidden(f"{action} of {subject} was refused: {why}.")
            self.refuse(action, error, org_id=org_id, subject=subject)

    def refuse(
        self, action: Action, error: HoldfastError, *, org_id: str | None, subject: str
    ) -> NoReturn:
        """Audit that an action was refused, under the tenant that asked, and raise *error*."""
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
        if _RANK[self.role] < _RANK[least]:
            return f"the role {self.role} may not, {least} may"
        return None
