"""Errors and failures of reviews.

* HoldfastError
  x InvalidReview            the request is invalid, or its version may not run; names why
  x NotFound
    + ReviewNotFound         the review does not exist or belongs to another tenant
  x Permanent
    + ReviewUnfit            the job and its review do not match
    + ReviewErased           the review was erased while its job was running
    + ReviewOvertaken        a higher version notified its recipients first
    + PartsFailed            batch processing failed for a part of the change
    + RecipientUnreachable   a required recipient cannot be reached
"""

from __future__ import annotations

from holdfast.errors import InvalidArgument, NotFound, Permanent


class InvalidReview(InvalidArgument):
    """A review request is invalid, or its version may not run; *fields* says why.

    The values are never repeated.

    Correct it, or request a rerun. Nothing was written.
    """


class ReviewNotFound(NotFound):
    """The review does not exist, or belongs to another tenant. Check the id, the changelist and the
    tenant."""

    def __init__(self, what: str) -> None:
        super().__init__(f"Review {what[:200]!r} not found. Check the id and the tenant.")


class ReviewUnfit(Permanent):
    """The job was not created by submitting a review.

    Fault: the writer: the job was created by hand. Remedy: submit the review; discard the dead
    letter.
    """

    error_class = "REVIEW_UNFIT"
    pages_operator = True


class ReviewErased(Permanent):
    """The review was erased, so its job stops. Discard the dead letter.

    Fault: none: the review was erased on request. Remedy: discard the dead letter.
    """

    error_class = "REVIEW_ERASED"


class ReviewOvertaken(Permanent):
    """A higher version notified its recipients first. Discard the dead letter.

    Fault: none: a newer version exists. Remedy: discard the dead letter.
    """

    error_class = "REVIEW_OVERTAKEN"


class PartsFailed(Permanent):
    """Parts of the change could not be reviewed; the context names the first failed job.

    Fault: the part; `part_error` says why. Remedy: handle the dead letter of the part, then replay
    this one.
    """

    error_class = "REVIEW_PARTS_FAILED"


class RecipientUnreachable(Permanent):
    """A required recipient cannot be reached; the others were notified.

    Fault: the recipient or the channel. Remedy: correct the address or the channel, then `holdfast
    deliveries resend`. Or submit a higher version with other recipients.
    """

    error_class = "RECIPIENT_UNREACHABLE"
