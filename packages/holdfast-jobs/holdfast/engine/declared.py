"""Stores the declarations of code and holdfast.toml before the first job.

The stored rows apply to every process and to the SQL function ``holdfast.enqueue``. A worker stores
all declarations when it starts. A process that only enqueues stores its own before its first
enqueue, so that a limit applies before any worker runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast.actor import SYSTEM
from holdfast.arguments import each, name, number, read_options, text, whole
from holdfast.config import QueueSettings, Settings
from holdfast.engine import audit
from holdfast.engine.handler import Registry
from holdfast.engine.limits import limits_of, queue_rule, rule_row
from holdfast.engine.request import JobRequest
from holdfast.engine.worker.worker import Worker
from holdfast.errors import InvalidArgument
from holdfast.ids import MalformedId, has_names, name_of, read_named_id
from holdfast.store import Row, Statements, Store
from holdfast.store.caller_connection import Steps, run

SQL = Statements("holdfast.engine", "job_type.sql")
FLOW = Statements("holdfast.engine", "flow.sql")


def own_queues(settings: Settings, registry: Registry) -> dict[str, QueueSettings]:
    """The queues that this application declares; the settings file overrides the code.

    Built-in queues are left out, so a process that does not mention q:default does not change it.
    """
    return {**registry.queues, **settings.queues}


def job_type_rules(registry: Registry) -> list[dict[str, Any]]:
    """The rules of job types that apply to every process."""
    return [
        {
            "job_type": handler.job_type,
            "producer": None if handler.producer is None else handler.producer.call,
            "cancel_role": handler.cancel_role,
            "replay_refusal": handler.replay_refusal,
        }
        for handler in registry
        if (handler.producer, handler.cancel_role, handler.replay_refusal) != (None, None, None)
    ]


def sync_declared(store: Store, settings: Settings, registry: Registry) -> bool:
    """Store declarations that are missing in the store; return whether there were any.

    If the store has all of them, this is one read. Without declarations it does nothing.
    """
    if not is_missing(store, settings, registry):
        return False
    store.write(lambda tx: run(tx, declare_steps(settings, registry)))
    return True


@dataclass(slots=True)
class Declarations:
    """The declarations of one application, and what was last stored of them."""

    registry: Registry
    # The stored version: the store, the registry's revision and the settings.
    _written: tuple[Store | None, int, Settings] | None = None
    # The names of tenants and projects that jobs were enqueued for and that may not be stored yet.
    _names: dict[str, str] = field(default_factory=dict)
    _named: tuple[Store | None, set[str]] = (None, set())

    def note_names(self, requests: Iterable[JobRequest]) -> None:
        """Note the ids of requests that were given as names, so that these are stored with them."""
        if not has_names():
            return
        for one in [item for given in requests for item in (given.org_id, given.project_id)]:
            with suppress(MalformedId):
                found = read_named_id(one)
                if (name := name_of(found)) is not None and found not in self._named[1]:
                    self._names[found] = name

    def _is_written(self, store: Store | None, settings: Settings) -> bool:
        done = self._written
        return (
            done is not None
            and done[0] is store
            and done[1] == self.registry.revision
            and done[2] is settings
        )

    def sync(self, store: Store, settings: Settings) -> None:
        """Store the declarations, once per change."""
        if not self._is_written(store, settings):
            sync_declared(store, settings, self.registry)
            self._written = (store, self.registry.revision, settings)
        if self._names:
            names = dict(self._names)
            store.write(lambda tx: tx.affected(SQL.save_names, names=_rows(names)))
            known = self._named[1] if self._named[0] is store else set()
            self._named = (store, known | set(names))
            for one in names:
                self._names.pop(one, None)

    def borrowed_steps(self, store: Store | None, settings: Settings) -> Steps[None]:
        """Store them on a caller's connection, where that is the only one that can write.

        An embedded database has one writer at a time, which may be the caller; *store* is None if
        it is not open. The caller may also roll back, so the next enqueue checks again.
        """
        is_embedded = store is None or store.is_embedded
        if is_embedded and self._names:
            yield SQL.save_names, {"names": _rows(self._names)}
        if not is_embedded or self._is_written(store, settings):
            return
        if (yield from _missing_steps(settings, self.registry)):
            yield from declare_steps(settings, self.registry)
        else:
            self._written = (store, self.registry.revision, settings)


def _rows(names: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"id": one, "name": name} for one, name in sorted(names.items())]


def is_missing(store: Store, settings: Settings, registry: Registry) -> bool:
    """Whether the store lacks a declaration."""
    if not own_queues(settings, registry) and not job_type_rules(registry):
        return False
    return store.read(lambda tx: run(tx, _missing_steps(settings, registry)))


def _missing_steps(settings: Settings, registry: Registry) -> Steps[bool]:
    queues, rules = own_queues(settings, registry), job_type_rules(registry)
    stored = {row["name"]: row for row in (yield FLOW.list_queues, {})} if queues else {}
    known = {row["job_type"]: row for row in (yield SQL.list_job_types, {})} if rules else {}
    return any(_differs(own, stored.get(name)) for name, own in queues.items()) or any(
        _adds(rule, known.get(rule["job_type"])) for rule in rules
    )


def declare_steps(settings: Settings, registry: Registry) -> Steps[None]:
    """The statements that store the declarations, for any connection."""
    queues, rules = own_queues(settings, registry), job_type_rules(registry)
    changed: dict[str, Any] = {}
    if queues:
        rows = [rule_row(own, name=name) for name, own in queues.items()]
        saved = yield FLOW.save_queues, {"set_by": "code", "queues": rows}
        if saved:
            changed["queues"] = {row["name"]: limits_of(queues[row["name"]]) for row in saved}
            yield FLOW.raise_revision, {}
    if rules:
        saved = yield SQL.save_job_types, {"rules": rules}
        if saved:
            changed["job_types"] = sorted(row["job_type"] for row in saved)
    if changed:
        deed = audit.Deed(SYSTEM, audit.PLATFORM_ORG, "rules", "rules.declared", changed)
        yield audit.actions_step([deed])


def _differs(own: QueueSettings, row: Row | None) -> bool:
    if row is None:
        return True
    # An operator's change stays until it is reset.
    return bool(row["set_by"] == "code") and queue_rule(row).settings != own


def _adds(rule: Mapping[str, Any], known: Row | None) -> bool:
    return any(
        rule[name] is not None and (known is None or known[name] != rule[name])
        for name in ("producer", "cancel_role", "replay_refusal")
    )


_WORKER_CHECKS = {
    "async_concurrency": whole(1, 10_000),
    "concurrency": whole(1, 1_000),
    "drain_seconds": number(0, 86_400),
    "max_jobs": whole(1),
    "max_memory_bytes": whole(1, 2**50),
    "queues": each(text),
    "worker_id": name,
}


def worker_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate the options of a worker. Raises InvalidArgument."""
    known = inspect.signature(Worker).parameters
    if unknown := sorted(set(options) - set(known)):
        raise InvalidArgument(dict.fromkeys(unknown, "is not an option of a worker"))
    needed = set(_WORKER_CHECKS) - {"worker_id", "max_jobs", "max_memory_bytes"}
    if missing := sorted(item for item in needed & set(options) if options[item] is None):
        raise InvalidArgument(dict.fromkeys(missing, "must not be None; leave it out"))
    return read_options(options, _WORKER_CHECKS)
