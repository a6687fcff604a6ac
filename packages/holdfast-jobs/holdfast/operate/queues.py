"""Queues: list them, change their rules, pause and resume them.

A queue serves every tenant, so a context of one tenant is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Unpack, cast

from holdfast.arguments import anything, checked, flag, identifier, instance, text
from holdfast.clock import read_instant
from holdfast.config import QueueSettings
from holdfast.engine.limits import QueueOptions, QueueRule, make_queue
from holdfast.errors import UnknownQueue
from holdfast.operate.admit import admit
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.page import Page, check_limit, page_of, read_filter
from holdfast.operate.refusal import InvalidAction, refused_rules
from holdfast.store import Row

# Its jobs are listed as dead letters.
_HIDDEN = "q:deadletter"


@dataclass(frozen=True, slots=True)
class QueueFilter:
    """Which queues to list; a field that is None matches every queue."""

    is_paused: bool | None = None

    def check(self) -> QueueFilter:
        """Return the validated filter; raises InvalidAction."""
        return read_filter(self, {"is_paused": flag})


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue with its rules and how many jobs wait in it."""

    name: str
    settings: QueueSettings
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    set_by: str
    waiting: int
    deferred: int
    tenants: int
    oldest_at: datetime | None

    @classmethod
    def from_rule(cls, rule: QueueRule, waiting: Row | None) -> QueueView:
        return cls(
            rule.name,
            rule.settings,
            rule.paused_at,
            rule.paused_by,
            rule.pause_reason,
            rule.set_by,
            waiting["jobs"] if waiting else 0,
            waiting["deferred"] if waiting else 0,
            waiting["tenants"] if waiting else 0,
            read_instant(waiting["oldest_at"]) if waiting else None,
        )


@checked(
    InvalidAction,
    checks={
        "after": text,
        # An unknown name raises UnknownQueue.
        "name": identifier,
        "wanted": instance(QueueFilter),
        # Checked by the method, so that a refusal is audited.
        "reason": anything,
    },
)
class OperatorQueues:
    """The queues of an application."""

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def list(
        self, wanted: QueueFilter | None = None, *, limit: int = 50, after: str = ""
    ) -> Page[QueueView]:
        """Queues with their rules and depth, in order of names."""
        self.context.check(Action.LOOK, org_id=None, subject="queues")
        wanted = (wanted or QueueFilter()).check()
        found = [
            queue
            for name, queue in sorted(self._read().items())
            if name > after
            and name != _HIDDEN
            and wanted.is_paused in (None, queue.paused_at is not None)
        ]
        return page_of(found[: check_limit(limit) + 1], limit, lambda queue: queue.name)

    def get(self, name: str) -> QueueView:
        """One queue. Raises UnknownQueue."""
        self.context.check(Action.LOOK, org_id=None, subject=f"queue:{name}")
        known = self.context.app.queues.rules().queues
        if name not in known:
            raise UnknownQueue(name, known)
        return self._read()[name]

    def set(self, name: str, *, reason: str, **changes: Unpack[QueueOptions]) -> QueueView:
        """Change some rules of a queue; the others stay. The change overrides the code."""
        reason = self._admit(Action.SET_QUEUE, name, reason)
        queues = self.context.app.queues
        if not changes:
            raise InvalidAction({"changes": "must name at least one rule of the queue"})
        known = queues.rules().queues
        if name not in known:
            raise UnknownQueue(name, known)
        current = {
            item.name: getattr(known[name].settings, item.name) for item in fields(QueueSettings)
        }
        with refused_rules():
            settings = make_queue(name, cast(QueueOptions, {**current, **changes}))
        queues.set(name, settings, actor=self.context.actor, reason=reason)
        return self._read()[name]

    def reset(self, name: str, *, reason: str) -> bool:
        """Let a queue follow the code and the settings again. False if it already does."""
        reason = self._admit(Action.SET_QUEUE, name, reason)
        return self.context.app.queues.reset(name, actor=self.context.actor, reason=reason)

    def pause(self, name: str, *, reason: str) -> bool:
        """Claim no more jobs from a queue; running jobs finish. False if it is paused already."""
        reason = self._admit(Action.PAUSE_QUEUE, name, reason)
        return self.context.app.queues.pause(name, reason=reason, actor=self.context.actor)

    def resume(self, name: str, *, reason: str) -> bool:
        """Claim from a queue again. False if it is not paused."""
        reason = self._admit(Action.PAUSE_QUEUE, name, reason)
        return self.context.app.queues.resume(name, reason=reason, actor=self.context.actor)

    def _admit(self, action: Action, name: str, reason: str) -> str:
        return admit(self.context, action, reason, org_id=None, subject=f"queue:{name}")

    def _read(self) -> dict[str, QueueView]:
        queues = self.context.app.queues
        rules, waiting = queues.rules().queues, {row["queue"]: row for row in queues.waiting()}
        return {
            name: QueueView.from_rule(rules.get(name, QueueRule(name)), waiting.get(name))
            for name in {*rules, *waiting}
        }
