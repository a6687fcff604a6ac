"""The operator API for one actor in one role."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.arguments import anything, checked, each, flag, text, whole
from holdfast.engine.cancel import CancelAnswer
from holdfast.operate import nouns
from holdfast.operate.authorization import OperatorContext
from holdfast.operate.cancel import cancel_job
from holdfast.operate.doctor import Finding, examine
from holdfast.operate.explain import explain_job
from holdfast.operate.explanation import Explanation
from holdfast.operate.grant import Granted, grant_tables
from holdfast.operate.refusal import InvalidAction
from holdfast.operate.verify.run import SHOWN, Report, verify
from holdfast.store.grants import TENANT

if TYPE_CHECKING:
    from holdfast.operate.api_keys import ApiKeys
    from holdfast.operate.bulk_actions import BulkActions
    from holdfast.operate.changes import OperatorChanges
    from holdfast.operate.dead_letters import DeadLetters
    from holdfast.operate.deliveries import Deliveries
    from holdfast.operate.jobs import Jobs
    from holdfast.operate.limit_keys import LimitKeys
    from holdfast.operate.overview import Overview
    from holdfast.operate.queues import OperatorQueues
    from holdfast.operate.runs import OperatorRuns
    from holdfast.operate.schedules import Schedules
    from holdfast.operate.tenants import Tenants
    from holdfast.operate.workers import Workers
    from holdfast.sealed_audit.operator import SealedAudit


@checked(
    InvalidAction,
    checks={
        "canaries": each(text),
        "only": each(text),
        "privileges": each(text),
        "providers": flag,
        "shown": whole(),
        "tables": each(text),
        "to": text,
        # Checked by the method, so that a refusal is audited.
        "reason": anything,
    },
)
class Operator:
    """The operator API for the actor of *context*.

    Each noun is an attribute: ``operator.jobs``, ``operator.queues`` and so on. The nouns come from
    :mod:`holdfast.operate.nouns`, so a distribution can add its own.
    """

    if TYPE_CHECKING:
        api_keys: ApiKeys
        # Without the extension "seal" it is an AuditTrail.
        audit: SealedAudit
        bulk_actions: BulkActions
        changes: OperatorChanges
        dead_letters: DeadLetters
        deliveries: Deliveries
        jobs: Jobs
        limit_keys: LimitKeys
        overview: Overview
        queues: OperatorQueues
        runs: OperatorRuns
        schedules: Schedules
        tenants: Tenants
        workers: Workers

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def __getattr__(self, name: str) -> Any:
        noun = None if name == "context" else nouns.find(name, self.context.available_extensions)
        if noun is None:
            raise AttributeError(f"The operator API has no resource {name!r}.")
        for extension in self.context.available_extensions:
            if name in extension.nouns and name not in nouns.names(()):
                # Its tables may be missing: an embedded database creates them, others raise an
                # error.
                self.context.app.extensions.find_named(extension.name)
        found = noun(self.context)
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *nouns.names(self.context.available_extensions)})

    @property
    def has_roles(self) -> bool:
        """Whether the database has roles that can be granted tables."""
        return self.context.store.dialect.has_roles

    def explain(self, job_id: str) -> Explanation:
        """Explain why a job is in its state, and what has to happen next."""
        return explain_job(self.context, job_id)

    def cancel(self, job_id: str, *, reason: str) -> CancelAnswer:
        """Cancel a job: at once if it is waiting, at its next step if it is running."""
        return cancel_job(self.context, job_id, reason=reason)

    def verify(
        self, *, only: Collection[str] = (), shown: int = SHOWN, canaries: Sequence[str] = ()
    ) -> Report:
        """Check that every invariant holds on one snapshot of the store."""
        return verify(self.context, only=only, shown=shown, canaries=canaries)

    def grant(
        self,
        tables: Sequence[str],
        *,
        to: str = TENANT,
        privileges: Sequence[str] = (),
        dry_run: bool = False,
        reason: str = "",
    ) -> list[Granted]:
        """Let handlers use these tables of the application. SQLite has nothing to grant."""
        return grant_tables(
            self.context, tables, to=to, privileges=privileges, dry_run=dry_run, reason=reason
        )

    def doctor(self, *, providers: bool = False) -> list[Finding]:
        """Problems of the database and the workers, each with its remedy.

        With *providers*, each provider account is probed with one free request.
        """
        return examine(self.context, probes=providers)
