"""The desk of an operator: every action there is, for one person in one role."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from holdfast.arguments import anything, checked, each, instance, text, whole
from holdfast.engine.cancel import CancelAnswer
from holdfast.operate.audit_trail import AuditTrail
from holdfast.operate.batches import Batches
from holdfast.operate.cancel import cancel_job
from holdfast.operate.dead_letter import DeadLetters
from holdfast.operate.deliveries import Deliveries
from holdfast.operate.doctor import Finding, examine
from holdfast.operate.explain import explain_job
from holdfast.operate.explanation import Explanation
from holdfast.operate.grant import Granted, grant_tables
from holdfast.operate.refusal import InvalidAction
from holdfast.operate.verify.run import SHOWN, Report, verify
from holdfast.operate.watch import Watch
from holdfast.store.grants import TENANT
from holdfast_llm.batch.lane import BatchLane


@checked(
    InvalidAction,
    checks={
        "canaries": each(text),
        "lane": instance(BatchLane),
        "only": each(text),
        "privileges": each(text),
        "shown": whole(),
        "tables": each(text),
        "to": text,
        # Asked for in words, and refused on record.
        "reason": anything,
    },
)
@dataclass(frozen=True, slots=True)
class Desk:
    """What *watch* can see and do."""

    watch: Watch

    @property
    def dead_letters(self) -> DeadLetters:
        """Jobs that died: look at them, mend what was wrong, run them again or let them go."""
        return DeadLetters(self.watch)

    @property
    def audit(self) -> AuditTrail:
        """What happened and who caused it, and the proof that nobody changed it since."""
        return AuditTrail(self.watch)

    @property
    def deliveries(self) -> Deliveries:
        """What people and programs are told: look at it, confirm, resend or drop it."""
        return Deliveries(self.watch)

    def batches(self, lane: BatchLane) -> Batches:
        """Provider batches of an application's *lane*: look at them, cancel, adopt, release."""
        return Batches(self.watch, lane)

    def explain(self, job_id: str) -> Explanation:
        """Say why a job is where it is, and what has to happen next."""
        return explain_job(self.watch, job_id)

    def cancel(self, job_id: str, *, reason: str) -> CancelAnswer:
        """Stop a job: at once if it waits, at its next step if it runs."""
        return cancel_job(self.watch, job_id, reason=reason)

    def verify(
        self, *, only: Collection[str] = (), shown: int = SHOWN, canaries: Sequence[str] = ()
    ) -> Report:
        """Check that every invariant holds on this store, at one moment."""
        return verify(self.watch, only=only, shown=shown, canaries=canaries)

    def grant(
        self,
        tables: Sequence[str],
        *,
        to: str = TENANT,
        privileges: Sequence[str] = (),
        dry_run: bool = False,
    ) -> list[Granted]:
        """Let handlers use these tables of the application. On SQLite there is nothing to grant."""
        return grant_tables(self.watch, tables, to=to, privileges=privileges, dry_run=dry_run)

    def doctor(self, *, lane: BatchLane | None = None) -> list[Finding]:
        """Say what about the database and the workers asks for a remedy, and which.

        With *lane*, each of its accounts at providers is asked one free question too.
        """
        return examine(self.watch, accounts=None if lane is None else lane.accounts)
