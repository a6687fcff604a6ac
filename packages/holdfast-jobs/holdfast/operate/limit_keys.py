"""Limit keys: the cap and rate of a shared resource, such as a provider.

A key serves every tenant, so a context of one tenant is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from holdfast.arguments import anything, checked, instance, name, text
from holdfast.config import KeySettings, Rate
from holdfast.engine.limits import KeyOptions
from holdfast.operate.admit import admit
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.page import Page, check_limit, page_of
from holdfast.operate.refusal import InvalidAction
from holdfast.operate.tenants import RuleFilter


@dataclass(frozen=True, slots=True)
class KeyRule:
    """The rule of one limit key. Without a rule both limits and *set_by* are None."""

    name: str
    max_running: int | None = None
    rate: Rate | None = None
    set_by: str | None = None


@checked(
    InvalidAction,
    checks={
        "after": text,
        "name": name,
        "wanted": instance(RuleFilter),
        # Checked by the method, so that a refusal is audited.
        "reason": anything,
    },
)
class LimitKeys:
    """The limit keys of an application."""

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def list(
        self, wanted: RuleFilter | None = None, *, limit: int = 50, after: str = ""
    ) -> Page[KeyRule]:
        """Keys that have a rule, in order of names."""
        self.context.check(Action.LOOK, org_id=None, subject="keys")
        wanted = (wanted or RuleFilter()).check()
        found = [
            rule
            for rule in self._read()
            if rule.name > after and wanted.set_by in (None, rule.set_by)
        ]
        return page_of(found[: check_limit(limit) + 1], limit, lambda rule: rule.name)

    def get(self, name: str) -> KeyRule:
        """The rule of one key; without limits if it has none."""
        self.context.check(Action.LOOK, org_id=None, subject=f"key:{name}")
        known = [rule for rule in self._read() if rule.name == name]
        return known[0] if known else KeyRule(name)

    def set(self, name: str, *, reason: str, **changes: Unpack[KeyOptions]) -> KeyRule:
        """Change the cap or the rate of a key; the change overrides the code."""
        reason = self._admit(name, reason)
        if not changes or set(changes) - set(KeySettings.__slots__):
            known = ", ".join(KeySettings.__slots__)
            raise InvalidAction({"changes": f"must be one or more of {known}"})
        current = self.get(name)
        limits: dict[str, Any] = {"max_running": current.max_running, "rate": current.rate}
        settings = KeySettings(**{**limits, **changes})
        queues = self.context.app.queues
        queues.set_key(name, settings, actor=self.context.actor, reason=reason)
        return self.get(name)

    def reset(self, name: str, *, reason: str) -> bool:
        """Let a key follow the settings again. False if it has no rule."""
        reason = self._admit(name, reason)
        queues = self.context.app.queues
        return queues.reset_key(name, actor=self.context.actor, reason=reason)

    def _admit(self, name: str, reason: str) -> str:
        subject = f"key:{name}"
        return admit(self.context, Action.SET_LIMIT_KEY, reason, org_id=None, subject=subject)

    def _read(self) -> Sequence[KeyRule]:
        rows = self.context.app.queues.keys()
        return [
            KeyRule(
                row["name"],
                row["max_running"],
                None if row["rate_count"] is None else Rate(row["rate_count"], row["rate_seconds"]),
                row["set_by"],
            )
            for row in rows
        ]
