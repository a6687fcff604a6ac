"""What may go wrong with a review, as its callers and its operators meet it.

* HoldfastError
  x InvalidReview            what was asked is no review, or its version may not run; names why
  x NotFound
    + ReviewNotFound         there is no such review, or it is another tenant's
  x Permanent
    + ReviewUnfit            the job and its review do not belong together
    + ReviewErased           the review was erased while its job was under way
    + ReviewOvertaken        a higher version was told first
    + PartsFailed            a part of the change could not be criticised in the batch lane
    + RecipientUnreachable   somebody who must be told cannot be
"""

from __future__ import annotations

from holdfast.errors import InvalidArgument, NotFound, Permanent


class InvalidReview(InvalidArgument):
    """What was asked is no review, or its version may not run; *fields* says what is wrong.

    The values themselves are never repeated.
    """


class ReviewNotFound(NotFound):
    """There is no such review, or it is another tenant's."""

    def __init__(self, what: str) -> None:
        super().__init__(f"Review {what[:200]!r} not found. Check the id and the tenant.")


class ReviewUnfit(Permanent):
    """The job names no review of its own, so there is nothing that it may do."""

    error_class = "REVIEW_UNFIT"
    pages_operator = True


class ReviewErased(Permanent):
    """The review was erased, so it is not gone on with. Discard the dead letter."""

    error_class = "REVIEW_ERASED"


class ReviewOvertaken(Permanent):
    """A higher version was told first, so nobody is told of this one. Discard the dead letter."""

    error_class = "REVIEW_OVERTAKEN"


class PartsFailed(Permanent):
    """Parts of the change could not be criticised; the context names the job of the first one."""

    error_class = "REVIEW_PARTS_FAILED"


class RecipientUnreachable(Permanent):
    """Somebody who must be told of the review cannot be; the others were served."""

    error_class = "RECIPIENT_UNREACHABLE"
