"""The review critic as an extension: what it adds, without the code that does it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.extension import Extension
from holdfast.store import Component, Statements, StateStatement
from holdfast_review.words import JOB_TYPE


class ReviewExtension(Extension):
    """Declares the review critic; :class:`Reviews` is the object that is enabled."""

    name = "review"
    component = Component("review", "holdfast_review", needs={"core": 25})
    commands = {"review": "holdfast.cli.review:review"}

    def load(self) -> Extension:
        from holdfast_review.reviews import Reviews

        return Reviews()

    def state_statements(self) -> Sequence[StateStatement]:
        sql = Statements("holdfast_review", "follow.sql")
        jobs = frozenset({JOB_TYPE})
        return (
            StateStatement(jobs, sql.follow_jobs),
            StateStatement(jobs, sql.delete_seals, frozenset({"canceled"})),
        )
