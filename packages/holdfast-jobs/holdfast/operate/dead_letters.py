"""Dead letters: list them, and take them through the workflow one step at a time.

triage → remediate → validate → replay → verify → resolve; or discard, or fix forward. Each step
requires the previous one, has its own transaction and increments the version of the item. The
database enforces the same rules. Refusals are audited.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.arguments import (
    anything,
    checked,
    each,
    flag,
    having,
    instance,
    string,
    text,
    whole,
)
from holdfast.document import encode
from holdfast.engine import audit
from holdfast.engine.handler import Handler
from holdfast.errors import Conflict, NotFound
from holdfast.operate import bulk
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.bulk_steps import Decision
from holdfast.operate.dead_letter import DeadLetter, DeadLetterKind, DeadLetterState, Note, Replay
from holdfast.operate.dead_letter_causes import Cause, list_causes
from holdfast.operate.dead_letter_input import (
    LONGEST_NOTE,
    LONGEST_REASON,
    LONGEST_REFERENCE,
    DeadLetterFilter,
    place_of,
    read_checklist,
    read_kind,
    read_place,
    read_texts,
)
from holdfast.operate.dead_letter_plan import RecoveryPlan, plan_of, why_not, why_not_from
from holdfast.operate.locate import locate_job
from holdfast.operate.page import Page, check_limit
from holdfast.operate.refusal import InvalidAction, LetterNotFound, StaleVersion, StepRefused
from holdfast.operate.replay import SQL, Replays, make_replays, step_of
from holdfast.operate.short_ids import JOBS
from holdfast.store import Tx

T = TypeVar("T")


class DeadLetterPage(Page[DeadLetter]):
    """One page of dead letters."""

    __slots__ = ()

    @property
    def letters(self) -> tuple[DeadLetter, ...]:
        return self.items


@dataclass(frozen=True, slots=True)
class DeadLetterView:
    """A dead letter with its related records and the available actions."""

    letter: DeadLetter
    replays: tuple[Replay, ...]
    notes: tuple[Note, ...]
    plan: RecoveryPlan


@dataclass(frozen=True, slots=True)
class ReplayMade:
    """The result of a replay request."""

    letter: DeadLetter
    number: int
    replay_job_id: str
    stage: str


@checked(
    InvalidAction,
    checks={
        "before": text,
        "confirm": whole(),
        "is_safe_to_repeat": flag,
        # Checked by the method, so that the refusal of a limit is audited.
        **dict.fromkeys(
            ("recover.limit", "replay_all.limit", "discard_all.limit"), whole(-(2**31))
        ),
        "on_progress": having("__call__"),
        "recover.done": each(string),
        "version": whole(1),
        "wanted": instance(DeadLetterFilter),
        # Checked by the method, so that the refusal of a text is audited.
        **dict.fromkeys(
            ("body", "done", "evidence_ref", "kind", "notes", "reason", "reference", "steps"),
            anything,
        ),
    },
)
class DeadLetters:
    """The dead letters that *context* may see, and the actions on them."""

    id_space = JOBS

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    # -- reading

    def list(
        self,
        wanted: DeadLetterFilter | None = None,
        *,
        with_ended: bool = False,
        limit: int = 50,
        before: str | None = None,
    ) -> DeadLetterPage:
        """List dead letters that match, newest first; by default only open ones."""
        wanted = (wanted or DeadLetterFilter()).check()
        check_limit(limit)
        org_id = self.context.org_id or wanted.org_id
        self.context.check(Action.LOOK, org_id=org_id, subject="dead_letters")
        if wanted.org_id not in (None, org_id):
            return DeadLetterPage((), None)
        place = read_place(before)
        params = wanted.params(org_id) | place | {"limit": limit, "with_ended": int(with_ended)}
        rows = self.context.store.read(lambda tx: tx.many(SQL.list_letters, **params))
        following = place_of(rows[-1]) if len(rows) == limit else None
        return DeadLetterPage(tuple(DeadLetter.from_row(row) for row in rows), following)

    def show(self, job_id: str) -> DeadLetterView:
        """Return one dead letter with its replays, its notes and its next steps."""
        org_id, job_id = locate_job(self.context, Action.LOOK, job_id)

        def look(tx: Tx) -> DeadLetterView:
            letter, key = _find(tx, org_id, job_id), {"org_id": org_id, "job_id": job_id}
            return DeadLetterView(
                letter,
                tuple(Replay.from_row(row) for row in tx.many(SQL.list_replays, **key)),
                tuple(Note.from_row(row) for row in tx.many(SQL.list_notes, **key)),
                plan_of(letter, self._handler_of(letter)),
            )

        return self.context.store.read(look)

    # -- the workflow

    def triage(
        self, job_id: str, *, kind: DeadLetterKind | str, version: int | None = None
    ) -> DeadLetter:
        """Confirm the failed stage, and classify the failure.

        A second triage starts over: later confirmations are discarded.
        """

        def change(letter: DeadLetter) -> _Change:
            found = read_kind(kind)
            step = step_of(
                letter,
                DeadLetterState.TRIAGED,
                to_kind=found,
                list=None,
                evidence=None,
                is_safe=None,
            )
            confirmed = {
                "kind": found,
                "error_class": letter.error_class,
                "stage": letter.stage,
                "attempts": letter.attempts,
                "max_attempts": letter.max_attempts,
            }
            return _Change("dead_letter.triaged", step, confirmed)

        return self._step(Action.TRIAGE, job_id, version, change)

    def remediate(
        self, job_id: str, *, done: Collection[str], version: int | None = None
    ) -> DeadLetter:
        """Confirm every point of the checklist for this kind of failure."""

        def change(letter: DeadLetter) -> _Change:
            assert letter.kind is not None
            ticked = read_checklist(letter.kind, done)
            step = step_of(letter, DeadLetterState.REMEDIATED, list=encode(ticked))
            return _Change("dead_letter.remediated", step, {"done": sorted(ticked)})

        return self._step(Action.REMEDIATE, job_id, version, change)

    def validate(
        self,
        job_id: str,
        *,
        evidence_ref: str,
        is_safe_to_repeat: bool,
        version: int | None = None,
    ) -> DeadLetter:
        """Record the evidence, and confirm that a replay is safe."""

        def change(letter: DeadLetter) -> _Change:
            (evidence,) = read_texts(evidence_ref=(evidence_ref, LONGEST_REFERENCE))
            if is_safe_to_repeat is not True:
                raise InvalidAction(
                    {
                        "is_safe_to_repeat": "confirm that the replay is idempotent or safe for"
                        " duplicate effects; if it is not, discard the item or fix it forward"
                    }
                )
            step = step_of(letter, DeadLetterState.VALIDATED, evidence=evidence, is_safe=True)
            detail = {"evidence_ref": evidence, "is_safe_to_repeat": True}
            return _Change("dead_letter.validated", step, detail)

        return self._step(Action.VALIDATE, job_id, version, change)

    def replay(
        self,
        job_id: str,
        *,
        reason: str,
        full_restart: bool = False,
        version: int | None = None,
    ) -> ReplayMade:
        """Replay the job from the failed stage, or with *full_restart* from the first."""
        # Taken before the transaction: a retried transaction inserts the same job.
        ids = self.context.ids.take(1)

        def work(tx: Tx, letter: DeadLetter) -> tuple[Replays, DeadLetter]:
            (why,) = read_texts(reason=(reason, LONGEST_REASON))
            problem = why_not_from(
                letter.standing, self._handler_of(letter), full_restart=full_restart
            )
            if problem is not None:
                raise StepRefused(f"Dead letter {letter.job_id} cannot be replayed: {problem}.")
            replays = make_replays(
                tx, self.context, [letter], ids=ids, reason=why, full_restart=full_restart
            )
            if not replays.made:
                raise StaleVersion(letter.job_id, letter.version)
            return replays, _find(tx, letter.org_id, letter.job_id)

        replays, letter = self._act(Action.REPLAY, job_id, version, work)
        replays.announce(self.context)
        (made,) = replays.made
        return ReplayMade(letter, made["number"], made["replay_job_id"], made["stage"])

    def verify_replay(self, job_id: str, *, version: int | None = None) -> DeadLetter:
        """Confirm that the replay and its deliveries completed."""

        def work(tx: Tx, letter: DeadLetter) -> DeadLetter:
            key = {"org_id": letter.org_id, "job_id": letter.job_id}
            last = [Replay.from_row(row) for row in tx.many(SQL.list_replays, **key)][-1]
            downstream = downstream_of(tx, letter, last.replay_job_id)
            waiting = [state for state in downstream if state != "sent"]
            if last.outcome != "completed" or waiting:
                raise StepRefused(
                    f"Replay {last.number} of dead letter {letter.job_id} cannot be verified: it"
                    f" is {last.outcome}, and {len(waiting)} of its deliveries are not finished."
                )
            detail = {"replay": last.number, "replay_job_id": last.replay_job_id}
            detail["deliveries"] = len(downstream)
            step = step_of(letter, DeadLetterState.REPLAYED, verifies=1)
            return self._write(tx, letter, _Change("dead_letter.verified", step, detail))

        return self._act(Action.VERIFY_REPLAY, job_id, version, work)

    def resolve(self, job_id: str, *, notes: str, version: int | None = None) -> DeadLetter:
        """Close a dead letter whose replay was verified, with closing notes."""

        def change(letter: DeadLetter) -> _Change:
            (words,) = read_texts(notes=(notes, LONGEST_NOTE))
            step = step_of(letter, DeadLetterState.RESOLVED, last_words=words)
            return _Change("dead_letter.resolved", step, {"notes": words[:200]})

        return self._step(Action.RESOLVE, job_id, version, change)

    def discard(self, job_id: str, *, reason: str, version: int | None = None) -> DeadLetter:
        """Discard a dead letter."""

        def change(letter: DeadLetter) -> _Change:
            (why,) = read_texts(reason=(reason, LONGEST_REASON))
            step = step_of(letter, DeadLetterState.DISCARDED, last_words=why)
            return _Change("dead_letter.discarded", step, {"reason": why[:200]})

        return self._step(Action.DISCARD, job_id, version, change)

    def fix_forward(
        self, job_id: str, *, reason: str, reference: str, version: int | None = None
    ) -> DeadLetter:
        """Close a dead letter that something else replaces; *reference* names it."""

        def change(letter: DeadLetter) -> _Change:
            why, by = read_texts(
                reason=(reason, LONGEST_REASON), reference=(reference, LONGEST_REFERENCE)
            )
            step = step_of(letter, DeadLetterState.FIXED_FORWARD, last_words=why, fixed_with=by)
            detail = {"reason": why[:200], "reference": by}
            return _Change("dead_letter.fixed_forward", step, detail)

        return self._step(Action.FIX_FORWARD, job_id, version, change)

    def add_note(self, job_id: str, body: str) -> Note:
        """Add a note to a dead letter, also to an ended one."""
        note_id = self.context.ids.new()

        def work(tx: Tx, letter: DeadLetter) -> Note:
            (text,) = read_texts(body=(body, LONGEST_NOTE))
            actor = self.context.actor
            key = {"org_id": letter.org_id, "job_id": letter.job_id}
            tx.affected(
                SQL.insert_note,
                **key,
                id=note_id,
                body=text,
                actor_type=actor.type.value,
                actor_id=actor.id,
            )
            told = {"note_id": note_id, "role": self.context.role}
            audit.record(tx, actor, [_entry(letter, "dead_letter.noted", told)])
            notes = [Note.from_row(row) for row in tx.many(SQL.list_notes, **key)]
            return next(note for note in notes if note.id == note_id)

        return self._act(Action.NOTE, job_id, None, work)

    def causes(self, wanted: DeadLetterFilter | None = None) -> Sequence[Cause]:
        """Open dead letters that match, grouped by cause and state, the largest group first."""
        return list_causes(self.context, wanted or DeadLetterFilter())

    # -- bulk actions

    def recover(
        self,
        wanted: DeadLetterFilter,
        *,
        reason: str,
        steps: Sequence[str] | None = None,
        kind: DeadLetterKind | str | None = None,
        done: Collection[str] | None = None,
        evidence_ref: str | None = None,
        full_restart: bool = False,
        is_dry_run: bool = False,
        everything: bool = False,
        confirm: int | None = None,
        limit: int = bulk.LIMIT,
        on_progress: bulk.Progress | None = None,
    ) -> bulk.BulkAnswer:
        """Take all dead letters that match as far through the workflow as their state allows.

        Open ones are triaged, remediated, validated and replayed; those whose replay completed are
        verified and resolved. The call confirms the checklist of each kind, and that repeating the
        jobs is safe. Without *kind* it takes transient failures only. *steps* limits it to some
        steps, *done* to some points of the checklist. *reason* is recorded with every step.
        *on_progress* is called after each page with the numbers of items done and ready.
        """
        try:
            taken = bulk.read_steps(steps)
        except InvalidAction as error:
            org_id = self.context.org_id
            self.context.refuse(Action.REPLAY, error, org_id=org_id, subject=bulk.SUBJECT)
        confirmed = None if done is None else frozenset(done)
        decision = Decision(reason, kind, confirmed, evidence_ref, full_restart)  # type: ignore[arg-type]
        ask = bulk.BulkRequest(
            wanted, decision, is_dry_run, everything, confirm, limit, on_progress
        )
        return bulk.perform(self.context, "recover" if steps is None else taken[0], taken, ask)

    def replay_all(
        self,
        wanted: DeadLetterFilter,
        *,
        reason: str,
        full_restart: bool = False,
        is_dry_run: bool = False,
        everything: bool = False,
        confirm: int | None = None,
        limit: int = bulk.LIMIT,
    ) -> bulk.BulkAnswer:
        """Replay all validated dead letters that match; report why others were skipped."""
        decision = Decision(reason, full_restart=full_restart)
        ask = bulk.BulkRequest(wanted, decision, is_dry_run, everything, confirm, limit)
        return bulk.perform(self.context, Action.REPLAY, (Action.REPLAY,), ask)

    def discard_all(
        self,
        wanted: DeadLetterFilter,
        *,
        reason: str,
        is_dry_run: bool = False,
        everything: bool = False,
        confirm: int | None = None,
        limit: int = bulk.LIMIT,
    ) -> bulk.BulkAnswer:
        """Discard all dead letters that match, unless a replay is in progress."""
        ask = bulk.BulkRequest(wanted, Decision(reason), is_dry_run, everything, confirm, limit)
        return bulk.perform(self.context, Action.DISCARD, (Action.DISCARD,), ask)

    # -- steps

    def _step(
        self,
        action: Action,
        job_id: str,
        version: int | None,
        change: Callable[[DeadLetter], _Change],
    ) -> DeadLetter:
        return self._act(
            action, job_id, version, lambda tx, letter: self._write(tx, letter, change(letter))
        )

    def _act(
        self,
        action: Action,
        job_id: str,
        version: int | None,
        work: Callable[[Tx, DeadLetter], T],
    ) -> T:
        """Run *work* on an item in the state that *action* requires; audit refusals."""
        org_id, job_id = locate_job(self.context, action, job_id)

        def guarded(tx: Tx) -> T:
            letter = _find(tx, org_id, job_id)
            if version is not None and version != letter.version:
                raise StaleVersion(job_id, version, letter.version)
            refusal = None if action is Action.NOTE else why_not(action, letter)
            if refusal is not None:
                raise refusal
            return work(tx, letter)

        try:
            return self.context.store.write(guarded)
        except (Conflict, NotFound, InvalidAction) as error:
            self.context.refuse(action, error, org_id=org_id, subject=f"job:{job_id}")

    def _write(self, tx: Tx, letter: DeadLetter, change: _Change) -> DeadLetter:
        if not tx.many(SQL.step_letters, steps=[change.step]):
            raise StaleVersion(letter.job_id, letter.version)
        told = {**change.detail, "role": self.context.role}
        audit.record(tx, self.context.actor, [_entry(letter, change.event, told)])
        return _find(tx, letter.org_id, letter.job_id)

    def _handler_of(self, letter: DeadLetter) -> Handler | None:
        return self.context.registry.handlers.get(letter.job_type)


@dataclass(frozen=True, slots=True)
class _Change:
    """One step: the row to write, and its audit detail."""

    event: str
    step: dict[str, Any]
    detail: dict[str, Any]


def downstream_of(tx: Tx, letter: DeadLetter, replay_job_id: str) -> list[str]:
    """Return the states of the required deliveries of a job, or of its replay."""
    jobs = [{"job_id": job_id} for job_id in (letter.job_id, replay_job_id)]
    rows = tx.many(SQL.list_downstream, org_id=letter.org_id, jobs=jobs)
    return [row["state"] for row in rows]


def _find(tx: Tx, org_id: str, job_id: str) -> DeadLetter:
    row = tx.maybe(SQL.find_letter, org_id=org_id, job_id=job_id)
    if row is None:
        job = tx.maybe(audit.JOB_SQL.find_job, org_id=org_id, id=job_id)
        raise LetterNotFound(job_id, None if job is None else job["replay_of"])
    return DeadLetter.from_row(row)


def _entry(letter: DeadLetter, name: str, detail: Mapping[str, Any]) -> audit.Entry:
    return audit.Entry(letter.org_id, letter.job_id, name, letter.attempts, detail)
