"""The section of holdfast.toml about the review critic: what it may read, and who is asked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from holdfast.config import BUILT_IN_QUEUES, Cadence, RunSettings
from holdfast.config.kind import (
    PLAIN_NAME,
    Section,
    number,
    one_of,
    refuse,
    setting,
    text,
    texts,
    whole,
)
from holdfast_llm.settings import CommonProviderSettings

MODES = ("direct", "batch")
_MODEL = text("a model's name", re.compile(r"[^\s*]{1,200}"))
_FOLDERS = texts(
    "a list of folders by their whole paths", lambda v: os.path.isabs(v) and "\0" not in v
)


@dataclass(frozen=True, slots=True)
class ReviewSettings(Section):
    """The review critic: which repositories may be read, how much, and which model judges.

    Without *repositories* only posted patches are reviewed.
    """

    repositories: tuple[str, ...] = setting((), _FOLDERS)
    provider: str | None = setting(None, PLAIN_NAME)
    adapter_kind: str | None = setting(None, PLAIN_NAME)
    model: str | None = setting(None, _MODEL)
    # A call for each part within the stage, or a job of the batch lane for each.
    mode: str = setting("direct", one_of(MODES))
    max_bytes: int = setting(4 * 1024 * 1024, whole(1_000, 50 * 1024 * 1024))
    max_files: int = setting(2_000, whole(1, 10_000))
    # The change, and what its parts were answered, until they are put together.
    keep_days: int = setting(30, whole(1, 3650))
    # What was found, and who was told, once a review has ended.
    keep_findings_days: int = setting(365, whole(1, 3650))
    git_seconds: float = setting(60.0, number(1, 3_600))

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        named = [self.provider, self.adapter_kind, self.model]
        if None in named and named != [None] * 3:
            refuse(
                "ReviewSettings cannot be used",
                ["provider, adapter_kind and model belong together: all three or none"],
            )


def unfit_critic(review: ReviewSettings, known: Mapping[str, CommonProviderSettings]) -> list[str]:
    """What is wrong if nobody declares the critic's provider, or it cannot do what is wanted."""
    name = review.provider
    if name is None:
        return ["review.mode = 'batch' needs a provider"] if review.mode == "batch" else []
    if name not in known:
        there = ", ".join(sorted(known))
        return [f"review.provider = {name!r} is not declared; there is: {there}"]
    if review.mode == "batch" and known[name].supports_batches is False:
        return [f"review.provider = {name!r} takes no batches; use mode = 'direct'"]
    return []


REVIEW_RUNS: Mapping[str, RunSettings] = {
    "review_retention": RunSettings(
        queues=tuple(BUILT_IN_QUEUES),
        max_jobs_per_run=10_000,
        schedule=Cadence(every=timedelta(hours=1)),
    ),
}
