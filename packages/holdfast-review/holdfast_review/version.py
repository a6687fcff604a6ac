"""Rules for the versions of a changelist that may be reviewed. Pure."""

from __future__ import annotations

from holdfast_review.failure import InvalidReview


def check_version(version: int, *, succeeded: int | None, is_rerun: bool) -> None:
    """Raise InvalidReview unless *version*, which has no review yet, may get one.

    Any version may run until one has succeeded. After that, it must be higher than the highest
    succeeded version and requested as a rerun.
    """
    if succeeded is None:
        return
    if version <= succeeded:
        problem = f"must be higher than {succeeded}, which succeeded"
        raise InvalidReview({"review_version": problem})
    if not is_rerun:
        problem = f"version {succeeded} succeeded; pass rerun (--rerun), or use that version"
        raise InvalidReview({"rerun": problem})
