"""Limits: weights, concurrency caps, rates and pauses of queues, tenants and keys.

The rows in the database are authoritative. Code and holdfast.toml declare them; a change by an
operator stays until it is reset. Every change raises a revision that each claim checks, so a pause
or a cap takes effect in every worker as soon as it is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypedDict

from holdfast.actor import SYSTEM, Actor
from holdfast.arguments import checked, identifier, instance
from holdfast.clock import read_instant
from holdfast.config import KeySettings, QueueSettings, Rate, Settings, TenantSettings
from holdfast.config.section import BUILT_IN_QUEUES
from holdfast.config.setting_type import (
    KEY_NAME,
    UUID,
    SettingType,
    error_message,
    is_valid,
    refuse,
)
from holdfast.engine import audit
from holdfast.engine.job import BATCH_KEY
from holdfast.errors import ConfigError, InvalidArgument, UnknownQueue
from holdfast.event import Events, QueueCrowded
from holdfast.store import Row, Statements, Store, Tx
from holdfast.store.read_limit import shared_reads

SQL = Statements("holdfast.engine", "flow.sql")
NO_KEYS: Mapping[str, KeySettings] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class QueueRule:
    """The rules of one queue."""

    name: str
    settings: QueueSettings = field(default_factory=QueueSettings)
    paused_at: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    set_by: str = "code"

    @property
    def is_limited(self) -> bool:
        own = self.settings
        return (own.max_running, own.max_running_per_tenant, own.rate) != (None, None, None)


@dataclass(frozen=True)
class Rules:
    """The rules that claims apply, as of one revision."""

    revision: int
    queues: Mapping[str, QueueRule]
    tenants: Mapping[str, TenantSettings]
    keys: Mapping[str, KeySettings]
    # Prefix and rule of names such as customer:*, the longest prefix first.
    patterns: Sequence[tuple[str, KeySettings]] = ()

    def key_settings(self, key: str) -> KeySettings | None:
        """The rule of a key: its own, or that of the longest pattern that matches it."""
        found = self.keys.get(key)
        if found is None and self.patterns and key != BATCH_KEY:
            return next((own for prefix, own in self.patterns if key.startswith(prefix)), None)
        return found

    def is_limited(self, queue: str, keys: Collection[str]) -> bool:
        """Whether a claim on *queue* under *keys* has to count running jobs."""
        return (
            self._limits_tenants
            or queue in self._limited_queues
            or any(self.key_settings(key) is not None for key in keys)
        )

    def may_free_capacity(self, queue: str) -> bool:
        """Whether the end of a job of *queue* may free capacity for another."""
        return (
            bool(self.keys or self.patterns)
            or self._limits_tenants
            or queue in self._limited_queues
        )

    @cached_property
    def _limits_tenants(self) -> bool:
        return any(tenant.max_running is not None for tenant in self.tenants.values())

    @cached_property
    def _limited_queues(self) -> frozenset[str]:
        return frozenset(name for name, rule in self.queues.items() if rule.is_limited)

    def is_paused(self, queue: str) -> bool:
        rule = self.queues.get(queue)
        return rule is not None and rule.paused_at is not None

    @property
    def weights(self) -> dict[str, int]:
        return {name: rule.settings.weight for name, rule in self.queues.items()}


def read_rules(store: Store) -> Rules:
    """Read the current rules in one statement."""
    return _rules_of(store.many(SQL.read_rules))


def read_rules_in(tx: Tx) -> Rules:
    """Read the current rules in an open transaction."""
    return _rules_of(tx.many(SQL.read_rules))


def _rules_of(rows: Sequence[Row]) -> Rules:
    revision = 0
    queues: dict[str, QueueRule] = {}
    tenants: dict[str, TenantSettings] = {}
    keys: dict[str, KeySettings] = {}
    for row in sorted(rows, key=lambda row: row["name"]):
        name = row["name"]
        match row["kind"]:
            case "revision":
                revision = row["weight"]
            case "queue":
                queues[name] = queue_rule(row)
            case "tenant":
                tenants[name] = TenantSettings(row["weight"], row["max_running"])
            case _:
                keys[name] = KeySettings(row["max_running"], _rate(row))
    patterns = [(name[:-1], keys.pop(name)) for name in [*keys] if name.endswith("*")]
    patterns.sort(key=lambda pattern: len(pattern[0]), reverse=True)
    return Rules(revision, queues, tenants, keys, tuple(patterns))


def queue_rule(row: Row) -> QueueRule:
    plain = {name: row[name] for name in QueueSettings.__slots__ if name != "rate"}
    paused_at = row["paused_at"]
    return QueueRule(
        row["name"],
        QueueSettings(rate=_rate(row), **plain),
        None if paused_at is None else read_instant(paused_at),
        row["paused_by"],
        row["pause_reason"],
        row["set_by"],
    )


def _rate(row: Row) -> Rate | None:
    return None if row["rate_count"] is None else Rate(row["rate_count"], row["rate_seconds"])


def sync_rules(
    store: Store,
    settings: Settings,
    declared: Mapping[str, QueueSettings],
    limit_keys: Mapping[str, KeySettings] = NO_KEYS,
) -> bool:
    """Store the declared rules of code and configuration; return whether anything changed."""
    queues, keys = declared_queues(settings, declared), {**limit_keys, **settings.keys}
    for name, own in keys.items():
        check_key(name, own)

    def work(tx: Tx) -> bool:
        changed = _save(tx, "code", queues, settings.tenants, keys)
        if changed:
            _acted(tx, SYSTEM, "rules", "rules.declared", changed)
        return bool(changed)

    return store.write(work)


def declared_queues(
    settings: Settings, declared: Mapping[str, QueueSettings]
) -> dict[str, QueueSettings]:
    """The effective settings of each queue. The settings file overrides the code."""
    return {**BUILT_IN_QUEUES, **declared, **settings.queues}


def _save(
    tx: Tx,
    set_by: str,
    queues: Mapping[str, QueueSettings],
    tenants: Mapping[str, TenantSettings],
    keys: Mapping[str, KeySettings],
) -> dict[str, Any]:
    """Write rules; return the changed ones in the form of the audit."""
    changed: dict[str, Any] = {}
    if queues:
        rows = [rule_row(own, name=name) for name, own in queues.items()]
        saved = tx.many(SQL.save_queues, set_by=set_by, queues=rows)
        changed["queues"] = {row["name"]: limits_of(queues[row["name"]]) for row in saved}
    if tenants:
        rows = [rule_row(own, org_id=org_id) for org_id, own in tenants.items()]
        saved = tx.many(SQL.save_tenants, set_by=set_by, tenants=rows)
        changed["tenants"] = {
            str(row["org_id"]): limits_of(tenants[str(row["org_id"])]) for row in saved
        }
    if keys:
        rows = [rule_row(own, name=name) for name, own in keys.items()]
        saved = tx.many(SQL.save_keys, set_by=set_by, keys=rows)
        changed["keys"] = {row["name"]: limits_of(keys[row["name"]]) for row in saved}
    return {what: rules for what, rules in changed.items() if rules}


def rule_row(
    settings: QueueSettings | TenantSettings | KeySettings, **names: str
) -> dict[str, Any]:
    row = {**asdict(settings), **names}
    rate = row.pop("rate", None)
    if rate is not None:
        row |= {"rate_count": rate["count"], "rate_seconds": rate["seconds"]}
    return row


class QueueOptions(TypedDict, total=False):
    """The fields of :class:`QueueSettings` as keywords."""

    weight: int
    max_running: int | None
    max_running_per_tenant: int | None
    max_depth: int | None
    max_depth_per_tenant: int | None
    rate: Rate | str | None
    small_depth: int | None


class KeyOptions(TypedDict, total=False):
    """The fields of :class:`KeySettings` as keywords."""

    max_running: int | None
    rate: Rate | str | None


def make_queue(name: str, limits: QueueOptions) -> QueueSettings:
    """The settings of a queue, from a validated declaration."""
    said: dict[str, Any] = {**limits}
    if unknown := sorted(said.keys() - set(QueueSettings.__slots__)):
        known = ", ".join(QueueSettings.__slots__)
        raise ConfigError(f"Queue {name!r} has no setting {unknown[0]!r}. Settings: {known}.")
    return QueueSettings(**said)


@checked(
    checks={
        # An undeclared name raises UnknownQueue, and a malformed id raises ConfigError.
        "name": identifier,
        "org_id": identifier,
        "set.settings": instance(QueueSettings),
        "set_key.settings": instance(KeySettings),
        "set_tenant.settings": instance(TenantSettings),
    }
)
class Queues:
    """The rules as operators read and change them.

    A reset restores the values of *settings* and *declared* at once. A queue that only other code
    declares is restored when a worker with that code starts.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        declared: Mapping[str, QueueSettings],
        limit_keys: Mapping[str, KeySettings] = NO_KEYS,
    ) -> None:
        self.store = store
        self._settings = settings
        self._keys = {**limit_keys, **settings.keys}
        self._declared = declared_queues(settings, declared)

    def rules(self) -> Rules:
        with shared_reads():
            return read_rules(self.store)

    def waiting(self) -> Sequence[Row]:
        """The depth of each queue and the age of its oldest job."""
        return self.store.many(SQL.count_waiting)

    def tenants(self) -> Sequence[Row]:
        """The rules of tenants, and who set them."""
        return self.store.many(SQL.list_tenants)

    def keys(self) -> Sequence[Row]:
        """The rules of limit keys, and who set them."""
        return self.store.many(SQL.list_keys)

    def set(self, name: str, settings: QueueSettings, *, actor: Actor, reason: str = "") -> None:
        """Set the weight and limits of a queue; this overrides the code."""

        def work(tx: Tx) -> None:
            self._known(tx, name)
            _save(tx, "operator", {name: settings}, {}, {})
            _acted(tx, actor, f"queue:{name}", "queue.set", limits_of(settings) | _why(reason))

        self.store.write(work)

    def set_tenant(
        self, org_id: str, settings: TenantSettings, *, actor: Actor, reason: str = ""
    ) -> None:
        """Set the weight or cap of a tenant; this overrides the settings."""
        org_id = _named("org_id", org_id.lower(), UUID)

        def work(tx: Tx) -> None:
            _save(tx, "operator", {}, {org_id: settings}, {})
            _acted(tx, actor, f"tenant:{org_id}", "tenant.set", limits_of(settings) | _why(reason))

        self.store.write(work)

    def set_key(self, name: str, settings: KeySettings, *, actor: Actor, reason: str = "") -> None:
        """Set the cap or rate of a limit key; this overrides the settings."""
        name = _named("key", name, KEY_NAME)
        check_key(name, settings)

        def work(tx: Tx) -> None:
            _save(tx, "operator", {}, {}, {name: settings})
            _acted(tx, actor, f"key:{name}", "key.set", limits_of(settings) | _why(reason))

        self.store.write(work)

    def reset(self, name: str, *, actor: Actor, reason: str = "") -> bool:
        """Restore the declared values of a queue. False if an operator had not changed it."""

        def work(tx: Tx) -> bool:
            self._known(tx, name)
            if not tx.affected(SQL.release_queue, name=name):
                return False
            if name in self._declared:
                _save(tx, "code", {name: self._declared[name]}, {}, {})
            _acted(tx, actor, f"queue:{name}", "queue.reset", _why(reason))
            return True

        return self.store.write(work)

    def reset_tenant(self, org_id: str, *, actor: Actor, reason: str = "") -> bool:
        """Restore the declared values of a tenant, if any. False if it had no operator's rule."""
        org_id = _named("org_id", org_id.lower(), UUID)
        declared = {name: own for name, own in self._settings.tenants.items() if name == org_id}

        def work(tx: Tx) -> bool:
            if not tx.affected(SQL.delete_tenant, org_id=org_id):
                return False
            _save(tx, "code", {}, declared, {})
            _acted(tx, actor, f"tenant:{org_id}", "tenant.reset", _why(reason))
            return True

        return self.store.write(work)

    def reset_key(self, name: str, *, actor: Actor, reason: str = "") -> bool:
        """Restore the declared values of a key, if any. False if it had no operator's rule."""
        declared = {key: own for key, own in self._keys.items() if key == name}

        def work(tx: Tx) -> bool:
            if not tx.affected(SQL.delete_key, name=name):
                return False
            _save(tx, "code", {}, {}, declared)
            _acted(tx, actor, f"key:{name}", "key.reset", _why(reason))
            return True

        return self.store.write(work)

    def pause(self, name: str, *, reason: str, actor: Actor) -> bool:
        """Stop claims from a queue; running jobs continue. False if it was already paused."""
        reason = _reason(reason)

        def work(tx: Tx) -> bool:
            self._known(tx, name)
            who = f"{actor.type}:{actor.id}"
            if not tx.affected(SQL.pause_queue, name=name, actor=who, reason=reason):
                return False
            _acted(tx, actor, f"queue:{name}", "queue.paused", {"reason": reason})
            return True

        return self.store.write(work)

    def resume(self, name: str, *, reason: str, actor: Actor) -> bool:
        """Resume claims from a queue. False if it was not paused."""
        reason = _reason(reason)

        def work(tx: Tx) -> bool:
            self._known(tx, name)
            if not tx.affected(SQL.resume_queue, name=name):
                return False
            _acted(tx, actor, f"queue:{name}", "queue.resumed", {"reason": reason})
            return True

        resumed = self.store.write(work)
        if resumed:
            self.store.announce([name])
        return resumed

    @staticmethod
    def _known(tx: Tx, name: str) -> None:
        names = [row["name"] for row in tx.many(SQL.list_queues)]
        if name not in names:
            raise UnknownQueue(name, names)


def _acted(tx: Tx, actor: Actor, subject: str, name: str, detail: Mapping[str, Any]) -> None:
    tx.affected(SQL.raise_revision)
    audit.record_action(tx, actor, subject=subject, name=name, detail=detail)


def check_key(name: str, settings: KeySettings) -> None:
    """Raise ConfigError for a rate of a pattern: its keys have no token buckets."""
    if name.endswith("*") and settings.rate is not None:
        raise ConfigError(
            f"Limit key {name!r} takes max_running and no rate: a rate needs a rule for each key."
        )


def make_key(name: str, limits: KeyOptions) -> tuple[str, KeySettings]:
    """The name and the settings of a declared key. Raises ConfigError."""
    said: dict[str, Any] = {**limits}
    if unknown := sorted(said.keys() - set(KeySettings.__slots__)):
        known = ", ".join(KeySettings.__slots__)
        raise ConfigError(f"Limit key {name!r} has no {unknown[0]!r}; it may have: {known}.")
    settings = KeySettings(**said)
    check_key(_named("key", name, KEY_NAME), settings)
    return name, settings


def _why(reason: str) -> dict[str, str]:
    """The reason for the audit, if one was given."""
    return {"reason": reason} if reason else {}


def limits_of(settings: QueueSettings | TenantSettings | KeySettings) -> dict[str, Any]:
    set_values = {name: getattr(settings, name) for name in settings.__slots__}
    return {
        name: str(value) if isinstance(value, Rate) else value
        for name, value in set_values.items()
        if value is not None
    }


def _named(what: str, name: str, kind: SettingType) -> str:
    """A name under which the stored rule can be found."""
    if not is_valid(kind, name):
        refuse("The rule was not changed", [error_message(what, name, kind)])
    return name


def _reason(text: str) -> str:
    reason = text.strip()
    if not 1 <= len(reason) <= 500 or not reason.isprintable():
        raise InvalidArgument(
            {"reason": "must be 1 to 500 printable characters; it is recorded in the audit"}
        )
    return reason


def emit_crowded(store: Store, events: Events, *, found: bool = True) -> int:
    """Report once each queue that is deeper than its small_depth, until it has been small again.

    Without *found*, the caller knows that there is none.
    """
    rows = store.many(SQL.find_crowded) if found else []
    crowded = {row["name"]: QueueCrowded(row["name"], row["small_depth"]) for row in rows}
    events.emit_begun("crowded", crowded)
    return len(crowded)
