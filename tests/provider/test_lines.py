"""Lines end at 0x0A and nowhere else."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_llm.provider.lines import Overlong, read_line, split, write_line

# Text with every character that some function treats as the end of a line.
TEXTS = st.text(alphabet='\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\r\n "\\é漢😀ab', max_size=30)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


@given(st.lists(TEXTS, max_size=8), st.lists(st.integers(0, 20), max_size=30), st.booleans())
def test_every_line_comes_out_as_it_went_in_however_the_body_is_cut(
    texts: list[str], sizes: list[int], ends_whole: bool
) -> None:
    lines = [json.dumps({"text": text}, ensure_ascii=False).encode() for text in texts]
    body = b"\n".join(lines) + (b"\n" if ends_whole else b"")

    assert list(split(cut(body, sizes))) == lines


@given(st.lists(st.integers(0, 9), max_size=20))
def test_blank_lines_and_a_byte_order_mark_and_carriage_returns_are_left_out(
    sizes: list[int],
) -> None:
    body = b'\xef\xbb\xbf{"a":1}\r\n\r\n \n\n{"b":2}\r\n{"c":3}'

    assert list(split(cut(body, sizes))) == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


@given(st.lists(st.integers(0, 30), max_size=30), st.booleans())
def test_of_a_line_that_is_too_long_only_its_size_and_hash_are_kept(
    sizes: list[int], ends_whole: bool
) -> None:
    long = b"x" * 50
    body = b"short\n" + long + (b"\nnext\n" if ends_whole else b"")
    told = Overlong(50, hashlib.sha256(long).hexdigest())

    assert list(split(cut(body, sizes), limit=20)) == (
        [b"short", told, b"next"] if ends_whole else [b"short", told]
    )


def test_a_body_of_nothing_has_no_lines() -> None:
    assert list(split([])) == []
    assert list(split([b"", b"\xef\xbb\xbf", b"\n"])) == []


@given(st.dictionaries(TEXTS, TEXTS))
def test_a_written_line_is_the_same_on_every_worker_and_has_one_newline(
    document: dict[str, str],
) -> None:
    line = write_line(document)

    assert line == write_line(dict(reversed(document.items())))
    assert line.isascii()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert read_line(line) == document


@pytest.mark.parametrize(
    "line", [b"", b"nonsense", b"[]", b"1", b'{"a":NaN}', b'{"a":"\xff"}', b"[" * 100_000]
)
def test_what_is_no_object_is_no_line(line: bytes) -> None:
    with pytest.raises(ValueError):
        read_line(line)
