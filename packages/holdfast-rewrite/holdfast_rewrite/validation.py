"""Validate submissions. Malformed ones raise an error; those that may not be rewritten get a code.

Pure. Codes are for operators; the sender only learns that the request failed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from holdfast.engine import validation
from holdfast_rewrite.directory import Household, Member
from holdfast_rewrite.enums import (
    LONGEST_MESSAGE,
    FailureCode,
    HomeRole,
    Status,
    Surface,
)
from holdfast_rewrite.failure import InvalidRewrite

# A composed character has at most four code points.
_MOST_COMPOSED = 4
# The frontend's name for the mood of a message: one word, not a text.
_EMOTION = re.compile(r"[a-z][a-z_]{0,39}")
# Characters in a letter category that are invisible or symbols: Hangul fillers, the "info" sign.
_NO_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2139")


@dataclass(frozen=True, slots=True)
class Submission:
    """A message from one member of a home to another.

    *feedback_cycle_start* is the Monday of the week that it counts for, by default this week's.
    """

    home_id: str
    sender_user_id: str
    recipient_user_id: str
    sender_message: str = field(repr=False)
    surface: Surface | str
    feedback_cycle_start: date | str | None = None
    emotion_context: str | None = field(default=None, repr=False)
    request_id: str | None = None
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a submission: the ids of the request and its job, and whether it failed.

    A queued request without a job is continued by the next run.
    """

    rewrite_request_id: str
    job_id: str | None
    status: Status


@dataclass(frozen=True, slots=True)
class Given:
    """A validated submission; the surface is None if the word is unknown."""

    home_id: str
    sender_user_id: str
    recipient_user_id: str
    sender_message: str = field(repr=False)
    surface: Surface | None
    iso_week_year: int
    iso_week: int
    emotion_context: str | None = field(repr=False)
    request_id: str | None
    correlation_id: str | None


def read_submission(submission: Submission, *, now: datetime, place: str = "") -> Given:
    """Validate all fields of a submission. Raises InvalidRewrite with every invalid one."""
    errors: dict[str, str] = {}
    ids = [
        validation.uuid(name, getattr(submission, name), errors)
        for name in ("home_id", "sender_user_id", "recipient_user_id")
    ]
    _check_text("sender_message", submission.sender_message, errors)
    if not isinstance(submission.surface, str):
        errors["surface"] = "must be text"
    emotion = submission.emotion_context
    if emotion is not None and not (isinstance(emotion, str) and _EMOTION.fullmatch(emotion)):
        errors["emotion_context"] = "must be one word of a-z and _, at most 40 characters"
    year, week = _read_week(submission.feedback_cycle_start, now, errors)
    request_id = validation.text("request_id", submission.request_id, errors)
    correlation_id = validation.text("correlation_id", submission.correlation_id, errors)
    if errors:
        raise InvalidRewrite({f"{place}{name}": problem for name, problem in errors.items()})
    home_id, sender_user_id, recipient_user_id = ids
    return Given(
        home_id,
        sender_user_id,
        recipient_user_id,
        submission.sender_message,
        _read_surface(submission.surface),
        year,
        week,
        emotion,
        request_id,
        correlation_id,
    )


def refusal_of(
    submission: Given, household: Household | None, surfaces: Collection[str]
) -> FailureCode | None:
    """Return why this may not be rewritten; None if it may. No household: the directory failed."""
    if submission.surface is None or submission.surface not in surfaces:
        return FailureCode.SURFACE_NOT_ALLOWED
    if submission.sender_user_id == submission.recipient_user_id:
        return FailureCode.SELF_RECIPIENT
    if not has_words(submission.sender_message):
        return FailureCode.EMPTY_MESSAGE
    if is_too_long(submission.sender_message):
        return FailureCode.MESSAGE_TOO_LONG
    if household is None:
        return FailureCode.DIRECTORY_FAILED
    for member in (household.sender, household.recipient):
        if member is None or not member.is_present:
            return FailureCode.NOT_IN_HOME
    if household.is_blocked:
        return FailureCode.BLOCKED
    return None


def has_words(text: str) -> bool:
    """Return whether the text has a letter, not only emoji, digits or invisible characters."""
    return any(
        unicodedata.category(character)[0] == "L" and character not in _NO_LETTERS
        for character in text
    )


def is_too_long(text: str) -> bool:
    """Return whether the text exceeds the maximum length, however it is composed."""
    # Normalization can be slow on hostile input; a text this long is too long in any form.
    if len(text) > LONGEST_MESSAGE * _MOST_COMPOSED:
        return True
    return len(unicodedata.normalize("NFC", text)) > LONGEST_MESSAGE


def is_sound(household: object) -> bool:
    """Return whether an application's directory answered with valid types."""
    if not isinstance(household, Household):
        return False
    members = [household.sender, household.recipient]
    answers = household.answers
    return (
        all(member is None or _is_member(member) for member in members)
        and isinstance(answers, Mapping)
        and all(_is_storable(part) for answer in answers.items() for part in answer)
        and type(household.is_blocked) is bool
    )


def _is_member(member: object) -> bool:
    return (
        isinstance(member, Member)
        and member.role in tuple(HomeRole)
        and (member.locale is None or _is_storable(member.locale))
        and type(member.is_present) is bool
    )


def _is_storable(text: object) -> bool:
    """Return whether all databases can store the text; if not, the whole group would fail."""
    errors: dict[str, str] = {}
    _check_text("", text, errors)
    return not errors


def _check_text(name: str, text: object, errors: dict[str, str]) -> None:
    if not isinstance(text, str):
        errors[name] = "must be text"
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        errors[name] = "must not contain lone surrogates"
    if "\0" in text:
        errors[name] = "must not contain NUL"


def _read_surface(word: str) -> Surface | None:
    try:
        return Surface.read(word)
    except ValueError:
        return None


def _read_week(start: object, now: datetime, errors: dict[str, str]) -> tuple[int, int]:
    """Return the ISO week that a message counts in.

    A sender has one full reframe a week, so only the current week is allowed, or the last one for
    late feedback.
    """
    today = now.astimezone(UTC).date()
    monday = today - timedelta(days=today.weekday())
    found = monday
    if start is not None:
        found = _read_date(start) or date.min
        if found not in (monday, monday - timedelta(days=7)):
            errors["feedback_cycle_start"] = (
                "must be the Monday of this week or of the last, in UTC"
            )
    year, week, _ = found.isocalendar()
    return year, week


def _read_date(value: object) -> date | None:
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            return None
    return value if isinstance(value, date) and not isinstance(value, datetime) else None
