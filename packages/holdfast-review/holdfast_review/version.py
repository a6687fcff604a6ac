"""Which versions of a changelist may be reviewed. Pure."""

from __future__ import annotations

from holdfast_review.failure import InvalidReview


def check_version(version: int, *, succeeded: int | None, is_rerun: bool) -> None:
    """Raise InvalidReview unless *version*, which has no review yet, may get one.

    Until some version has succeeded, each may. Then it takes a higher one than the highest that
    succeeded, and somebody who says that a rerun is meant.
    """
    if succeeded is None:
        return
    if version <= succeeded:
        problem = f"must be higher than {succeeded}, which succeeded"
        raise InvalidReview({"review_version": problem})
    if not is_rerun:
        problem = f"version {succeeded} succeeded; say that a rerun is meant, or use that one"
        raise InvalidReview({"rerun": problem})
