"""Ids: UUIDv7 from an injected clock and random source, in order within one source."""

from __future__ import annotations

import random
import threading
import uuid

import pytest

from holdfast import FakeClock
from holdfast.ids import IdSource, read_uuid


def test_an_id_is_a_version_7_uuid_that_carries_the_time() -> None:
    clock = FakeClock()

    made = uuid.UUID(IdSource(clock, random.Random(1)).new())

    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == int(clock.now().timestamp() * 1000)


def test_ids_of_one_source_are_in_order_within_and_across_ticks() -> None:
    clock = FakeClock()
    source = IdSource(clock, random.Random(1))

    made = source.take(1_000)
    clock.advance(milliseconds=1)
    made += source.take(1_000)

    assert made == sorted(set(made))


def test_ids_stay_in_order_when_the_clock_goes_back() -> None:
    class Wavering(FakeClock):
        def back(self) -> None:
            self._now -= (self._now - self._began) * 2

    clock = Wavering()
    clock.advance(seconds=5)
    source = IdSource(clock, random.Random(1))
    before = source.take(10)
    clock.back()
    after = source.take(10)

    assert before + after == sorted(before + after)


def test_a_full_counter_continues_in_the_next_millisecond() -> None:
    class Full(random.Random):
        def getrandbits(self, bits: int) -> int:
            return (1 << bits) - 1

    source = IdSource(FakeClock(), Full())
    source._low = (1 << 74) - 2
    source._last_ms = int(FakeClock().now().timestamp() * 1000)

    made = source.take(100)

    assert made == sorted(set(made))
    assert all(uuid.UUID(found).version == 7 for found in made)


def test_the_same_seed_makes_the_same_ids() -> None:
    one = IdSource(FakeClock(), random.Random(7)).take(5)
    two = IdSource(FakeClock(), random.Random(7)).take(5)
    other = IdSource(FakeClock(), random.Random(8)).take(5)

    assert one == two != other


def test_threads_that_share_a_source_never_get_the_same_id() -> None:
    source, made = IdSource(), []
    threads = [
        threading.Thread(target=lambda: made.extend(source.new() for _ in range(500)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(made)) == 4_000


@pytest.mark.parametrize(
    "value",
    [
        "0198C0DE-0000-7000-8000-00000000000A",
        "0198c0de-0000-7000-8000-00000000000a",
        uuid.UUID("0198c0de-0000-7000-8000-00000000000a"),
    ],
)
def test_one_id_has_one_text(value: object) -> None:
    assert read_uuid(value) == "0198c0de-0000-7000-8000-00000000000a"


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "",
        "0198c0de0000700080000000000000a",
        "0198c0de00007000800000000000000a",
        "{0198c0de-0000-7000-8000-00000000000a}",
        "urn:uuid:0198c0de-0000-7000-8000-00000000000a",
        "0198c0de-0000-7000-8000-00000000000g",
        "0198c0de-0000-7000-8000-0000000000_a",
        " 198c0de-0000-7000-8000-00000000000a",
        "0198c0de-0000-7000-8000-00000000000a\n",
        "' OR TRUE --                        ",
        b"0198c0de-0000-7000-8000-00000000000a",
    ],
)
def test_anything_else_is_no_id(value: object) -> None:
    with pytest.raises(ValueError, match="must be a UUID"):
        read_uuid(value)
