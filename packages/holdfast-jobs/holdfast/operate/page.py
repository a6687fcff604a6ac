"""One page of a listing, and the checks that every listing shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, overload

from holdfast.arguments import Check
from holdfast.errors import InvalidArgument
from holdfast.ids import read_uuid
from holdfast.operate.refusal import InvalidAction

T = TypeVar("T")
F = TypeVar("F", bound=Any)

NEWEST = "ffffffff-ffff-ffff-ffff-ffffffffffff"
LONGEST_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Page(Sequence[T], Generic[T]):
    """Some rows of a listing. *next* is the cursor of the following page, None on the last one.

    A page is a sequence of its items. Pass *next* as ``before`` to a listing that starts with the
    newest row and as ``after`` to one in order of names.
    """

    items: tuple[T, ...]
    next: str | None = None

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)


def page_of(found: Sequence[T], limit: int, cursor: Callable[[T], Any]) -> Page[T]:
    """Return *found* as a page of at most *limit* items. Read *limit* + 1 rows.

    The extra row shows that there is a following page, which begins after the last item shown.
    """
    items = tuple(found[:limit])
    return Page(items, str(cursor(items[-1])) if len(found) > limit else None)


def check_limit(limit: int) -> int:
    """Return the validated page size; raises InvalidAction."""
    if type(limit) is not int or not 1 <= limit <= LONGEST_PAGE:
        raise InvalidAction({"limit": f"must be a whole number from 1 to {LONGEST_PAGE}"})
    return limit


def read_filter(wanted: F, checks: Mapping[str, Check]) -> F:
    """Return the filter with its fields in stored form; raises InvalidAction with every bad field.

    A field that is None matches everything and is not checked.
    """
    found: dict[str, Any] = {}
    bad: dict[str, str] = {}
    for name, check in checks.items():
        value = getattr(wanted, name)
        if value is None:
            continue
        try:
            found[name] = check(value)
        except InvalidArgument as exc:
            bad[name] = "; ".join(exc.fields.values())
        except ValueError as exc:
            bad[name] = str(exc)
    if bad:
        raise InvalidAction(bad)
    return replace(wanted, **found)


def one_of(*words: str) -> Check:
    """One of these values."""

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return value

    return check


def read_id(name: str, value: object) -> str:
    """Return the id in its stored form; raises InvalidAction."""
    try:
        return read_uuid(value)
    except ValueError as exc:
        raise InvalidAction({name: str(exc)}) from None
