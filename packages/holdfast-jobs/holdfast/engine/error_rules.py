"""Rules of an application for the exceptions of its handlers: retry, or give up. Pure."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from holdfast.engine.network_errors import retry_after_of_response
from holdfast.errors import (
    ConfigError,
    Defect,
    Failure,
    LeaseLost,
    Permanent,
    Signal,
    Transient,
)

Classifier = Callable[[BaseException], "type[Failure] | Failure | None"]
"""Returns the error class for an exception, or None for the built-in rule."""
ErrorMatch = type[BaseException] | str | Callable[[BaseException], bool]
"""An exception class, its name as ``"module.Class"``, or a function that returns True."""
ErrorMatches = ErrorMatch | Collection[ErrorMatch]

_CLASS_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*){1,20}")


@dataclass(frozen=True, slots=True)
class ErrorRules:
    """What to do with exceptions, before the built-in rule is asked."""

    retry_on: tuple[ErrorMatch, ...] = ()
    give_up_on: tuple[ErrorMatch, ...] = ()
    classify: Classifier | None = None

    @property
    def is_declared(self) -> bool:
        return bool(self.retry_on or self.give_up_on)

    def with_classifier(self, classify: Classifier | None) -> ErrorRules:
        return self if classify is None else replace(self, classify=classify)


BUILT_IN = ErrorRules()


def apply_rules(rules: ErrorRules, exc: BaseException, built_in: Failure) -> Failure:
    """The failure for *exc*. give_up_on= comes first, then retry_on=, then the application's rule.

    A rule that raises does not apply; the failure then names what it raised.
    """
    raised: list[str] = []
    failure = _decide(rules, exc, built_in, raised)
    if raised:
        # The failure may be the handler's own, which third parties may have declared without it.
        context = getattr(failure, "context", None)
        if isinstance(context, dict):
            failure.context = {**context, "rule_raised": raised[0]}
    return failure


def _decide(rules: ErrorRules, exc: BaseException, built_in: Failure, raised: list[str]) -> Failure:
    if _matches(rules.give_up_on, exc, raised):
        # What is declared as final is not a bug, so it does not page an operator.
        is_open = built_in.retryable or (type(built_in) is Defect and built_in is not exc)
        return _as(Permanent, exc, built_in) if is_open else built_in
    if _matches(rules.retry_on, exc, raised):
        return built_in if built_in.retryable else _as(Transient, exc, built_in)
    if rules.classify is None:
        return built_in
    try:
        found = rules.classify(exc)
        if found is None or isinstance(found, Failure):
            return found or built_in
        if isinstance(found, type) and issubclass(found, Failure):
            return _as(found, exc, built_in)
        raised.append("NoErrorClass")
    except Exception as wrong:
        raised.append(type(wrong).__name__)
    return built_in


def _as(kind: type[Failure], exc: BaseException, built_in: Failure) -> Failure:
    """A failure of *kind* that keeps the status, the class and the delay of *built_in*."""
    context = getattr(built_in, "context", {})
    failure = kind(**{"exception": type(exc).__name__, **context})
    if isinstance(failure, Transient) and failure.retry_after is None:
        failure.retry_after = (
            built_in.retry_after if isinstance(built_in, Transient) else None
        ) or retry_after_of_response(exc)
    return failure


def _matches(matches: tuple[ErrorMatch, ...], exc: BaseException, raised: list[str]) -> bool:
    for match in matches:
        try:
            if _matches_one(match, exc):
                return True
        except Exception as wrong:
            raised.append(type(wrong).__name__)
    return False


def _matches_one(match: ErrorMatch, exc: BaseException) -> bool:
    if isinstance(match, type):
        return isinstance(exc, match)
    if not isinstance(match, str):
        return match(exc) is True
    if any(f"{kind.__module__}.{kind.__qualname__}" == match for kind in type(exc).__mro__):
        return True
    # A package may export a class under a shorter name. Nothing is imported for this.
    package, _, name = match.rpartition(".")
    found = vars(sys.modules[package]).get(name) if package in sys.modules else None
    return isinstance(found, type) and isinstance(exc, found)


def read_rules(where: str, retry_on: object, give_up_on: object) -> ErrorRules:
    """Read ``retry_on=`` and ``give_up_on=`` of a declaration. Raises ConfigError."""
    if retry_on is None and give_up_on is None:
        return BUILT_IN
    return ErrorRules(
        _read_matches(where, "retry_on", retry_on), _read_matches(where, "give_up_on", give_up_on)
    )


def _read_matches(where: str, option: str, given: object) -> tuple[ErrorMatch, ...]:
    if given is None:
        return ()
    several = isinstance(given, (list, tuple, set, frozenset))
    found: tuple[Any, ...] = tuple(given) if several else (given,)  # type: ignore[arg-type]
    for one in found:
        if problem := _problem_of(one):
            raise ConfigError(f"{where}: {option}= {problem}")
    return found


def _problem_of(match: object) -> str | None:
    if isinstance(match, type):
        if not issubclass(match, BaseException):
            return f"takes exception classes; {match.__name__[:100]} is none."
        if issubclass(match, (Signal, LeaseLost)):
            return f"cannot contain {match.__name__[:100]}, which is not an error of the handler."
        return None
    if isinstance(match, str):
        if _CLASS_NAME.fullmatch(match) and len(match) <= 300:
            return None
        return "takes names of classes with their module, like 'shop.errors.PrinterJam'."
    if not callable(match):
        return (
            "takes exception classes, their names like 'shop.errors.PrinterJam', or a function of"
            f" the exception, not {type(match).__name__[:100]}."
        )
    return None if takes_exception(match) else "takes plain functions with one parameter."


def takes_exception(function: object) -> bool:
    """Whether *function* is a plain function that can be called with one argument."""
    if not callable(function) or inspect.iscoroutinefunction(function):
        return False
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:
        # Some built-in functions have no signature.
        return True
    return True


def read_classifier(given: object) -> Classifier | None:
    """Read ``classify_error=`` of an application. Raises ConfigError."""
    if given is None or (takes_exception(given) and not isinstance(given, type)):
        return given  # type: ignore[return-value]
    raise ConfigError(
        "classify_error= must be a plain function of the exception that returns an error class, or"
        " None for the built-in rule."
    )
