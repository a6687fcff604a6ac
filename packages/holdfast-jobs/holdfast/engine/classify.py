"""Classify exceptions as failures, and decide whether they are retried. Pure."""

from __future__ import annotations

import re
import socket
import traceback
from collections import deque
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from types import TracebackType
from typing import assert_never
from uuid import UUID

from holdfast.document import stable_hash
from holdfast.engine.error_rules import BUILT_IN, ErrorRules, apply_rules
from holdfast.engine.job import ONLY_STAGE, Fault
from holdfast.engine.network_errors import failure_of_network, network_links
from holdfast.engine.network_errors import failure_of_status as failure_of_status
from holdfast.errors import (
    ConfigError,
    ConfigInvalid,
    Defect,
    Failure,
    Forbidden,
    Gone,
    InvalidArtifact,
    InvalidJob,
    NetworkTimeout,
    NotFound,
    RuleBroken,
    RuleViolated,
    SchemaInvalid,
    StoreBusy,
    StoreDown,
    StoreUnavailable,
    Transient,
    WriteConflict,
)
from holdfast.redact import harmless, redact
from holdfast.sensitive import is_secret_name
from holdfast.store.denied import INSUFFICIENT_PRIVILEGE, TABLES, denied_object
from holdfast.store.disconnect import Reading, links_of, read_client_error, sqlstate_of
from holdfast.store.permits import PoolTimeout

ERROR_CLASS = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
LAST_ERROR_LIMIT = 1_000
STACK_LIMIT = 10_000
CONTEXT_FIELDS = 20
# Smaller numbers are too short for a card number.
SHORTEST_ACCOUNT = 10**12
LINKS = 5
# The placeholder for a name that is missing or private.
UNNAMED = "unnamed"

# The first match wins. An exception that is not listed is a Defect.
EXCEPTIONS: tuple[tuple[type[BaseException], type[Failure]], ...] = (
    (TimeoutError, NetworkTimeout),
    (socket.gaierror, NetworkTimeout),
    (ConnectionError, NetworkTimeout),
    (StoreBusy, WriteConflict),
    (StoreDown, StoreUnavailable),
    (InvalidJob, SchemaInvalid),
    (InvalidArtifact, SchemaInvalid),
    (Forbidden, RuleViolated),
    (RuleBroken, RuleViolated),
    (NotFound, Gone),
    (ConfigError, ConfigInvalid),
)


def classify(exc: BaseException, rules: ErrorRules = BUILT_IN) -> Failure:
    """The failure for *exc* by *rules* and the built-in rule. Unclassified ones are Defects."""
    return apply_rules(rules, exc, _classify(exc))


def _classify(exc: BaseException) -> Failure:
    """The failure for *exc* by the built-in rule."""
    if isinstance(exc, Failure):
        return exc
    for known, failure in EXCEPTIONS:
        if isinstance(exc, known):
            return failure()
    return (
        _of_database(exc)
        or _of_rights(exc)
        or (_of_group(exc) if isinstance(exc, BaseExceptionGroup) else None)
        or failure_of_network(exc)
        or _of_group(exc)
        or Defect(exception=type(exc).__name__)
    )


def _of_rights(exc: BaseException) -> Failure | None:
    """The configuration failure if the role may not run a statement, else None."""
    denied = denied_object(exc)
    if denied is None:
        return None
    if not denied.has_plain_name:
        return ConfigInvalid(sqlstate=INSUFFICIENT_PRIVILEGE)
    kind = "table" if denied.kind in ("", *TABLES) else denied.kind.partition(" ")[0]
    return ConfigInvalid(sqlstate=INSUFFICIENT_PRIVILEGE, **{kind: denied.name})


def _of_database(exc: BaseException) -> Failure | None:
    """The transient database failure that caused *exc*, if there is one.

    The nearest conclusive error decides: an error that the server returned after a lost connection
    is about the statement.
    """
    for link in links_of(exc):
        if isinstance(link, StoreBusy):
            return WriteConflict()
        if isinstance(link, StoreDown):
            return StoreUnavailable()
        reading = read_client_error(link)
        if reading is None:
            continue
        failure: type[Transient]
        match reading:
            case Reading.LOST:
                failure = StoreUnavailable
            case Reading.RACE:
                failure = WriteConflict
            case Reading.OTHER:
                return None
            case _:
                assert_never(reading)
        sqlstate = sqlstate_of(link)
        return failure() if sqlstate is None else failure(sqlstate=sqlstate)
    return None


def lacks_connection(exc: BaseException) -> bool:
    """Whether *exc* was raised because every connection of this process was in use."""
    return not isinstance(exc, Failure) and any(
        isinstance(link, PoolTimeout) for link in links_of(exc)
    )


def _of_group(exc: BaseException) -> Failure | None:
    """The failure of an exception group, if every exception in it may be retried.

    The longest delay that one of them asks for applies. The group may be the cause of *exc*.
    """
    group = next((one for one in network_links(exc) if isinstance(one, ExceptionGroup)), None)
    if group is None or not isinstance(exc, Exception):
        return None
    failures = [_classify(one) for one in group.exceptions]
    if not all(failure.retryable for failure in failures):
        return None
    return max(failures, key=lambda one: retry_after_of(one) or timedelta(0))


def failure_of(exc: BaseException, rules: ErrorRules = BUILT_IN) -> Failure:
    """Like :func:`classify`, but never raises."""
    try:
        return classify(exc, rules)
    except Exception:
        # A third-party class may raise when it is inspected, and its job must still be settled.
        return Defect(unreadable=1)


def fault_of(
    exc: BaseException, *, stage: str, attempt: int, failure: Failure | None = None
) -> Fault:
    """The stored form of an exception: no message, no arguments, no literals. Never raises.

    *failure* is what it was classified as; by default the built-in rule applies.
    """
    try:
        found = failure_of(exc) if failure is None else failure
        return _fault(found, safe_stack(exc), stage, attempt)
    except Exception:
        return _fault(Defect(unreadable=1), UNNAMED, stage, attempt)


def _fault(failure: Failure, stack: str, stage: str, attempt: int) -> Fault:
    error_class = safe_class(failure)
    # Third-party subclasses may not call the constructor of Failure.
    context = safe_context(getattr(failure, "context", {}))
    if type(failure) is Defect and "exception" in context:
        remedy = remedy_of(str(context["exception"]), stage)
        # A name that was redacted is no class to declare.
        if _is_command(remedy):
            context["remedy"] = remedy
    said = " ".join(f"{name}={value}" for name, value in context.items())
    last_error = f"{error_class} stage={harmless(stage, 100)} attempt={attempt} {said}".rstrip()
    return Fault(
        error_class=error_class,
        last_error=harmless(last_error, LAST_ERROR_LIMIT),
        retryable=bool(failure.retryable),
        context=context,
        stack=stack,
        pages_operator=bool(failure.pages_operator),
    )


def retry_after_of(exc: BaseException) -> timedelta | None:
    """The delay that the other side requested, if any. Third-party subclasses may set any value."""
    try:
        found = exc.retry_after if isinstance(exc, Transient) else None
    except Exception:
        return None
    return found if isinstance(found, timedelta) else None


def safe_class(failure: Failure) -> str:
    """The stable class of the failure; if it is malformed, that of its base class."""
    kinds = (vars(kind).get("error_class") for kind in type(failure).__mro__)
    for word in (failure.error_class, *kinds):
        if isinstance(word, str) and ERROR_CLASS.fullmatch(word) and safe_name(word) == word:
            return word
    return Defect.error_class


_SAFE_TEXT = re.compile(r"[A-Za-z0-9._:/+-]{1,120}")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


def safe_context(context: Mapping[str, object]) -> dict[str, int | str]:
    """The fields that may be stored: numbers, and short text that looks like an id or a code."""
    safe: dict[str, int | str] = {}
    if not isinstance(context, Mapping):
        return safe
    for name, value in islice(context.items(), CONTEXT_FIELDS):
        if isinstance(name, str) and _FIELD.fullmatch(name) and safe_name(name) == name:
            safe[name] = (
                "[secret]"
                if is_secret_name(name)
                else value
                if name == "remedy" and isinstance(value, str) and _is_command(value)
                else _safe_value(value)
            )
    return safe


def remedy_of(exception: str, stage: str) -> str:
    """The line of code that makes the engine retry this class of exceptions."""
    decorator = "@hf.job" if stage == ONLY_STAGE else "@pipeline.stage"
    return f"{decorator}(…, retry_on=({exception},))"


# A holdfast command with its arguments, each of which looks like an id; or a declaration.
_COMMAND = re.compile(
    r"holdfast(?: [A-Za-z0-9._-]{1,130}){1,3}"
    r"|@(?:hf\.job|pipeline\.stage)\(…, retry_on=\([^\W\d]\w{0,99},\)\)"
)


def _is_command(text: str) -> bool:
    return _COMMAND.fullmatch(text) is not None and redact(text) == text


def _safe_value(value: object) -> int | str:
    if isinstance(value, int) and abs(value) < SHORTEST_ACCOUNT:
        return int(value)
    if isinstance(value, int) and abs(value) >= 2**63:
        # JSON parsers read numbers as 64 bits.
        return "[number]"
    if not isinstance(value, (str, int, float, Decimal, UUID, date)):
        return f"[{safe_name(type(value).__name__)}]"
    text = value.isoformat() if isinstance(value, date) else str(value)
    plain = redact(text)
    if plain == text and isinstance(value, int):
        return int(value)
    if _SAFE_TEXT.fullmatch(text) or _MARK.fullmatch(plain):
        return plain
    # Redacted text is not even hashed: a telephone number can be guessed from its hash.
    return "hash:" + stable_hash(plain)[:12]


_MARK = re.compile(r"\[[a-z]{1,20}\]")


def safe_stack(exc: BaseException, limit: int = 20) -> str:
    """The error chain as class, module, line and function: source and messages may quote data."""
    lines: list[str] = []
    seen: set[int] = set()
    todo: deque[BaseException] = deque([exc])
    while todo and len(seen) < LINKS:
        link = todo.popleft()
        if id(link) in seen:
            continue
        seen.add(id(link))
        lines.append(f"{safe_name(type(link).__module__)}.{safe_name(type(link).__qualname__)}")
        lines.extend(_frames(link.__traceback__, limit))
        following = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
        if following is not None:
            todo.append(following)
        if isinstance(link, BaseExceptionGroup):
            todo.extend(link.exceptions[:LINKS])
    stack = "\n".join(lines)
    return stack if len(stack) <= STACK_LIMIT else stack[: STACK_LIMIT - 1] + "…"


def _frames(trace: TracebackType | None, limit: int) -> list[str]:
    found: deque[str] = deque(maxlen=limit)
    for frame, line in traceback.walk_tb(trace):
        module = safe_name(frame.f_globals.get("__name__"))
        found.append(f"  {module}:{line} in {safe_name(frame.f_code.co_name)}")
    return list(found)


_PART = r"(?:[^\W\d][\w-]*+|<(?:locals|lambda|module|listcomp|setcomp|dictcomp|genexpr)>)"
_NAME = re.compile(rf"{_PART}(?:\.{_PART})*+")


def safe_name(value: object) -> str:
    """The name of a class, module or function, if it is an identifier: code can have any name."""
    return _safe_name(value[:400]) if isinstance(value, str) else UNNAMED


# Names repeat, and checking one takes 20 microseconds.
@lru_cache(maxsize=2_048)
def _safe_name(name: str) -> str:
    if not _NAME.fullmatch(name) or redact(name) != name:
        return UNNAMED
    return name if len(name) <= 120 else name[:119] + "…"
