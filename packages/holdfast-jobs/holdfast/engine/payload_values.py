"""Values of payloads: Python objects to JSON values, and back by the annotations of a handler.

Dataclasses and pydantic models may be nested. Models are recognized by their methods, so pydantic
need not be installed.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any
from uuid import UUID

# Deeper payloads are refused when they are encoded.
LEVELS = 100
_SCALARS = (str, int, float, bool)
_UNIONS = (typing.Union, types.UnionType)


class BadPayload(ValueError):
    """A payload does not match the handler; *fields* maps each place to its problem."""

    def __init__(self, fields: Mapping[str, str], **context: str) -> None:
        self.fields, self.context = dict(fields), context
        super().__init__("; ".join(f"{place}: {problem}" for place, problem in fields.items()))


def is_model(kind: object) -> bool:
    """Whether *kind* is a class like those of pydantic."""
    return isinstance(kind, type) and hasattr(kind, "model_validate")


def is_structured(kind: object) -> bool:
    """Whether *kind* is a dataclass or a model."""
    return is_model(kind) or (isinstance(kind, type) and dataclasses.is_dataclass(kind))


def to_document(value: Any, levels: int = LEVELS) -> Any:
    """*value* with dataclasses, models, dates, ids and enumerations as JSON values.

    Other objects are left as they are; encoding the payload refuses them.
    """
    if value is None or type(value) in _SCALARS or levels == 0:
        return value
    if isinstance(value, Mapping):
        return {name: to_document(item, levels - 1) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_document(item, levels - 1) for item in value]
    if isinstance(value, Enum):
        return to_document(value.value, levels - 1)
    if isinstance(value, type):
        return value
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value):
        return {
            item.name: to_document(getattr(value, item.name), levels - 1)
            for item in dataclasses.fields(value)
        }
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value


def from_document(value: Any, wanted: Any, place: str = "payload") -> Any:
    """*value* as the annotation *wanted* asks for. Raises BadPayload.

    Annotations that are not known here accept every value.
    """
    origin = typing.get_origin(wanted)
    if origin is typing.Annotated:
        return from_document(value, typing.get_args(wanted)[0], place)
    if origin in _UNIONS:
        return _one_of(value, typing.get_args(wanted), place)
    if origin is typing.Literal:
        if value not in typing.get_args(wanted):
            known = ", ".join(repr(one) for one in typing.get_args(wanted))
            raise _wrong(place, f"must be one of {known}")
        return value
    kind = origin or wanted
    if kind is None or kind is type(None):
        return _plain(value, type(None), place)
    if not isinstance(kind, type):
        return value
    return _of_class(value, kind, typing.get_args(wanted), place)


def _of_class(value: Any, kind: type, arguments: tuple[Any, ...], place: str) -> Any:
    if is_structured(kind):
        if isinstance(value, kind):
            return value
        return read_model(kind, value, place) if is_model(kind) else read_fields(kind, value, place)
    if kind in _SCALARS:
        return _plain(value, kind, place)
    if issubclass(kind, Enum) or kind in _PARSED:
        return _parsed(value, kind, place)
    if kind in _COLLECTIONS:
        return _collection(value, kind, arguments, place)
    if kind in (dict, Mapping) or issubclass(kind, dict):
        if not isinstance(value, Mapping):
            raise _wrong(place, f"must be an object, not {_json_name(value)}")
        if len(arguments) == 2:
            return {
                name: from_document(item, arguments[1], f"{place}.{name}")
                for name, item in value.items()
            }
    return value


def read_model(model: Any, value: Any, place: str) -> Any:
    """An instance of a pydantic model."""
    try:
        return model.model_validate(value)
    except ValueError as exc:
        raise BadPayload(_model_errors(exc, place), model=model.__name__) from exc


def _model_errors(exc: ValueError, place: str) -> dict[str, str]:
    if not hasattr(exc, "errors"):
        return {place: "is not valid"}
    prefix = () if place == "payload" else (place,)
    return {
        ".".join(str(part) for part in (*prefix, *one["loc"])) or place: str(one["msg"])
        for one in exc.errors()
    }


def read_fields(kind: type, value: Any, place: str) -> Any:
    """An instance of a dataclass from an object with its fields."""
    if not isinstance(value, Mapping):
        raise _wrong(place, f"must be an object, not {_json_name(value)}")
    fields = {item.name: item for item in dataclasses.fields(kind) if item.init}
    hints = hints_of(kind)
    prefix = "" if place == "payload" else f"{place}."
    problems: dict[str, str] = {}
    context: dict[str, str] = {"model": kind.__name__}
    found: dict[str, Any] = {}
    for name, item in value.items():
        if name not in fields:
            problems[f"{prefix}{name}"] = f"is not a field of {kind.__name__}"
            context.setdefault("unknown_field", str(name))
            continue
        try:
            found[name] = from_document(item, hints.get(name, Any), f"{prefix}{name}")
        except BadPayload as exc:
            problems |= exc.fields
            context.setdefault("wrong_type", name)
    missing = dataclasses.MISSING
    for name, field in fields.items():
        if name not in value and field.default is missing and field.default_factory is missing:
            problems[f"{prefix}{name}"] = "is missing"
    if problems:
        raise BadPayload(problems, **context)
    try:
        return kind(**found)
    except (TypeError, ValueError) as exc:
        raise BadPayload({place: f"is not a valid {kind.__name__}"}, **context) from exc


def hints_of(thing: Any) -> dict[str, Any]:
    """The annotations of a function or class; none if a name in them is not defined."""
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}


def _one_of(value: Any, options: tuple[Any, ...], place: str) -> Any:
    problems: list[BadPayload] = []
    for option in sorted(options, key=lambda one: one is not type(None)):
        try:
            return from_document(value, option, place)
        except BadPayload as exc:
            problems.append(exc)
    if len(problems) == 2 and type(None) in options:
        raise problems[1]
    names = " or ".join(getattr(one, "__name__", str(one)) for one in options)
    raise _wrong(place, f"must be {names}, not {_json_name(value)}")


def _plain(value: Any, kind: type, place: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, kind) and not (kind in (int, float) and isinstance(value, bool)):
        return value
    name = "null" if kind is type(None) else kind.__name__
    raise _wrong(place, f"must be {name}, not {_json_name(value)}")


def _parsed(value: Any, kind: type, place: str) -> Any:
    if isinstance(value, kind):
        return value
    try:
        return kind(value) if issubclass(kind, Enum) else _PARSED[kind](value)
    except (TypeError, ValueError, AttributeError, InvalidOperation, OverflowError):
        raise _wrong(place, f"is not a valid {kind.__name__}") from None


def _collection(value: Any, kind: type, arguments: tuple[Any, ...], place: str) -> Any:
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise _wrong(place, f"must be a list, not {_json_name(value)}")
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(value) != len(arguments):
            raise _wrong(place, f"must have {len(arguments)} items, not {len(value)}")
        pairs = zip(value, arguments, strict=True)
        return tuple(from_document(item, one, place) for item, one in pairs)
    wanted = arguments[0] if arguments else Any
    items = [from_document(item, wanted, f"{place}.{at}") for at, item in enumerate(value)]
    make = _COLLECTIONS[kind]
    try:
        return make(items)
    except TypeError:
        raise _wrong(place, f"is not a valid {kind.__name__}") from None


def _seconds(value: Any) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("timedelta")
    return timedelta(seconds=value)


def _decimal(value: Any) -> Decimal:
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise TypeError("Decimal")
    return Decimal(value)


_PARSED: Mapping[type, Callable[[Any], Any]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    timedelta: _seconds,
    UUID: UUID,
    Decimal: _decimal,
}
_COLLECTIONS: Mapping[type, Callable[[list[Any]], Collection[Any]]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    typing.cast(type, typing.get_origin(typing.Sequence[Any])): list,
    typing.cast(type, typing.get_origin(typing.Iterable[Any])): list,
}


def _json_name(value: Any) -> str:
    if value is None:
        return "null"
    return "an object" if isinstance(value, Mapping) else type(value).__name__


def _wrong(place: str, problem: str) -> BadPayload:
    return BadPayload({place: problem}, wrong_type=place)
