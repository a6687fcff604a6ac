"""Converts a job's payload to the annotated type of its handler: dict, dataclass or model."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import ConfigError, SchemaInvalid

Function = Callable[..., Any]


def named(value: object) -> str:
    """A value as quoted in error messages."""
    return repr(value)[:100]


def payload_reader(function: Function) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that converts a payload to the type of the handler's second parameter."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    if len(parameters) < 2:
        place = getattr(function, "__qualname__", named(function))
        raise ConfigError(f"{place} must take two arguments: the job and its payload.")
    try:
        wanted = typing.get_type_hints(function).get(parameters[1].name)
    except NameError:
        wanted = None
    if hasattr(wanted, "model_validate"):
        return _pydantic_reader(wanted)
    if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
        return _dataclass_reader(wanted)
    return lambda payload: payload


def _pydantic_reader(model: Any) -> Callable[[Mapping[str, Any]], Any]:
    def read(payload: Mapping[str, Any]) -> Any:
        try:
            return model.model_validate(payload)
        except ValueError as exc:
            raise SchemaInvalid(model=model.__name__, problems=len(exc.args) or 1) from exc

    return read


def _dataclass_reader(kind: type) -> Callable[[Mapping[str, Any]], Any]:
    fields = {item.name: item for item in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind)

    def read(payload: Mapping[str, Any]) -> Any:
        unknown = sorted(set(payload) - set(fields))
        if unknown:
            raise SchemaInvalid(model=kind.__name__, unknown_field=unknown[0])
        for name, value in payload.items():
            if not _fits(value, hints[name]):
                raise SchemaInvalid(model=kind.__name__, wrong_type=name)
        try:
            return kind(**payload)
        except (TypeError, ValueError) as exc:
            raise SchemaInvalid(model=kind.__name__) from exc

    return read


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a JSON value matches the annotation *wanted*. Only plain types are checked."""
    options = typing.get_args(wanted) if typing.get_origin(wanted) in _UNIONS else (wanted,)
    for option in options:
        kind = typing.get_origin(option) or option
        if kind not in _JUDGED:
            return True
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return True
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return True
    return False


_UNIONS = (typing.Union, type(int | str))
_JUDGED = (str, int, float, bool, list, dict, type(None))
