"""The review critic as an extension: declares its parts without importing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.config import Settings
from holdfast.extension import Extension
from holdfast.store import Component, Statements, StateStatement
from holdfast_review.enums import JOB_TYPE
from holdfast_review.settings import REVIEW_RUNS, ReviewSettings, unfit_critic

if TYPE_CHECKING:
    from holdfast.operate.verify.check import Check


class ReviewExtension(Extension):
    """Declares the review critic; :class:`Reviews` is the object that applications enable."""

    name = "review"
    component = Component(
        "review", "holdfast_review", needs={"core": 19, "artifacts": 1, "batch": 4}
    )
    requires = ("artifacts", "batch")
    settings = {"review": ReviewSettings}
    runs = REVIEW_RUNS
    command_group = "Applications"
    commands = {"review": "holdfast_review.cli:review"}
    console = "holdfast_review.console:PAGES"

    api = "holdfast_review.api:router"

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

    def check_settings(self, settings: Settings) -> Sequence[str]:
        return unfit_critic(settings.review, settings.providers)

    def provider_accounts(self, settings: Settings) -> set[tuple[str, str]]:
        named = (settings.review.provider, settings.review.adapter_kind)
        return set() if None in named else {named}

    def verify_checks(self) -> Sequence[Check]:
        from holdfast_review.verify import CHECKS

        return CHECKS
