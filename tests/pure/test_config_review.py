"""The settings of the review critic: sources, models and retention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import ConfigError, Settings
from holdfast.config import load
from holdfast.config.show import show
from holdfast_review.settings import ReviewSettings

SECTION = """
[review]
repositories = ["/srv/git", "/home/ann/git"]
provider = "openai"
adapter_kind = "openai_responses"
model = "large"
mode = "batch"
keep_findings_days = 90
"""


def test_without_a_section_only_posted_patches_are_reviewed_and_no_model_is_asked() -> None:
    said = Settings().review

    assert (said.repositories, said.provider, said.mode) == ((), None, "direct")


def test_the_section_says_all_of_it_and_a_variable_goes_before(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(SECTION)
    env = {
        "HOLDFAST_REVIEW_MODEL": "larger",
        "HOLDFAST_REVIEW_REPOSITORIES": "/srv/other,/srv/more",
    }

    said = Settings.load(env=env, file=file).review

    assert said.repositories == ("/srv/other", "/srv/more")
    assert (said.model, said.mode, said.keep_findings_days) == ("larger", "batch", 90)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"repositories": ("git",)}, "by their whole paths"),
        ({"provider": "openai"}, "belong together"),
        ({"model": "large"}, "belong together"),
        ({"mode": "now"}, "mode"),
        ({"max_bytes": 51 * 1024 * 1024}, "max_bytes"),
        ({"keep_findings_days": 0}, "keep_findings_days"),
        ({"git_seconds": 0}, "git_seconds"),
    ],
)
def test_what_cannot_hold_is_refused_when_it_is_read(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ReviewSettings(**given)


def test_an_undeclared_provider_is_refused() -> None:
    critic = ReviewSettings(provider="nobody", adapter_kind="openai_chat", model="m")

    with pytest.raises(ConfigError, match="'nobody' is not declared"):
        Settings(review=critic)


def test_the_section_is_shown_as_it_is_in_force(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(SECTION)

    shown = {item.key: item.value for item in show(load(env={}, file=file))}

    assert shown["review.keep_findings_days"] == 90
    assert shown["review.keep_days"] == 30
