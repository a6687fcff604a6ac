"""Reading: lines of results in constant memory, whatever their contents."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import FakeClock
from holdfast_llm.batch.read import Doubts, parse_line, reading, survey
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.lines import Overlong
from holdfast_llm.provider.reply import (
    Failure,
    FailureKind,
    ItemAnswer,
    ProviderUnsure,
    Reply,
    Usage,
)
from tests.batch.planted import line_of
from tests.batch.scripted import ScriptedAccounts, ScriptedProvider

KEY = "abcdefgh234567ab"


def name(number: int) -> str:
    return f"hf1_{KEY}_{number}_0badcafe"


class Pieces(ScriptedProvider):
    """Returns the given bytes in pieces of the given size, and may stop early."""

    data: bytes = b""
    size: int = 7
    breaks_at: int | None = None

    @contextmanager
    def read(self, client: Any, file: str) -> Iterator[Iterator[bytes]]:
        def pieces() -> Iterator[bytes]:
            for at in range(0, len(self.data), self.size):
                if self.breaks_at is not None and at >= self.breaks_at:
                    raise ProviderUnsure("reset")
                yield self.data[at : at + self.size]

        yield pieces()


def account_of(data: bytes, size: int = 7, breaks_at: int | None = None) -> Account:
    provider = Pieces(FakeClock())
    provider.data, provider.size, provider.breaks_at = data, size, breaks_at
    found = ScriptedAccounts(provider).by_key("openai|x|y")
    assert found is not None
    return found


def test_a_file_that_breaks_off_is_not_taken_for_its_end() -> None:
    account = account_of(line_of(name(1), "a") * 50, breaks_at=700)

    with pytest.raises(ProviderUnsure), reading(account, ("out",)) as lines:
        list(lines)


def test_a_reader_that_stops_in_the_middle_raises_nothing() -> None:
    account = account_of(line_of(name(1), "a") * 50)

    with reading(account, ("out", "err")) as lines:
        first = next(iter(lines))

    assert isinstance(first, bytes)


def test_a_first_look_finds_the_items_whose_lines_differ_and_no_others() -> None:
    data = line_of(name(1), "a") + line_of(name(2), "b") + line_of(name(1), "a")
    data += line_of(name(2), "other") + line_of(name(3), "c") + b"\n\nno json\n"

    found = survey(account_of(data), ("out",), lambda: None)

    assert found.doubted == {name(2)}
    assert found.lines == 6


def test_a_first_look_sees_both_files() -> None:
    provider = Pieces(FakeClock())
    account = account_of(line_of(name(1), "a"))
    shown = {"out": line_of(name(1), "a"), "err": line_of(name(1), "b")}

    @contextmanager
    def read(client: Any, file: str) -> Iterator[Iterator[bytes]]:
        yield iter([shown[file]])

    provider.read = read  # type: ignore[method-assign]
    account = ScriptedAccounts(provider).by_key("openai|x|y") or account

    assert survey(account, ("out", "err"), lambda: None).doubted == {name(1)}


def test_a_long_read_gives_its_reader_time_to_renew_a_lease() -> None:
    paused: list[int] = []
    data = b"".join(line_of(name(number), "a") for number in range(4_500))

    survey(account_of(data, size=65_536), ("out",), lambda: paused.append(1))

    assert len(paused) == 2


def test_a_first_look_at_a_large_batch_takes_little_memory() -> None:
    text = "x" * 3_000
    data = b"".join(line_of(name(number), text) for number in range(5_000))
    account = account_of(data, size=65_536)

    tracemalloc.start()
    survey(account, ("out",), lambda: None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 3 * 1024 * 1024, f"{peak} bytes for {len(data)}"


@pytest.mark.parametrize(
    "line",
    [b"no json", b"[]", b"null", b'{"custom_id": 7}', b"\xff\xfe", b"[" * 100_000, b'{"a":NaN}'],
)
def test_an_empty_line_is_ignored(line: bytes) -> None:
    assert parse_line(ScriptedProvider(FakeClock()), line) is None


def test_a_line_that_is_too_long_affects_no_other() -> None:
    assert parse_line(ScriptedProvider(FakeClock()), Overlong(10_000_000, "hash")) is None


def answer(text: str, digest: str) -> ItemAnswer:
    return ItemAnswer(name(1), Reply(text, "model-1", Usage(3, output=4)), digest)


def test_lines_that_differ_only_in_what_does_not_matter_are_one_answer() -> None:
    doubts = Doubts({name(1)})
    doubts.add(answer("a", "one"), 10)
    doubts.add(answer("a", "one"), 12)

    assert [found.answer for found in doubts.answers] == [Reply("a", "model-1", Usage(3, output=4))]
    assert doubts.contradicted == 0


@pytest.mark.req("P-22")
def test_of_two_answers_none_is_believed_and_both_are_paid_for_once() -> None:
    doubts = Doubts({name(1)})
    doubts.add(answer("a", "one"), 10)
    doubts.add(answer("b", "two"), 10)
    doubts.add(answer("a", "one"), 10)

    (found,) = doubts.answers
    assert isinstance(found.answer, Failure)
    assert found.answer.kind is FailureKind.INTEGRITY
    assert found.answer.usage == Usage(3, output=4)
    assert doubts.contradicted == 1
    assert "a" not in (found.answer.code, found.digest)


def test_doubtful_answers_never_fill_the_memory() -> None:
    doubts = Doubts({name(1)})
    doubts.add(answer("x", "one"), 9 * 1024 * 1024)
    doubts.add(answer("x", "one"), 9 * 1024 * 1024)

    assert (doubts.answers, doubts.unkept, doubts.contradicted) == ([], {name(1)}, 0)


@pytest.mark.req("P-22")
def test_an_answer_that_is_not_kept_is_contradicted_all_the_same() -> None:
    doubts = Doubts({name(1)})
    doubts.add(answer("x", "one"), 9 * 1024 * 1024)
    doubts.add(answer("y", "two"), 9 * 1024 * 1024)
    doubts.add(answer("x", "one"), 9 * 1024 * 1024)

    (found,) = doubts.answers
    assert isinstance(found.answer, Failure)
    assert (doubts.unkept, doubts.contradicted) == (set(), 1)
