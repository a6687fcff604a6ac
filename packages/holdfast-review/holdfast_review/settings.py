"""The settings of the review critic."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from holdfast.config import BUILT_IN_QUEUES, Cadence, RunSettings
from holdfast.config.setting_type import (
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
    """Repositories, limits and model of the review critic: `[review]`."""

    repositories: tuple[str, ...] = setting((), _FOLDERS)
    """Absolute paths of folders that may contain the git repositories to review. If empty, only
    posted patches are reviewed."""
    provider: str | None = setting(None, PLAIN_NAME)
    """Provider of `[providers.NAME]` with the reviewing model. Set `provider`, `adapter_kind` and
    `model`, or none of them."""
    adapter_kind: str | None = setting(None, PLAIN_NAME)
    """Adapter for the provider's API, such as `openai_responses`."""
    model: str | None = setting(None, _MODEL)
    """Model name."""
    mode: str = setting("direct", one_of(MODES))
    """`direct` makes one call per part of a change. `batch` enqueues one batch job per part, which
    is cheaper and slower."""
    max_bytes: int = setting(4 * 1024 * 1024, whole(1_000, 50 * 1024 * 1024))
    """Maximum size of a change in bytes. Larger changes are rejected."""
    max_files: int = setting(2_000, whole(1, 10_000))
    """Maximum number of files in a change."""
    keep_days: int = setting(30, whole(1, 3650))
    """How long a fetched change is kept."""
    keep_findings_days: int = setting(365, whole(1, 3650))
    """How long findings and recipients are kept after a review has ended."""
    git_seconds: float = setting(60.0, number(1, 3_600))
    """Timeout of one git command."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        named = [self.provider, self.adapter_kind, self.model]
        if None in named and named != [None] * 3:
            refuse(
                "Invalid ReviewSettings",
                ["provider, adapter_kind and model belong together: all three or none"],
            )


def unfit_critic(review: ReviewSettings, known: Mapping[str, CommonProviderSettings]) -> list[str]:
    """Return the problems if the critic's provider is not declared or lacks a capability."""
    name = review.provider
    if name is None:
        return ["review.mode = 'batch' needs a provider"] if review.mode == "batch" else []
    if name not in known:
        there = ", ".join(sorted(known))
        return [f"review.provider = {name!r} is not declared; declared: {there}"]
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
