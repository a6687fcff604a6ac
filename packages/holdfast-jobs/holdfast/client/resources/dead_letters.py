"""Methods about dead letters. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from holdfast.client.calls.dead_letters import (
    CauseItem,
    DeadLetterDetail,
    DeadLetterItem,
    LetterFilter,
    NoteItem,
    ReplayMade,
    act_on_dead_letters,
    add_dead_letter_note,
    discard_dead_letter,
    fix_forward_dead_letter,
    get_dead_letter,
    list_dead_letter_causes,
    list_dead_letters,
    remediate_dead_letter,
    replay_dead_letter,
    resolve_dead_letter,
    triage_dead_letter,
    validate_dead_letter,
    verify_dead_letter,
)
from holdfast.client.calls.shared import BulkActionView, BulkPlan
from holdfast.client.operations import (
    NOT_GIVEN,
    AsyncCaller,
    Caller,
    NotGiven,
    Page,
)


class DeadLetters:
    """The dead letters that the key may use."""

    def __init__(self, client: Caller) -> None:
        self._call = client.call

    def act_on_all(
        self,
        *,
        reason: str,
        action: str,
        filter: LetterFilter,
        dry_run: bool | NotGiven = NOT_GIVEN,
        expected: int | NotGiven | None = NOT_GIVEN,
        tolerance: int | NotGiven = NOT_GIVEN,
        kind: str | NotGiven | None = NOT_GIVEN,
        done: Sequence[str] | NotGiven | None = NOT_GIVEN,
        evidence_ref: str | NotGiven | None = NOT_GIVEN,
        is_safe_to_repeat: bool | NotGiven = NOT_GIVEN,
        full_restart: bool | NotGiven = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> BulkPlan | BulkActionView:
        """Take one step for every dead letter that matches: a dry run, then a job."""
        return self._call(
            act_on_dead_letters(
                reason=reason,
                dry_run=dry_run,
                expected=expected,
                tolerance=tolerance,
                action=action,
                filter=filter,
                kind=kind,
                done=done,
                evidence_ref=evidence_ref,
                is_safe_to_repeat=is_safe_to_repeat,
                full_restart=full_restart,
                idempotency_key=idempotency_key,
            )
        )

    def list(
        self,
        *,
        org_id: str | None = None,
        job_type: str | None = None,
        error_class: str | None = None,
        queue: str | None = None,
        stage: str | None = None,
        kind: str | None = None,
        state: str | None = None,
        older_than_seconds: int | None = None,
        with_ended: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[DeadLetterItem]:
        """List dead letters, newest first; by default only open ones."""
        return self._call(
            list_dead_letters(
                org_id=org_id,
                job_type=job_type,
                error_class=error_class,
                queue=queue,
                stage=stage,
                kind=kind,
                state=state,
                older_than_seconds=older_than_seconds,
                with_ended=with_ended,
                limit=limit,
                cursor=cursor,
            )
        )

    def causes(self, *, org_id: str | None = None) -> tuple[CauseItem, ...]:
        """Group open dead letters by cause and state, the largest group first."""
        return self._call(list_dead_letter_causes(org_id=org_id))

    def get(self, job_id: str) -> DeadLetterDetail:
        """Return a dead letter with its records and the available actions."""
        return self._call(get_dead_letter(job_id))

    def triage(
        self, job_id: str, *, kind: str, version: int | NotGiven | None = NOT_GIVEN
    ) -> DeadLetterItem:
        """Confirm the failure and its kind."""
        return self._call(triage_dead_letter(job_id, kind=kind, version=version))

    def remediate(
        self, job_id: str, *, done: Sequence[str], version: int | NotGiven | None = NOT_GIVEN
    ) -> DeadLetterItem:
        """Confirm every point of the checklist of its kind."""
        return self._call(remediate_dead_letter(job_id, done=done, version=version))

    def validate(
        self,
        job_id: str,
        *,
        evidence_ref: str,
        is_safe_to_repeat: bool,
        version: int | NotGiven | None = NOT_GIVEN,
    ) -> DeadLetterItem:
        """Record evidence, and that repeating is safe."""
        return self._call(
            validate_dead_letter(
                job_id,
                evidence_ref=evidence_ref,
                is_safe_to_repeat=is_safe_to_repeat,
                version=version,
            )
        )

    def replay(
        self,
        job_id: str,
        *,
        reason: str,
        full_restart: bool | NotGiven = NOT_GIVEN,
        version: int | NotGiven | None = NOT_GIVEN,
    ) -> ReplayMade:
        """Enqueue a replay of a validated dead letter."""
        return self._call(
            replay_dead_letter(job_id, reason=reason, full_restart=full_restart, version=version)
        )

    def verify(self, job_id: str, *, version: int | NotGiven | None = NOT_GIVEN) -> DeadLetterItem:
        """Confirm the effects of the replay."""
        return self._call(verify_dead_letter(job_id, version=version))

    def resolve(
        self, job_id: str, *, notes: str, version: int | NotGiven | None = NOT_GIVEN
    ) -> DeadLetterItem:
        """Close a dead letter whose replay was verified."""
        return self._call(resolve_dead_letter(job_id, notes=notes, version=version))

    def discard(
        self, job_id: str, *, reason: str, version: int | NotGiven | None = NOT_GIVEN
    ) -> DeadLetterItem:
        """Give the work up."""
        return self._call(discard_dead_letter(job_id, reason=reason, version=version))

    def fix_forward(
        self,
        job_id: str,
        *,
        reason: str,
        reference: str,
        version: int | NotGiven | None = NOT_GIVEN,
    ) -> DeadLetterItem:
        """Close a dead letter because something else replaces it."""
        return self._call(
            fix_forward_dead_letter(job_id, reason=reason, reference=reference, version=version)
        )

    def add_note(self, job_id: str, body: str, *, idempotency_key: str | None = None) -> NoteItem:
        """Add a note."""
        return self._call(add_dead_letter_note(job_id, body, idempotency_key=idempotency_key))

    def every(
        self,
        *,
        org_id: str | None = None,
        job_type: str | None = None,
        error_class: str | None = None,
        queue: str | None = None,
        stage: str | None = None,
        kind: str | None = None,
        state: str | None = None,
        older_than_seconds: int | None = None,
        with_ended: bool | None = None,
        limit: int | None = None,
    ) -> Iterator[DeadLetterItem]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(
                org_id=org_id,
                job_type=job_type,
                error_class=error_class,
                queue=queue,
                stage=stage,
                kind=kind,
                state=state,
                older_than_seconds=older_than_seconds,
                with_ended=with_ended,
                limit=limit,
                cursor=cursor,
            )
            yield from page.items
            if (cursor := page.next) is None:
                return


class AsyncDeadLetters:
    """The dead letters that the key may use."""

    def __init__(self, client: AsyncCaller) -> None:
        self._call = client.call

    async def act_on_all(
        self,
        *,
        reason: str,
        action: str,
        filter: LetterFilter,
        dry_run: bool | NotGiven = NOT_GIVEN,
        expected: int | NotGiven | None = NOT_GIVEN,
        tolerance: int | NotGiven = NOT_GIVEN,
        kind: str | NotGiven | None = NOT_GIVEN,
        done: Sequence[str] | NotGiven | None = NOT_GIVEN,
        evidence_ref: str | NotGiven | None = NOT_GIVEN,
        is_safe_to_repeat: bool | NotGiven = NOT_GIVEN,
        full_restart: bool | NotGiven = NOT_GIVEN,
        idempotency_key: str | None = None,
    ) -> BulkPlan | BulkActionView:
        """Take one step for every dead letter that matches: a dry run, then a job."""
        return await self._call(
            act_on_dead_letters(
                reason=reason,
                dry_run=dry_run,
                expected=expected,
                tolerance=tolerance,
                action=action,
                filter=filter,
                kind=kind,
                done=done,
                evidence_ref=evidence_ref,
                is_safe_to_repeat=is_safe_to_repeat,
                full_restart=full_restart,
                idempotency_key=idempotency_key,
            )
        )

    async def list(
        self,
        *,
        org_id: str | None = None,
        job_type: str | None = None,
        error_class: str | None = None,
        queue: str | None = None,
        stage: str | None = None,
        kind: str | None = None,
        state: str | None = None,
        older_than_seconds: int | None = None,
        with_ended: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[DeadLetterItem]:
        """List dead letters, newest first; by default only open ones."""
        return await self._call(
            list_dead_letters(
                org_id=org_id,
                job_type=job_type,
                error_class=error_class,
                queue=queue,
                stage=stage,
                kind=kind,
                state=state,
                older_than_seconds=older_than_seconds,
                with_ended=with_ended,
                limit=limit,
                cursor=cursor,
            )
        )

    async def causes(self, *, org_id: str | None = None) -> tuple[CauseItem, ...]:
        """Group open dead letters by cause and state, the largest group first."""
        return await self._call(list_dead_letter_causes(org_id=org_id))

    async def get(self, job_id: str) -> DeadLetterDetail:
        """Return a dead letter with its records and the available actions."""
        return await self._call(get_dead_letter(job_id))

    async def triage(
        self, job_id: str, *, kind: str, version: int | NotGiven | None = NOT_GIVEN
    ) -> DeadLetterItem:
        """Confirm the failure and its kind."""
        return await self._call(triage_dead_letter(job_id, kind=kind, version=version))

    async def remediate(
        self, job_id: str, *, done: Sequence[str], version: int | NotGiven | None = NOT_GIVEN
    ) -> DeadLetterItem:
        """Confirm every point of the checklist of its kind."""
        return await self._call(remediate_dead_letter(job_id, done=done, version=version))

    async def validate(
        self,
        job_id: str,
        *,
        evidence_ref: str,
        is_safe_to_repeat: bool,
        version: int | NotGiven | None = NOT_GIVEN,
    ) -> DeadLetterItem:
        """Record evidence, and that repeating is safe."""
        return await self._call(
            validate_dead_letter(
                job_id,
                evidence_ref=evidence_ref,
                is_safe_to_repeat=is_safe_to_repeat,
                version=version,
            )
        )

    async def replay(
        self,
        job_id: str,
        *,
        reason: str,
        full_restart: bool | NotGiven = NOT_GIVEN,
        version: int | NotGiven | None = NOT_GIVEN,
    ) -> ReplayMade:
        """Enqueue a replay of a validated dead letter."""
        return await self._call(
            replay_dead_letter(job_id, reason=reason, full_restart=full_restart, version=version)
        )

    async def verify(
        self, job_id: str, *, version: int | NotGiven | None = NOT_GIVEN
    ) -> DeadLetterItem:
        """Confirm the effects of the replay."""
        return await self._call(verify_dead_letter(job_id, version=version))

    async def resolve(
        self, job_id: str, *, notes: str, version: int | NotGiven | None = NOT_GIVEN
    ) -> DeadLetterItem:
        """Close a dead letter whose replay was verified."""
        return await self._call(resolve_dead_letter(job_id, notes=notes, version=version))

    async def discard(
        self, job_id: str, *, reason: str, version: int | NotGiven | None = NOT_GIVEN
    ) -> DeadLetterItem:
        """Give the work up."""
        return await self._call(discard_dead_letter(job_id, reason=reason, version=version))

    async def fix_forward(
        self,
        job_id: str,
        *,
        reason: str,
        reference: str,
        version: int | NotGiven | None = NOT_GIVEN,
    ) -> DeadLetterItem:
        """Close a dead letter because something else replaces it."""
        return await self._call(
            fix_forward_dead_letter(job_id, reason=reason, reference=reference, version=version)
        )

    async def add_note(
        self, job_id: str, body: str, *, idempotency_key: str | None = None
    ) -> NoteItem:
        """Add a note."""
        return await self._call(add_dead_letter_note(job_id, body, idempotency_key=idempotency_key))

    async def every(
        self,
        *,
        org_id: str | None = None,
        job_type: str | None = None,
        error_class: str | None = None,
        queue: str | None = None,
        stage: str | None = None,
        kind: str | None = None,
        state: str | None = None,
        older_than_seconds: int | None = None,
        with_ended: bool | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[DeadLetterItem]:
        """All items of a listing, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(
                org_id=org_id,
                job_type=job_type,
                error_class=error_class,
                queue=queue,
                stage=stage,
                kind=kind,
                state=state,
                older_than_seconds=older_than_seconds,
                with_ended=with_ended,
                limit=limit,
                cursor=cursor,
            )
            for item in page.items:
                yield item
            if (cursor := page.next) is None:
                return
