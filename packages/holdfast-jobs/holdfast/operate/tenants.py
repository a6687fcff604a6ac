"""Tenants: their weight and cap over all queues.

Members of a tenant may read its rule. Only an admin of all tenants can change one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from holdfast.arguments import anything, checked, instance, text
from holdfast.config import TenantSettings
from holdfast.errors import ConfigError
from holdfast.ids import MalformedId, read_named_id
from holdfast.operate.admit import admit
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.page import Page, check_limit, one_of, page_of, read_filter
from holdfast.operate.refusal import InvalidAction, refused_rules
from holdfast.operate.short_ids import TENANTS


class TenantOptions(TypedDict, total=False):
    """The fields of :class:`TenantSettings` as keywords."""

    weight: int
    max_running: int | None


@dataclass(frozen=True, slots=True)
class RuleFilter:
    """Which rules to list; a field that is None matches every rule.

    *set_by* is ``operator`` or ``code``.
    """

    set_by: str | None = None

    def check(self) -> RuleFilter:
        """Return the validated filter; raises InvalidAction."""
        return read_filter(self, {"set_by": one_of("operator", "code")})


@dataclass(frozen=True, slots=True)
class TenantRule:
    """The rule of one tenant. *set_by* is None if neither code nor an operator set one."""

    org_id: str
    settings: TenantSettings
    set_by: str | None


@checked(
    InvalidAction,
    checks={
        "after": text,
        "wanted": instance(RuleFilter),
        # Checked by the method, so that a refusal is audited.
        "reason": anything,
        "org_id": anything,
    },
)
class Tenants:
    """The tenants of an application."""

    id_space = TENANTS

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def list(
        self, wanted: RuleFilter | None = None, *, limit: int = 50, after: str = ""
    ) -> Page[TenantRule]:
        """Tenants that have a rule, in order of ids; a context of one tenant sees its own."""
        wanted = (wanted or RuleFilter()).check()
        own = self.context.org_id
        self.context.check(Action.LOOK, org_id=own, subject="tenants")
        found = [
            rule
            for rule in self._read()
            if rule.org_id > after
            and own in (None, rule.org_id)
            and wanted.set_by in (None, rule.set_by)
        ]
        return page_of(found[: check_limit(limit) + 1], limit, lambda rule: rule.org_id)

    def get(self, org_id: str) -> TenantRule:
        """The rule of one tenant, the default if it has none."""
        org_id = _tenant(org_id)
        self.context.check(Action.LOOK, org_id=org_id, subject=f"tenant:{org_id}")
        known = [rule for rule in self._read() if rule.org_id == org_id]
        return known[0] if known else TenantRule(org_id, TenantSettings(), None)

    def set(self, org_id: str, *, reason: str, **changes: Unpack[TenantOptions]) -> TenantRule:
        """Change the weight or the cap of a tenant; the change overrides the code."""
        org_id, reason = self._admit(org_id, reason)
        if not changes or set(changes) - set(TenantSettings.__slots__):
            known = ", ".join(TenantSettings.__slots__)
            raise InvalidAction({"changes": f"must be one or more of {known}"})
        with refused_rules():
            settings = replace(self.get(org_id).settings, **changes)
        self.context.app.queues.set_tenant(
            org_id, settings, actor=self.context.actor, reason=reason
        )
        return self.get(org_id)

    def reset(self, org_id: str, *, reason: str) -> bool:
        """Let a tenant follow the settings again. False if it has no rule."""
        org_id, reason = self._admit(org_id, reason)
        queues = self.context.app.queues
        return queues.reset_tenant(org_id, actor=self.context.actor, reason=reason)

    def _admit(self, org_id: str, reason: str) -> tuple[str, str]:
        org_id = _tenant(org_id)
        # A tenant's own admin must not raise its share of the workers.
        subject = f"tenant:{org_id}"
        return org_id, admit(self.context, Action.SET_TENANT, reason, org_id=None, subject=subject)

    def _read(self) -> Sequence[TenantRule]:
        return [
            TenantRule(
                str(row["org_id"]), TenantSettings(row["weight"], row["max_running"]), row["set_by"]
            )
            for row in self.context.app.queues.tenants()
        ]


def _tenant(org_id: object) -> str:
    """Return the id in its stored form; raises ConfigError."""
    try:
        return read_named_id(org_id)
    except MalformedId as exc:
        raise ConfigError(f"No tenant has such a rule: org_id {exc}.") from None
