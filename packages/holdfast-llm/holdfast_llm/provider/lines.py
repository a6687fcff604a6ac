"""JSON lines of batch inputs and results: a line ends only at byte 0x0A.

``splitlines`` also splits at U+2028, U+2029 and U+0085, which may occur raw in a JSON string.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_llm.provider.reply import Answer, ItemAnswer, Reply

MAX_LINE = 4 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Overlong:
    """A line that exceeds the limit; its content is dropped."""

    size: int
    sha256: str


def split(pieces: Iterable[bytes], limit: int = MAX_LINE) -> Iterator[bytes | Overlong]:
    """The lines of a body without newlines; blank lines and a byte order mark are left out.

    Holds one line of at most *limit* bytes, however the pieces are cut.
    """
    rest = bytearray()
    long: _Long | None = None
    is_first = True
    for piece in pieces:
        *ended, last = piece.split(b"\n")
        for part in ended:
            if long is not None:
                long.add(part)
                yield long.end()
                long = None
            elif len(rest) + len(part) > limit:
                yield _Long(rest, part).end()
                rest.clear()
                is_first = False
            else:
                line = bytes(rest) + part if rest else part
                rest.clear()
                if is_first:
                    line = line.removeprefix(_BOM)
                    is_first = False
                if line := line.strip(b" \t\r"):
                    yield line
        if long is not None:
            long.add(last)
        elif len(rest) + len(last) > limit:
            long = _Long(rest, last)
            rest.clear()
            is_first = False
        else:
            rest += last
    if long is not None:
        yield long.end()
        return
    line = bytes(rest).removeprefix(_BOM) if is_first else bytes(rest)
    if line := line.strip(b" \t\r"):
        yield line


class _Long:
    def __init__(self, *parts: bytes | bytearray) -> None:
        self._size = 0
        self._hash = hashlib.sha256()
        for part in parts:
            self.add(part)

    def add(self, part: bytes | bytearray) -> None:
        self._size += len(part)
        self._hash.update(part)

    def end(self) -> Overlong:
        return Overlong(self._size, self._hash.hexdigest())


def write_line(document: Mapping[str, Any]) -> bytes:
    """Encode a document as one line, deterministic on every worker."""
    return _ENCODER.encode(document).encode("ascii") + b"\n"


# json.dumps would make an encoder for every line, and each line is encoded three times.
_ENCODER = json.JSONEncoder(
    sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False
)


def read_line(line: bytes) -> dict[str, Any]:
    """Parse the object of a line. Raises ValueError if it is invalid."""
    try:
        found = strict_decode(line.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
_scan: Callable[[str, int], tuple[Any, int]] = _DECODER.scan_once  # type: ignore[attr-defined]


def strict_decode(text: str) -> Any:
    """The value of a JSON text without NaN and infinity. Raises ValueError or RecursionError."""
    try:
        # The C scanner alone, for a text without space around it.
        value, end = _scan(text, 0)
        if end == len(text):
            return value
    except StopIteration:
        pass
    return _DECODER.decode(text)


def file_answer(custom_id: object, answer: Answer) -> ItemAnswer:
    """An answer with its custom id. Raises ValueError if the id is invalid."""
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= 200:
        raise ValueError("no custom_id")
    if isinstance(answer, Reply):
        said = f"reply\n{answer.text}"
    else:
        said = f"failure\n{answer.kind}\n{answer.code}"
    return ItemAnswer(custom_id, answer, _digest(said.encode("utf-8", "surrogatepass")))


# For larger inputs Python releases the GIL, and reacquiring it next to a busy thread takes long: 95
# microseconds a line instead of 9.
_PIECE = 2_047


def _digest(data: bytes) -> str:
    found = hashlib.sha256()
    for at in range(0, len(data), _PIECE):
        found.update(data[at : at + _PIECE])
    return found.hexdigest()
