"""The time of the next attempt in a server's answer."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.outbound.retry_after import retry_after

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "30"}, 30.0),
        ({"retry-after": " 0 "}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "3600"}, 3600.0),
        ({"retry-after": "999999999"}, 86_400.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "60"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "60"}, 60.0),
        ({"retry-after": "Mon, 05 Jan 2026 09:01:00 GMT"}, 60.0),
        ({"retry-after": "Mon, 05 Jan 2026 08:00:00 GMT"}, 0.0),
        ({"retry-after": "Fri, 05 Jan 2029 08:00:00 GMT"}, 86_400.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Mon, 99 Jan 2026 09:01:00 GMT"}, None),
        ({"retry-after": "٣"}, None),
    ],
)
def test_the_wait_is_read_in_every_form_and_nonsense_is_ignored(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(headers, NOW) == seconds


def test_a_date_counts_from_the_clock_that_wrote_it() -> None:
    headers = {
        "date": "Mon, 05 Jan 2026 12:00:00 GMT",
        "retry-after": "Mon, 05 Jan 2026 12:00:20 GMT",
    }

    assert retry_after(headers, NOW) == 20.0
