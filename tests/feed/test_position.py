"""Positions of the change feed."""

from __future__ import annotations

import pytest

from holdfast import InvalidArgument
from holdfast.feed.position import MOST_RANGES, Position, read_position


@pytest.mark.parametrize("text", ["0", "105", "105~103", "105~90-99.103"])
def test_a_position_survives_its_text(text: str) -> None:
    assert str(read_position(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "-1", "x", "5~", "5~9", "5~0", "5~3-2", "9~4.3", "9~3-5.5", "1" * 20, "5~1.", "٣", "5\n"],
)
def test_a_forged_position_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        read_position(text)


def test_reading_past_absent_ids_keeps_them_and_reading_them_removes_them() -> None:
    position = Position(100).after(105, [(102, 104)])

    assert str(position) == "105~102-104"
    assert [one for one in range(100, 107) if not position.has_read(one)] == [102, 103, 104, 106]
    assert str(position.after(103)) == "105~102.104"


def test_a_position_with_too_many_ranges_is_written_as_an_earlier_one() -> None:
    crowded = Position(1_000, tuple((2 * n, 2 * n) for n in range(1, MOST_RANGES + 20)))
    written = read_position(str(crowded))

    unread = [one for one in range(1, 1_001) if not crowded.has_read(one)]
    assert len(written.missing) == MOST_RANGES
    assert not any(written.has_read(one) for one in unread)
