"""Errors of the operator API.

* HoldfastError
  x InvalidArgument
    + InvalidAction          an argument is invalid; names every bad field
  x NotFound
    + LetterNotFound         the job has no dead letter
    + NothingMatches         no item matches the filter
    + BulkActionNotFound     there is no such bulk action
    + BatchNotFound          there is no such provider batch
    + TableNotFound          the database has no table of this name
  x Conflict
    + CountChanged           more items match than the caller expects
    + KeyReused              the idempotency key was used for another request
    + StaleVersion           the item was changed since it was read
    + StepRefused            the item's state does not allow this step
      - LetterEnded          it was resolved, discarded or fixed forward
      - NeverReplayed        jobs of this type are never replayed
    + BatchRefused           the batch's state does not allow this action
    + DeliveryRefused        the delivery's state does not allow this decision
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.config.setting_type import UnfitSettings
from holdfast.errors import Conflict, InvalidArgument, NotFound


class InvalidAction(InvalidArgument):
    """An argument of an operator action is invalid; *fields* maps each to its problem. Correct it.
    Nothing was changed."""


@contextmanager
def refused_rules() -> Iterator[None]:
    """Within the block, rules that are no valid settings raise InvalidAction."""
    try:
        yield
    except UnfitSettings as exc:
        # Each problem begins with the name of its rule.
        named = [problem.partition(" ") for problem in exc.problems]
        raise InvalidAction({name: rest for name, _, rest in named}) from exc


class LetterNotFound(NotFound):
    """The job has no dead letter, or belongs to another tenant. Check the id. For a replay, look at
    the original job."""

    def __init__(self, job_id: str, replay_of: str | None = None) -> None:
        self.job_id = job_id
        hint = "List those there are: holdfast dead-letters list."
        if replay_of is not None:
            hint = f"It is a replay: look at the dead letter of {replay_of}, which it repeats."
        super().__init__(f"Job {job_id} has no dead letter. {hint}")


class NothingMatches(NotFound):
    """No open dead letter, or no held or failed delivery, matches the filter. Widen the filter."""

    def __init__(self, asked: str, what: str = "dead letter") -> None:
        super().__init__(f"No {what} fits the filter ({asked}). Nothing was done.")


class BulkActionNotFound(NotFound):
    """The bulk action does not exist, or belongs to another tenant. List the bulk actions."""

    def __init__(self, action_id: str) -> None:
        self.action_id = action_id
        super().__init__(f"There is no bulk action {action_id[:100]}.")


class CountChanged(Conflict):
    """More items match the filter than the caller expects. Look at the items again, then repeat the
    action with the new count."""

    def __init__(self, matched: int, expected: int) -> None:
        self.matched = matched
        super().__init__(
            f"The filter matches {matched} items now, not {expected}. Nothing was done."
        )


class KeyReused(Conflict):
    """The idempotency key was used for another request. Use a new key for a new request."""

    def __init__(self) -> None:
        super().__init__("The idempotency key was used for another request. Nothing was done.")


class TableNotFound(NotFound):
    """The database has no table of this name, or the login cannot see it. Check the name and the
    permissions of the login."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no table {name[:100]!r} in this database. Name it with its schema, such as"
            " public.note; nothing was granted."
        )


class StaleVersion(Conflict):
    """The item was changed since it was read. Read it again, then decide."""

    def __init__(self, job_id: str, asked: int, version: int | None = None) -> None:
        self.job_id = job_id
        found = "another one" if version is None else str(version)
        super().__init__(
            f"Dead letter {job_id} is not at version {asked}, but at {found}: it was changed in the"
            f" meantime. Look at it again: holdfast dead-letters show {job_id}."
        )


class StepRefused(Conflict):
    """The state of the dead letter does not allow this step. Take the missing step that the message
    names."""


class LetterEnded(StepRefused):
    """The dead letter was already resolved, discarded or fixed forward. Nothing."""


class NeverReplayed(StepRefused):
    """Jobs of this type are never replayed. Discard the dead letter, or fix it forward."""


class BatchNotFound(NotFound):
    """The provider batch does not exist. List the batches: `holdfast batches list --all`."""

    def __init__(self, batch_id: str) -> None:
        self.batch_id = batch_id
        super().__init__(f"Batch {batch_id} not found. List them: holdfast batches list --all.")


class BatchRefused(Conflict):
    """The state of the batch does not allow this action, or its provider does not know it. Look at
    it: `holdfast batches show BATCH_ID`."""

    def __init__(self, batch_id: str, state: str, says: str) -> None:
        self.batch_id = batch_id
        super().__init__(f"Batch {batch_id} is {state}; {says}. Nothing was done.")


class DeliveryRefused(Conflict):
    """The state of the delivery does not allow this action. Look at it: `holdfast deliveries show
    DELIVERY_ID`. Held, failed and dropped deliveries can be confirmed or resent; pending, held and
    failed ones can be dropped."""

    def __init__(self, delivery_id: str, state: str, says: str) -> None:
        self.delivery_id = delivery_id
        super().__init__(f"Delivery {delivery_id} is {state}; {says}. Nothing was done.")
