"""Validation of the arguments of public calls. InvalidArgument is raised before anything runs.

A class declares them once, for all its public methods::

    @checked(checks={"recipient": text, "list.before": uuid})
    class Feed: ...

A parameter is looked up as ``method.parameter`` in *checks*, by its name in *checks*, then by its
name in COMMON. A parameter whose default is True or False is a flag. A parameter without a check is
an error at import, so no public method can be added without its checks. The method receives what
the check returns: ids as text in one form, an Actor, a Role. If the default of a parameter is None,
None is not checked.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from holdfast.actor import read_actor, read_role
from holdfast.errors import InvalidArgument
from holdfast.ids import read_named_id, read_uuid

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
Check = Callable[[object], Any]
"""Returns the value to use. Raises InvalidArgument or ValueError with the problem."""

BIGGEST = 2**31 - 1
LONGEST_NAME = 200


def uuid(value: object) -> str:
    """An id in canonical form."""
    return read_uuid(value)


def named_id(value: object) -> str:
    """The id of a tenant or a project, given as a UUID or a name."""
    return read_named_id(value)


def string(value: object) -> str:
    """Any text; the method checks its content."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {type(value).__name__}")
    return value


def text(value: object) -> str:
    """Text that both databases can store. The method decides whether it may be empty."""
    value = string(value)
    if "\x00" in value:
        raise ValueError("must not contain the character NUL")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("must not contain lone surrogates") from None
    return value


def identifier(value: object) -> str:
    """An id that may or may not exist: any text, or a UUID object."""
    if isinstance(value, UUID):
        return str(value)
    return text(value)[:LONGEST_NAME]


def name(value: object) -> str:
    """A declared name: short text."""
    found = text(value)
    if not 1 <= len(found) <= LONGEST_NAME:
        raise ValueError(f"must be text of 1 to {LONGEST_NAME} characters")
    return found


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be True or False, not {type(value).__name__}")
    return value


def whole(least: int = 0, most: int = BIGGEST) -> Check:
    """An integer within bounds."""

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return check


def number(least: float, most: float) -> Check:
    """A number within bounds."""

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"must be a number, not {type(value).__name__}")
        if not least <= value <= most:
            raise ValueError(f"must be from {least:g} to {most:g}")
        return value

    return check


def instant(value: object) -> datetime:
    """An aware datetime."""
    if not isinstance(value, datetime):
        raise ValueError(f"must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None:
        raise ValueError("has no time zone; use an aware datetime, for example datetime.now(UTC)")
    try:
        value.astimezone(UTC)
    except OverflowError:
        raise ValueError("is out of range for a datetime") from None
    return value


def duration(value: object) -> timedelta:
    if not isinstance(value, timedelta):
        raise ValueError(f"must be a timedelta, not {type(value).__name__}")
    return value


def word(kind: type[Enum]) -> Check:
    """A member of an enumeration, or its value."""

    def check(value: object) -> Any:
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(str(one.value) for one in kind)
            raise ValueError(f"must be one of {known}") from None

    return check


def instance(*kinds: type) -> Check:
    """An object of one of these classes."""

    def check(value: object) -> Any:
        if not isinstance(value, kinds):
            known = " or ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"must be {known}, not {type(value).__name__}")
        return value

    return check


def having(*methods: str) -> Check:
    """An object with these methods."""

    def check(value: object) -> Any:
        for item in methods:
            if not callable(getattr(value, item, None)):
                raise ValueError(f"must have a method {item}; {type(value).__name__} has none")
        return value

    return check


def each(check: Check) -> Check:
    """A list, tuple or set in which every item passes *check*."""

    def read(value: object) -> list[Any]:
        if not isinstance(value, Iterable) or isinstance(value, (str, bytes, Mapping)):
            raise ValueError(f"must be a list, not {type(value).__name__}")
        return [check(item) for item in value]

    return read


def anything(value: object) -> Any:
    """A value that the method checks itself."""
    return value


COMMON: Mapping[str, Check] = {
    "actor": read_actor,
    "after": whole(-1),
    "artifact_id": identifier,
    "batch_id": identifier,
    "before": uuid,
    "clock": having("now", "monotonic", "wait"),
    "conn": anything,
    "db": anything,
    "delivery_id": identifier,
    "home_id": uuid,
    "idempotency_key": name,
    "job_id": identifier,
    "job_type": text,
    "limit": whole(1),
    "name": name,
    "org_id": named_id,
    "project_id": named_id,
    "reason": text,
    "recipient": text,
    "recipient_user_id": uuid,
    "rewrite_request_id": uuid,
    "rng": instance(Random),
    "role": read_role,
    "sender_user_id": uuid,
    "since": instant,
    "until": instant,
    "user_id": uuid,
    "worker_id": text,
}


def checked(
    error: Callable[[dict[str, str]], Exception] = InvalidArgument,
    *,
    checks: Mapping[str, Check] | None = None,
    without: Collection[str] = (),
    init: bool = False,
) -> Callable[[C], C]:
    """Check the arguments of every public method of a class, except those named in *without*.

    With *init*, the arguments of the constructor are checked too.
    """
    own = {"__init__"} if init else set()

    def decorate(kind: C) -> C:
        for method, function in list(vars(kind).items()):
            if method.startswith("_") and method not in own:
                continue
            if method in without or not inspect.isfunction(function):
                continue
            setattr(kind, method, _guard(kind, function, checks or {}, error))
        return kind

    return decorate


def read_options(options: Mapping[str, Any], checks: Mapping[str, Check]) -> dict[str, Any]:
    """Return options with their checks applied. Raises InvalidArgument."""
    found, wrong = dict(options), dict[str, str]()
    for item, check in checks.items():
        if found.get(item) is not None:
            try:
                found[item] = check(found[item])
            except (InvalidArgument, ValueError) as exc:
                wrong[item] = _problem(exc)
    if wrong:
        raise InvalidArgument(wrong)
    return found


def checked_function(**checks: Check) -> Callable[[F], F]:
    """Like :func:`checked`, for a function. Its first parameter is not checked."""

    def decorate(function: F) -> F:
        guarded: F = _guard(None, function, checks, InvalidArgument)  # type: ignore[assignment]
        return guarded

    return decorate


def _guard(
    kind: type | None,
    function: Callable[..., Any],
    own: Mapping[str, Check],
    error: Callable[[dict[str, str]], Exception],
) -> Callable[..., Any]:
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1:]
    found = {item.name: _check_of(kind, function.__name__, item, own) for item in parameters}
    optional = {item.name for item in parameters if item.default is None}

    def read(*args: Any, **kwargs: Any) -> inspect.BoundArguments:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as exc:
            raise error({function.__name__: f"has invalid arguments: {exc}"}) from None
        wrong: dict[str, str] = {}
        for item, check in found.items():
            if item not in bound.arguments:
                continue
            value = bound.arguments[item]
            if value is None and item in optional:
                continue
            try:
                bound.arguments[item] = check(value)
            except (InvalidArgument, ValueError) as exc:
                wrong[item] = _problem(exc)
        if wrong:
            raise error(wrong)
        return bound

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def later(*args: Any, **kwargs: Any) -> Any:
            bound = read(*args, **kwargs)
            return await function(*bound.args, **bound.kwargs)

        return later

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = read(*args, **kwargs)
        return function(*bound.args, **bound.kwargs)

    return call


def _check_of(
    kind: type | None, method: str, parameter: inspect.Parameter, own: Mapping[str, Check]
) -> Check:
    if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
        return anything
    for place in (f"{method}.{parameter.name}", parameter.name):
        if place in own:
            return own[place]
    if parameter.name in COMMON:
        return COMMON[parameter.name]
    if isinstance(parameter.default, bool):
        return flag
    place = method if kind is None else f"{kind.__name__}.{method}"
    raise TypeError(f"{place}: the parameter {parameter.name!r} has no validator")


def _problem(exc: Exception) -> str:
    """The problem, without repeating the name of the argument."""
    if isinstance(exc, InvalidArgument):
        return "; ".join(exc.fields.values())
    return str(exc)
