"""Read the lines of a batch's results in constant memory.

They are read twice. The first pass finds items with several different answers; the second processes
the answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from holdfast_llm.batch.item_outcome import CONFLICT
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import Adapter
from holdfast_llm.provider.lines import Overlong, split
from holdfast_llm.provider.reply import Failure, FailureKind, ItemAnswer, ProviderUnsure

# Custom ids of Holdfast, anywhere in a line.
_CUSTOM_ID = re.compile(rb"hf1_[a-z2-7]{16}_[0-9a-z]{1,8}_[0-9a-f]{8}")
# Reading takes long, and leases expire: the lines between two calls of *pause*.
_PAUSE_LINES = 2_000


@contextmanager
def reading(account: Account, files: tuple[str, ...]) -> Iterator[Iterator[bytes | Overlong]]:
    """Every line of these files. Raises ProviderUnsure if one of them is truncated."""
    lines = _lines(account, files)
    try:
        yield lines
    finally:
        # A reader that stops early does not need the end of the file.
        with suppress(ProviderUnsure):
            lines.close()


def _lines(account: Account, files: tuple[str, ...]) -> Generator[bytes | Overlong, None, None]:
    for file in files:
        with account.adapter.read(account.client, file) as pieces:
            yield from split(pieces)


@dataclass(slots=True)
class Survey:
    """The result of the first pass: the number of lines, and the items whose lines differ."""

    lines: int = 0
    doubted: set[str] = field(default_factory=set)


def survey(account: Account, files: tuple[str, ...], pause: Callable[[], None]) -> Survey:
    """Read all lines, and call *pause* now and then.

    Two numbers are kept per item: 6.7 MiB for a batch of 50,000.
    """
    found = Survey()
    said: dict[int, int] = {}
    with reading(account, files) as lines:
        for line in lines:
            found.lines += 1
            if found.lines % _PAUSE_LINES == 0:
                pause()
            if isinstance(line, Overlong):
                continue
            content = hash(line)
            for name in _CUSTOM_ID.findall(line):
                if said.setdefault(hash(name), content) != content:
                    found.doubted.add(name.decode())
    return found


def parse_line(adapter: Adapter, line: bytes | Overlong) -> ItemAnswer | None:
    """Parse a line; None if it is invalid. Nothing in a line can raise here."""
    if isinstance(line, Overlong):
        return None
    try:
        found = adapter.parse(line)
    except Exception:
        # A parser should raise ValueError; any other error of an invalid line is treated the same.
        return None
    found.line = line
    return found


@dataclass(slots=True)
class Doubts:
    """Answers of items with several lines, kept until all lines are read.

    Lines may differ in irrelevant parts, such as a request id. If the answers differ, none of them
    is trusted. Beyond the memory limit only a count is kept, and agreeing answers are read once
    more.
    """

    names: set[str]
    unkept: set[str] = field(default_factory=set)
    _said: dict[str, int] = field(default_factory=dict)
    _kept: dict[str, ItemAnswer] = field(default_factory=dict)
    _size: int = 0

    def add(self, answer: ItemAnswer, size: int) -> None:
        name, content = answer.custom_id, hash(answer.digest)
        first = self._said.setdefault(name, content)
        if first != content:
            self.unkept.discard(name)
            self._kept[name] = _contradicted(self._kept.get(name, answer))
        elif name not in self._kept and name not in self.unkept:
            self._size += size
            if self._size <= _DOUBTS_BYTES:
                self._kept[name] = answer
            else:
                self.unkept.add(name)

    @property
    def answers(self) -> list[ItemAnswer]:
        return list(self._kept.values())

    @property
    def contradicted(self) -> int:
        return sum(answer.digest == CONFLICT for answer in self._kept.values())


_DOUBTS_BYTES = 8 * 1024 * 1024


def _contradicted(first: ItemAnswer) -> ItemAnswer:
    """Replaces several contradicting answers; the usage is billed."""
    told = first.answer
    failure = Failure(
        FailureKind.INTEGRITY,
        CONFLICT,
        usage=told.usage,
        model=told.model,
        provider_request_id=told.provider_request_id,
        finished_at=told.finished_at,
    )
    return ItemAnswer(first.custom_id, failure, CONFLICT)
