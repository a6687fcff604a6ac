"""When a failed attempt is retried."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import RetryPolicy
from holdfast.engine.category import CATEGORIES, GENERAL
from holdfast.engine.handler import Registry
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.retry import (
    CRITIC,
    RETRY_AFTER_CEILING,
    STAGE_ATTEMPTS,
    parse_retry_after,
)

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


class Highest(random.Random):
    """A random source that always gives the upper bound."""

    def uniform(self, a: float, b: float) -> float:
        return b


class Lowest(random.Random):
    """A random source that always gives the lower bound."""

    def uniform(self, a: float, b: float) -> float:
        return a


def longest_waits(policy: RetryPolicy, attempts: int) -> list[float]:
    return [policy.delay(n, Highest()).total_seconds() for n in range(1, attempts + 1)]


@pytest.mark.req("R-22")
def test_the_critic_waits_at_most_one_two_four_seconds_and_never_over_a_minute() -> None:
    assert longest_waits(CRITIC, 9) == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.req("R-27")
def test_a_general_job_has_five_attempts_from_five_seconds_up_to_five_minutes() -> None:
    assert GENERAL.max_attempts == 5
    assert longest_waits(GENERAL.retry, 8) == [5, 10, 20, 40, 80, 160, 300, 300]


@pytest.mark.parametrize(
    ("name", "attempts", "longest_minutes"),
    [
        pytest.param("notification", 10, 30, marks=pytest.mark.req("R-28")),
        pytest.param("planning", 3, 2, marks=pytest.mark.req("R-29")),
        pytest.param("export", 5, 10, marks=pytest.mark.req("R-30")),
    ],
)
def test_a_category_may_override_attempts_and_longest_delay(
    name: str, attempts: int, longest_minutes: int
) -> None:
    category = CATEGORIES[name]

    assert category.max_attempts == attempts
    assert longest_waits(category.retry, 30)[0] == 5
    assert longest_waits(category.retry, 30)[-1] == longest_minutes * 60


@pytest.mark.req("I-08")
@pytest.mark.parametrize(
    ("name", "days"),
    [
        ("notification", 7),
        ("planning", 30),
        ("export", 30),
        ("import", 30),
        ("maintenance", 7),
        ("general", 30),
        ("audit_enrichment", 30),
    ],
)
def test_a_key_lasts_as_long_as_its_category_says(name: str, days: int) -> None:
    assert CATEGORIES[name].key_ttl == timedelta(days=days)


@pytest.mark.req("S-03")
def test_a_stage_has_five_attempts_by_default() -> None:
    assert STAGE_ATTEMPTS == 5


@pytest.mark.req("R-23")
@given(attempt=st.integers(1, 500), seed=st.integers(), multiplier=st.floats(1.0, 4.0))
def test_full_jitter_stays_between_zero_and_the_capped_growth(
    attempt: int, seed: int, multiplier: float
) -> None:
    policy = RetryPolicy(
        first=timedelta(seconds=1), multiplier=multiplier, longest=timedelta(seconds=60)
    )

    delay = policy.delay(attempt, random.Random(seed)).total_seconds()

    assert 0 <= delay <= min(60, multiplier ** min(attempt - 1, 64)) + 1e-6


@pytest.mark.req("R-23")
def test_full_jitter_uses_the_whole_span_from_zero() -> None:
    rng = random.Random(1)

    delays = [CRITIC.delay(7, rng).total_seconds() for _ in range(2000)]

    assert min(delays) < 1
    assert max(delays) > 59
    assert 28 < sum(delays) / len(delays) < 32


@pytest.mark.req("R-24")
def test_each_delay_is_drawn_again() -> None:
    rng = random.Random(1)

    assert len({CRITIC.delay(3, rng) for _ in range(50)}) == 50


@pytest.mark.req("R-25")
@pytest.mark.parametrize(
    ("retry_after", "expected"),
    [(None, 8), (3, 8), (8, 8), (45, 45), (299, 299), (300, 300), (3600, 300), (0, 8)],
)
def test_retry_after_lengthens_the_wait_up_to_five_minutes(
    retry_after: int | None, expected: int
) -> None:
    asked = None if retry_after is None else timedelta(seconds=retry_after)

    assert CRITIC.delay(4, Highest(), asked) == timedelta(seconds=expected)


@pytest.mark.req("R-25")
@given(
    attempt=st.integers(1, 20),
    seed=st.integers(),
    retry_after=st.timedeltas(timedelta(0), timedelta(days=2)),
    name=st.sampled_from(sorted(CATEGORIES)),
)
def test_the_ceiling_on_retry_after_never_shortens_our_own_delay(
    attempt: int, seed: int, retry_after: timedelta, name: str
) -> None:
    policy = CATEGORIES[name].retry

    calculated = policy.delay(attempt, random.Random(seed))
    effective = policy.delay(attempt, random.Random(seed), retry_after)

    assert effective == max(calculated, min(retry_after, RETRY_AFTER_CEILING))


def test_a_list_policy_takes_entry_after_entry_and_then_the_last_again() -> None:
    policy = RetryPolicy(steps=(timedelta(minutes=15), timedelta(hours=2)))

    waits = [policy.delay(n, random.Random(n)) for n in (1, 2, 3, 40)]

    assert waits == [timedelta(minutes=15), *[timedelta(hours=2)] * 3]


def test_a_very_long_history_does_not_overflow() -> None:
    assert CRITIC.delay(10**9, Highest()) == timedelta(seconds=60)


@pytest.mark.req("R-03")
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        (" 7 ", 7),
        ("Mon, 05 Jan 2026 09:02:00 GMT", 120),
        ("Mon, 05 Jan 2026 08:00:00 GMT", 0),
        ("Mon, 05 Jan 2026 09:02:00", 120),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("9" * 400, None),
        ("٣", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_nonsense_is_ignored(
    header: str | None, seconds: int | None
) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)

    assert parse_retry_after(header, NOW) == expected


@given(st.text(max_size=80))
def test_no_header_at_all_can_break_the_reading(header: str) -> None:
    found = parse_retry_after(header, NOW)

    assert found is None or found >= timedelta(0)


@pytest.mark.req("Q-16", "Q-17", "Q-18", "Q-19")
def test_every_category_has_its_queue() -> None:
    assert {name: category.queue for name, category in CATEGORIES.items()} == {
        "general": "q:default",
        "audit_enrichment": "q:default",
        "notification": "q:notifications",
        "planning": "q:planning",
        "export": "q:exports",
        "import": "q:exports",
        "maintenance": "q:maintenance",
    }


@pytest.mark.req("K-08")
def test_a_pipeline_stage_has_the_defaults_of_the_critic() -> None:
    registry = Registry()
    Pipeline(registry, "review.make", (), "general", {}).stage("fetch")(lambda job, payload: None)
    stage = registry.get("review.make").first

    assert (stage.max_attempts, stage.retry) == (5, CRITIC)
    assert (CRITIC.first, CRITIC.multiplier) == (timedelta(seconds=1), 2.0)
    assert (CRITIC.longest, CRITIC.steps) == (timedelta(seconds=60), ())
    assert CRITIC.delay(7, Highest(), timedelta(hours=1)) == timedelta(minutes=5)
    assert CRITIC.delay(7, Lowest()) == timedelta(0), "full jitter begins at nothing"
