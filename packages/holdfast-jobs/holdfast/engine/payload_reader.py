"""How a handler takes its job and its payload, read from its signature.

A handler takes the job first, or no job at all. Its payload is one argument (a dict, a dataclass or
a pydantic model), or each key of the payload is an argument of its own:

    def export(job: Context, payload: dict) -> None: ...
    def export(job: Context, order: Order) -> None: ...
    def export(job: Context, number: int, *, note: str = "") -> None: ...
    def export(number: int) -> None: ...
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.engine.payload_values import (
    BadPayload,
    from_document,
    hints_of,
    is_model,
    is_structured,
    read_fields,
    read_model,
    to_document,
)
from holdfast.errors import ConfigError, InvalidJob, SchemaInvalid

Function = Callable[..., Any]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
# Without an annotation, these names say that a parameter is the job or the whole payload.
_JOB_NAMES = frozenset({"", "j", "job", "c", "ctx", "context"})
_PAYLOAD_NAMES = frozenset({"", "p", "payload", "data"})
# Annotations that do not say what a parameter is.
_OPEN = (inspect.Parameter.empty, Any, object)


def named(value: object) -> str:
    """A value as quoted in error messages."""
    return repr(value)[:100]


def unchanged(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """The payload of a handler without a type for it, or with dict."""
    return payload


@dataclass(frozen=True, slots=True)
class Signature:
    """What a handler takes. *payload* names its only payload parameter, if it has one."""

    function: Function
    takes_job: bool
    payload: str | None
    parameters: Mapping[str, inspect.Parameter]
    hints: Mapping[str, Any]

    @property
    def name(self) -> str:
        return getattr(self.function, "__qualname__", named(self.function))

    @property
    def model(self) -> Any:
        """The class of the payload, if it is a dataclass or a model."""
        found = self.hints.get(self.payload or "")
        return found if is_structured(found) else None

    def read(self, document: Mapping[str, Any]) -> Any:
        """The payload argument, or the keyword arguments. Raises BadPayload."""
        if self.payload is not None:
            model = self.model
            if model is None:
                return document
            read = read_model if is_model(model) else read_fields
            return read(model, document, "payload")
        return self._read_arguments(document)

    def _read_arguments(self, document: Mapping[str, Any]) -> dict[str, Any]:
        problems, found = dict[str, str](), dict[str, Any]()
        takes_any = any(one.kind is one.VAR_KEYWORD for one in self.parameters.values())
        known = {one.name: one for one in self.parameters.values() if one.kind is not _REST}
        for name, value in document.items():
            if name not in known and not takes_any:
                problems[name] = f"is not an argument of {self.name.rpartition('.')[2]}"
                continue
            try:
                found[name] = from_document(value, self.hints.get(name, Any), name)
            except BadPayload as exc:
                problems |= exc.fields
        for name, parameter in known.items():
            if name not in document and parameter.default is parameter.empty:
                problems[name] = "is missing"
        if problems:
            raise BadPayload(problems)
        return found

    @property
    def is_declared(self) -> bool:
        """Whether it says what a payload must contain."""
        return self.payload is None or self.model is not None

    def document(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], later: Collection[str] = ()
    ) -> dict[str, Any]:
        """The checked payload of an enqueue with the handler's own arguments. Raises InvalidJob.

        The arguments *later* are added before the handler runs.
        """
        found = self.collect(args, kwargs)
        takes_any = self.payload is not None or any(
            one.kind is _REST for one in self.parameters.values()
        )
        if unknown := [] if takes_any else sorted(set(later) - set(self.parameters)):
            name = self.name.rpartition(".")[2]
            raise InvalidJob(dict.fromkeys(unknown, f"is not an argument of {name}"))
        try:
            self.check(found)
        except InvalidJob as exc:
            known = set(self.parameters) & set(later)
            fields = {name: says for name, says in exc.fields.items() if name not in known}
            if fields or not later:
                raise InvalidJob(fields or exc.fields) from None
        return found

    def collect(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The payload of an enqueue with the handler's own arguments. Raises InvalidJob."""
        try:
            found = to_document(self._collect(args, kwargs))
        except BadPayload as exc:
            raise InvalidJob(exc.fields) from None
        if not isinstance(found, dict):
            raise InvalidJob({"payload": f"must be an object, not {type(found).__name__}"})
        return found

    def check(self, document: Mapping[str, Any]) -> None:
        """Raise InvalidJob, which names every field, if the handler cannot take *document*."""
        try:
            self.read(document)
        except BadPayload as exc:
            raise InvalidJob(exc.fields) from None

    def _collect(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self.payload is not None:
            if args:
                if len(args) > 1 or kwargs:
                    raise BadPayload({"payload": "takes one object, or the fields by name"})
                return args[0]
            model = self.model
            if set(kwargs) == {self.payload} and (
                isinstance(kwargs[self.payload], Mapping)
                or (model is not None and isinstance(kwargs[self.payload], model))
            ):
                return kwargs[self.payload]
            return dict(kwargs)
        places = [name for name, one in self.parameters.items() if one.kind in _POSITIONAL]
        if len(args) > len(places):
            raise BadPayload({"arguments": f"takes {len(places)} by position, not {len(args)}"})
        found = dict(zip(places, args, strict=False))
        if both := sorted(set(found) & set(kwargs)):
            raise BadPayload(dict.fromkeys(both, "is passed twice"))
        return {**found, **kwargs}


_REST = inspect.Parameter.VAR_KEYWORD


def signature_of(function: Function) -> Signature:
    """Read the signature of a handler. Raises ConfigError if it cannot be one."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise ConfigError(f"{named(function)} has no inspectable signature.") from None
    place = getattr(function, "__qualname__", named(function))
    hints = hints_of(function)
    takes_job = _takes_job(parameters, hints)
    if takes_job and len(parameters) == 1 and parameters[0].name not in hints:
        raise ConfigError(
            f"{place} must take two arguments: the job and its payload. A handler without a"
            " payload annotates its job: (job: Context)."
        )
    rest = parameters[1:] if takes_job else parameters
    for one in rest:
        if one.kind in (one.VAR_POSITIONAL, one.POSITIONAL_ONLY):
            raise ConfigError(f"{place}: the parameter {one.name!r} cannot be passed by name.")
    return Signature(
        function,
        takes_job,
        _payload_parameter(rest, hints, takes_job=takes_job),
        {one.name: one for one in rest},
        hints,
    )


def _takes_job(parameters: list[inspect.Parameter], hints: Mapping[str, Any]) -> bool:
    positional = [one for one in parameters if one.kind in _POSITIONAL]
    if not positional:
        return False
    first = positional[0]
    annotation = hints.get(first.name, first.annotation)
    if _is_context(annotation):
        return True
    if annotation not in _OPEN:
        return False
    if first.name.strip("_") in _JOB_NAMES:
        return True
    # Two parameters without annotations: the second may say that it is the payload.
    return len(parameters) == 2 and parameters[1].name.strip("_") in _PAYLOAD_NAMES


def _is_context(annotation: object) -> bool:
    """Whether an annotation is the class Context, also as text that cannot be evaluated here."""
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] == "Context"
    return getattr(annotation, "__name__", "") == "Context"


def _payload_parameter(
    rest: list[inspect.Parameter], hints: Mapping[str, Any], *, takes_job: bool
) -> str | None:
    """The name of the parameter that takes the whole payload; None: each key is a parameter."""
    if not rest or rest[0].kind not in _POSITIONAL:
        return None
    only, *others = rest
    if others:
        # Parameters with defaults may follow the payload; a closure in a loop binds values so.
        is_payload = takes_job and only.name == "payload"
        bound = all(one.default is not one.empty for one in others)
        return only.name if is_payload and bound else None
    annotation = hints.get(only.name, only.annotation)
    if annotation in _OPEN or isinstance(annotation, str):
        return only.name if takes_job or only.name.strip("_") in _PAYLOAD_NAMES else None
    options = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    return only.name if any(_is_whole(one) for one in options) else None


def _is_union(annotation: object) -> bool:
    return typing.get_origin(annotation) in (typing.Union, type(int | str))


def _is_whole(annotation: object) -> bool:
    """Whether a value of this type is a whole payload."""
    kind = typing.get_origin(annotation) or annotation
    if is_structured(kind):
        return True
    return isinstance(kind, type) and (issubclass(kind, dict) or kind is Mapping)


def payload_reader(found: Signature) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that converts a stored payload to what the handler takes."""
    if found.payload is not None and found.model is None:
        return unchanged

    def read(payload: Mapping[str, Any]) -> Any:
        try:
            return found.read(payload)
        except BadPayload as exc:
            name = found.name if found.model is None else found.model.__name__
            context = {"model": name.rpartition(".")[2], **exc.context}
            raise SchemaInvalid(problems=len(exc.fields), **context) from exc

    return read


def caller(found: Signature) -> Function:
    """The handler as a function of the job and of what :func:`payload_reader` returns."""
    function = found.function
    if found.payload is not None:
        if found.takes_job:
            return function
        return lambda _job, payload: function(payload)
    if found.takes_job:
        return lambda job, arguments: function(job, **arguments)
    return lambda _job, arguments: function(**arguments)
