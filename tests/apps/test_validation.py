"""The gate: what is no submission, and what may not be rewritten."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from holdfast_rewrite.directory import Household, Member
from holdfast_rewrite.enums import FailureCode, HomeRole, Surface
from holdfast_rewrite.failure import InvalidRewrite
from holdfast_rewrite.validation import (
    Given,
    has_words,
    is_sound,
    is_too_long,
    read_submission,
    refusal_of,
)
from tests.apps.household import RECIPIENT, SENDER, submission

NOW = datetime(2026, 1, 7, 12, 0, tzinfo=UTC)
SURFACES = tuple(Surface)
AT_HOME = Household(
    Member(SENDER, HomeRole.OWNER, "en"), Member(RECIPIENT, HomeRole.HOUSEMATE, None), {}
)


def given(message: str = "Please wash up.", **changes: Any) -> Given:
    return read_submission(submission(message, **changes), now=NOW)


def refusal(**changes: Any) -> FailureCode | None:
    return refusal_of(given(**changes), AT_HOME, SURFACES)


# -- what is no submission


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"home_id": "nowhere"}, "home_id"),
        ({"home_id": None}, "home_id"),
        ({"sender_user_id": "{0198c0de-0000-7000-8000-000000000051}"}, "sender_user_id"),
        ({"recipient_user_id": 7}, "recipient_user_id"),
        ({"message": None}, "sender_message"),
        ({"message": b"text"}, "sender_message"),
        ({"message": "a\0b"}, "sender_message"),
        ({"message": "a\ud800b"}, "sender_message"),
        ({"surface": None}, "surface"),
        ({"emotion_context": "I am so angry"}, "emotion_context"),
        ({"emotion_context": 3}, "emotion_context"),
        ({"request_id": ""}, "request_id"),
        ({"correlation_id": "x" * 201}, "correlation_id"),
        ({"feedback_cycle_start": "soon"}, "feedback_cycle_start"),
        ({"feedback_cycle_start": NOW}, "feedback_cycle_start"),
    ],
)
def test_what_is_no_submission_is_refused_by_its_field_and_never_quoted(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRewrite) as refused:
        given(**changes)

    assert list(refused.value.fields) == [field]
    for value in changes.values():
        assert not isinstance(value, str) or len(value) < 2 or value not in str(refused.value)


def test_every_bad_field_is_named_at_once() -> None:
    with pytest.raises(InvalidRewrite) as refused:
        read_submission(submission("a\0", home_id="x"), now=NOW, place="submissions[3].")

    assert set(refused.value.fields) == {"submissions[3].home_id", "submissions[3].sender_message"}


def test_an_id_has_one_form() -> None:
    assert given(sender_user_id=SENDER.upper()).sender_user_id == SENDER


def test_neither_a_submission_nor_what_is_read_of_it_shows_its_words() -> None:
    asked = submission("You are a slob", emotion_context="rainy")
    shown = repr(asked) + repr(read_submission(asked, now=NOW))

    assert "slob" not in shown
    assert "rainy" not in shown


# -- the week


def test_a_message_counts_in_the_iso_week_of_its_moment_in_utc() -> None:
    sunday = datetime(2026, 1, 4, 23, 59, 59, tzinfo=UTC)
    monday = datetime(2026, 1, 5, tzinfo=UTC)
    weeks = [
        (found.iso_week_year, found.iso_week)
        for now in (sunday, monday, datetime(2027, 1, 3, tzinfo=UTC))
        for found in [read_submission(submission(), now=now)]
    ]

    assert weeks == [(2026, 1), (2026, 2), (2026, 53)]


def test_feedback_may_count_for_this_week_or_the_last_and_for_no_other() -> None:
    assert given(feedback_cycle_start="2026-01-05").iso_week == 2
    assert given(feedback_cycle_start=date(2025, 12, 29)).iso_week == 1
    for other in ("2026-01-06", "2026-01-12", "2025-12-22", "0001-01-01"):
        with pytest.raises(InvalidRewrite):
            given(feedback_cycle_start=other)


# -- what may not be rewritten


def test_a_sound_message_between_two_of_a_home_may_pass() -> None:
    assert refusal() is None


def test_both_names_of_the_weekly_surface_are_one() -> None:
    assert given(surface="weekly_feedback").surface is Surface.WEEKLY_HARMONY
    assert given(surface="weekly_harmony").surface is Surface.WEEKLY_HARMONY


def test_a_surface_that_is_unknown_or_not_allowed_is_refused() -> None:
    assert refusal(surface="billboard") is FailureCode.SURFACE_NOT_ALLOWED
    direct = given(surface="direct_message")
    weekly_only = ("weekly_harmony",)
    assert refusal_of(direct, AT_HOME, weekly_only) is FailureCode.SURFACE_NOT_ALLOWED
    assert refusal_of(given(), AT_HOME, weekly_only) is None


def test_a_message_to_oneself_is_refused() -> None:
    assert refusal(recipient_user_id=SENDER.upper()) is FailureCode.SELF_RECIPIENT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n\t",
        "🙄😡🔥",
        "👨\u200d👩\u200d👧",
        "1\ufe0f\u20e32\ufe0f\u20e3",
        "\u2139\ufe0f",
        "\u200b\u200d\ufeff\u2060",
        "\u3164\u115f",
        "…!?",
        "\u202e\u202d",
        "🇩🇪",
        "12:30",
    ],
)
def test_a_message_without_a_letter_says_nothing(text: str) -> None:
    assert refusal(message=text) is FailureCode.EMPTY_MESSAGE


@pytest.mark.parametrize("text", ["ок", "静かに", "קח", "🙄 no", "\u200bstop\u200b", "é", "ﬁ"])
def test_a_letter_of_any_script_says_something(text: str) -> None:
    assert has_words(text)


def test_1500_characters_pass_and_one_more_does_not_however_they_are_composed() -> None:
    assert not is_too_long("x" * 1500)
    assert is_too_long("x" * 1501)
    assert not is_too_long("e\u0301" * 1500)
    assert is_too_long("e\u0301" * 1501)
    assert not is_too_long("\u03b1\u0313\u0300\u0345" * 1500)
    assert is_too_long("😀" * 1501)
    assert refusal(message="x" * 1501) is FailureCode.MESSAGE_TOO_LONG


def test_a_text_made_to_be_slow_is_too_long_at_once() -> None:
    assert is_too_long("a" + "\u0301\u0316" * 5_000_000)


@pytest.mark.parametrize(
    ("household", "code"),
    [
        (replace(AT_HOME, sender=None), FailureCode.NOT_IN_HOME),
        (replace(AT_HOME, recipient=None), FailureCode.NOT_IN_HOME),
        (
            replace(AT_HOME, recipient=Member(RECIPIENT, HomeRole.OWNER, None, is_present=False)),
            FailureCode.NOT_IN_HOME,
        ),
        (replace(AT_HOME, is_blocked=True), FailureCode.BLOCKED),
        (None, FailureCode.DIRECTORY_FAILED),
    ],
)
def test_both_must_live_there_unblocked(household: Household | None, code: FailureCode) -> None:
    assert refusal_of(given(), household, SURFACES) is code


# -- a directory that is somebody else's


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {"sender": None},
        replace(AT_HOME, sender="Ann"),
        replace(AT_HOME, sender=Member(SENDER, "boss", None)),  # type: ignore[arg-type]
        replace(AT_HOME, sender=Member(SENDER, HomeRole.OWNER, 7)),  # type: ignore[arg-type]
        replace(AT_HOME, recipient=Member(RECIPIENT, HomeRole.OWNER, None, is_present=None)),  # type: ignore[arg-type]
        replace(AT_HOME, answers=None),
        replace(AT_HOME, answers={"a": 1}),
        replace(AT_HOME, is_blocked="yes"),
    ],
)
def test_an_answer_of_another_type_counts_as_none(answer: Any) -> None:
    assert not is_sound(answer)
    assert is_sound(AT_HOME)
