"""The error class of a failure, and whether it is retried."""

from __future__ import annotations

import socket
import sqlite3
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import asyncpg
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import (
    AuthDenied,
    ConfigError,
    ConfigInvalid,
    Defect,
    Failure,
    Forbidden,
    Gone,
    InvalidJob,
    JobNotFound,
    NetworkTimeout,
    Permanent,
    PolicyRejected,
    RateLimited,
    RuleViolated,
    SchemaInvalid,
    StoreDown,
    Transient,
    UpstreamDown,
    UpstreamError,
    WriteConflict,
)
from holdfast.engine.classify import (
    classify,
    failure_of_status,
    fault_of,
    retry_after_of,
    safe_context,
    safe_stack,
)
from holdfast.engine.job import State
from holdfast.errors import RuleBroken, StoreBusy, StoreUnavailable
from tests.pure.test_redact import PLANTS, Planted

CANARY = "canary-7f3a"


class Sqlstate(Exception):
    """A driver's error, known only by its SQLSTATE."""

    def __init__(self, sqlstate: str) -> None:
        self.sqlstate = sqlstate


def of_psycopg2(name: str) -> type[Exception]:
    """An error class as psycopg2 has it, without psycopg2."""
    return type(name, (Exception,), {"pgcode": None, "__module__": "psycopg2"})


def caused(exc: Exception, cause: Exception) -> Exception:
    exc.__cause__ = cause
    return exc


@pytest.mark.req("R-01")
@pytest.mark.parametrize(
    ("exc", "failure"),
    [
        pytest.param(TimeoutError(), NetworkTimeout, marks=pytest.mark.req("R-02", "R-12")),
        pytest.param(socket.gaierror(), NetworkTimeout, marks=pytest.mark.req("R-02")),
        pytest.param(ConnectionResetError(), NetworkTimeout, marks=pytest.mark.req("R-02")),
        pytest.param(ConnectionRefusedError(), NetworkTimeout, marks=pytest.mark.req("R-02")),
        pytest.param(BrokenPipeError(), NetworkTimeout, marks=pytest.mark.req("R-02")),
        pytest.param(UpstreamDown(), UpstreamDown, marks=pytest.mark.req("R-02")),
        pytest.param(RateLimited(), RateLimited, marks=pytest.mark.req("R-03")),
        pytest.param(UpstreamError(), UpstreamError, marks=pytest.mark.req("R-04")),
        pytest.param(WriteConflict(), WriteConflict, marks=pytest.mark.req("R-05")),
        pytest.param(StoreBusy("x"), WriteConflict, marks=pytest.mark.req("R-05", "R-12")),
        pytest.param(StoreDown("x"), StoreUnavailable, marks=pytest.mark.req("R-12")),
        pytest.param(Sqlstate("08006"), StoreUnavailable, marks=pytest.mark.req("R-12")),
        pytest.param(Sqlstate("40001"), WriteConflict, marks=pytest.mark.req("R-05")),
        pytest.param(Sqlstate("40P01"), WriteConflict, marks=pytest.mark.req("R-05")),
        pytest.param(Sqlstate("53300"), StoreUnavailable, marks=pytest.mark.req("R-12")),
        pytest.param(Sqlstate("57P01"), StoreUnavailable, marks=pytest.mark.req("R-12")),
        pytest.param(
            psycopg.OperationalError("server closed the connection"),
            StoreUnavailable,
            marks=pytest.mark.req("R-12"),
        ),
        pytest.param(
            psycopg.errors.SerializationFailure(), WriteConflict, marks=pytest.mark.req("R-05")
        ),
        pytest.param(Sqlstate("25P03"), StoreUnavailable, marks=pytest.mark.req("R-12")),
        pytest.param(Sqlstate("25P04"), StoreUnavailable, marks=pytest.mark.req("R-12")),
        pytest.param(Sqlstate("25006"), StoreUnavailable, marks=pytest.mark.req("R-12")),
        pytest.param(Sqlstate("55P03"), WriteConflict, marks=pytest.mark.req("R-05")),
        pytest.param(
            psycopg.DatabaseError("straight from libpq"),
            StoreUnavailable,
            marks=pytest.mark.req("R-12"),
        ),
        pytest.param(
            psycopg.errors.ConnectionTimeout(), StoreUnavailable, marks=pytest.mark.req("R-12")
        ),
        pytest.param(
            of_psycopg2("InterfaceError")("connection already closed"),
            StoreUnavailable,
            marks=pytest.mark.req("R-12"),
        ),
        pytest.param(
            of_psycopg2("OperationalError")("SSL SYSCALL error: EOF detected"),
            StoreUnavailable,
            marks=pytest.mark.req("R-12"),
        ),
        pytest.param(
            caused(RuntimeError("not saved"), StoreDown("x")),
            StoreUnavailable,
            marks=pytest.mark.req("R-12"),
        ),
        pytest.param(
            caused(ValueError("not saved"), Sqlstate("40001")),
            WriteConflict,
            marks=pytest.mark.req("R-05"),
        ),
    ],
)
def test_what_may_pass_is_tried_again(exc: BaseException, failure: type[Failure]) -> None:
    fault = fault_of(exc, stage="run", attempt=1)

    assert (fault.error_class, fault.retryable) == (failure.error_class, True)


@pytest.mark.req("R-01")
@pytest.mark.parametrize(
    ("exc", "failure"),
    [
        pytest.param(SchemaInvalid(), SchemaInvalid, marks=pytest.mark.req("R-06")),
        pytest.param(InvalidJob({"a": "b"}), SchemaInvalid, marks=pytest.mark.req("R-06")),
        pytest.param(AuthDenied(), AuthDenied, marks=pytest.mark.req("R-07")),
        pytest.param(Gone(), Gone, marks=pytest.mark.req("R-08")),
        pytest.param(JobNotFound("x"), Gone, marks=pytest.mark.req("R-08")),
        pytest.param(PolicyRejected(), PolicyRejected, marks=pytest.mark.req("R-09")),
        pytest.param(ConfigInvalid(), ConfigInvalid, marks=pytest.mark.req("R-10")),
        pytest.param(ConfigError("x"), ConfigInvalid, marks=pytest.mark.req("R-10")),
        pytest.param(AttributeError("None"), Defect, marks=pytest.mark.req("R-10")),
        pytest.param(AssertionError(), Defect, marks=pytest.mark.req("R-10")),
        pytest.param(KeyError("x"), Defect, marks=pytest.mark.req("R-10")),
        pytest.param(OSError("x"), Defect, marks=pytest.mark.req("R-10")),
        pytest.param(RuleViolated(), RuleViolated, marks=pytest.mark.req("R-11")),
        pytest.param(Forbidden("x"), RuleViolated, marks=pytest.mark.req("R-11")),
        pytest.param(RuleBroken("edge", "x"), RuleViolated, marks=pytest.mark.req("R-11")),
        pytest.param(Sqlstate("42601"), Defect, marks=pytest.mark.req("R-10")),
        pytest.param(
            caused(Sqlstate("42601"), Sqlstate("08006")), Defect, marks=pytest.mark.req("R-10")
        ),
        pytest.param(
            psycopg.InterfaceError("the cursor is closed"), Defect, marks=pytest.mark.req("R-10")
        ),
        pytest.param(
            psycopg.errors.PipelineAborted("pipeline aborted"),
            Defect,
            marks=pytest.mark.req("R-10"),
        ),
        pytest.param(
            asyncpg.InterfaceError("cannot perform operation: another operation is in progress"),
            Defect,
            marks=pytest.mark.req("R-10"),
        ),
        pytest.param(
            sqlite3.OperationalError("no such table: x"), Defect, marks=pytest.mark.req("R-10")
        ),
        pytest.param(
            ExceptionGroup("two", [StoreDown("x"), KeyError("x")]),
            Defect,
            marks=pytest.mark.req("R-10"),
        ),
        pytest.param(Permanent(), Permanent, marks=pytest.mark.req("R-01")),
    ],
)
def test_what_cannot_pass_is_not_tried_again(exc: BaseException, failure: type[Failure]) -> None:
    fault = fault_of(exc, stage="run", attempt=1)

    assert (fault.error_class, fault.retryable) == (failure.error_class, False)


@pytest.mark.req("R-12")
def test_a_locked_sqlite_file_of_the_handler_is_a_lost_race(tmp_path: object) -> None:
    path = f"{tmp_path}/own.db"
    first = sqlite3.connect(path, isolation_level=None)
    second = sqlite3.connect(path, isolation_level=None, timeout=0)
    first.execute("BEGIN IMMEDIATE")

    with pytest.raises(sqlite3.OperationalError) as caught:
        second.execute("BEGIN IMMEDIATE")

    assert isinstance(classify(caught.value), WriteConflict)
    first.close()
    second.close()


@pytest.mark.req("R-10")
def test_bugs_and_bad_configuration_page_the_operator_and_ordinary_failures_do_not() -> None:
    loud = {exc for exc in (Defect, ConfigInvalid) if exc.pages_operator}
    quiet = {
        exc
        for exc in (SchemaInvalid, AuthDenied, Gone, PolicyRejected, RuleViolated, NetworkTimeout)
        if not exc.pages_operator
    }

    assert (len(loud), len(quiet)) == (2, 6)


STATUSES: list[tuple[int, type[Failure], str]] = [
    (400, SchemaInvalid, "R-06"),
    (401, AuthDenied, "R-07"),
    (403, AuthDenied, "R-07"),
    (404, Gone, "R-08"),
    (408, NetworkTimeout, "R-02"),
    (410, Gone, "R-08"),
    (422, SchemaInvalid, "R-06"),
    (425, UpstreamDown, "R-02"),
    (429, RateLimited, "R-03"),
    (500, UpstreamError, "R-04"),
    (501, UpstreamError, "R-04"),
    (502, UpstreamDown, "R-02"),
    (503, UpstreamDown, "R-02"),
    (504, UpstreamDown, "R-02"),
    (529, UpstreamError, "R-04"),
]


@pytest.mark.parametrize(
    ("status", "failure"),
    [pytest.param(code, failure, marks=pytest.mark.req(row)) for code, failure, row in STATUSES],
)
def test_an_http_status_means_one_failure(status: int, failure: type[Failure]) -> None:
    assert failure_of_status(status) is failure


@pytest.mark.req("R-05", "R-11")
def test_a_conflict_is_a_lost_race_only_where_repeating_is_harmless() -> None:
    assert failure_of_status(409, idempotent=True) is WriteConflict
    assert failure_of_status(409) is RuleViolated


@given(st.integers(400, 599), st.booleans())
def test_every_http_error_is_either_retryable_or_not(status: int, idempotent: bool) -> None:
    failure = failure_of_status(status, idempotent=idempotent)

    assert issubclass(failure, Transient) != issubclass(failure, Permanent)
    assert failure.retryable == (
        status in (408, 425, 429) or status >= 500 or (status == 409 and idempotent)
    )


def raise_deeply(exc: BaseException) -> None:
    secret_local = CANARY
    try:
        raise ValueError(f"inner {secret_local}")
    except ValueError as inner:
        raise exc from inner


@pytest.mark.parametrize(
    "exc",
    [
        RuntimeError(f"the message says {CANARY}"),
        KeyError(CANARY),
        TimeoutError(CANARY, 7),
        NetworkTimeout(f"provider echoed {CANARY}"),
        SchemaInvalid(f"{CANARY}", field_name=f"free text {CANARY}"),
        UnicodeDecodeError("utf-8", CANARY.encode(), 0, 1, CANARY),
    ],
)
def test_nothing_of_a_message_or_its_arguments_reaches_what_is_stored(exc: Exception) -> None:
    with pytest.raises(type(exc)) as caught:
        raise_deeply(exc)

    fault = fault_of(caught.value, stage="run", attempt=1)

    assert CANARY not in repr(fault)
    assert "inner" not in fault.stack
    assert "raise_deeply" in fault.stack
    assert "builtins.ValueError" in fault.stack


def test_context_keeps_ids_and_codes_and_hashes_everything_else() -> None:
    safe = safe_context(
        {
            "status": 503,
            "flag": True,
            "request": "req_01HX/abc-7",
            "text": "Dear neighbour, please",
            "password": "hunter2",
            "token": "sk-" + "a" * 40,
            "bad name!": "x",
            "long": "a" * 200,
        }
    )

    assert (safe["status"], safe["flag"], safe["request"]) == (503, 1, "req_01HX/abc-7")
    for name in ("text", "long"):
        assert str(safe[name]).startswith("hash:")
    assert safe["password"] == safe["token"] == "[secret]"
    assert "bad name!" not in safe


def test_the_stored_sentence_is_a_stable_code_with_stage_and_attempt() -> None:
    fault = fault_of(RateLimited("slow down", status=429), stage="llm", attempt=3)

    assert fault.last_error == "RATE_LIMITED stage=llm attempt=3 status=429"


def test_a_failure_that_forgot_its_own_constructor_is_still_classified() -> None:
    class Sloppy(Permanent):
        error_class = "SLOPPY"

        def __init__(self, order: int) -> None:
            self.order = order

    fault = fault_of(Sloppy(7), stage="run", attempt=1)

    assert (fault.error_class, fault.retryable, fault.context) == ("SLOPPY", False, {})


@pytest.mark.req("D-08", "D-10")
@given(st.one_of(*PLANTS.values()))
def test_context_holds_nothing_private_whatever_it_is_filed_under(planted: Planted) -> None:
    text, needle = planted

    safe = safe_context({"note": text, "code": needle, text: 1})

    assert needle not in repr({name: value for name, value in safe.items() if name != "code"})
    # A fragment without its context is an ordinary word, unless it has a shape.
    assert str(safe["code"]) == needle or str(safe["code"]).startswith(("[", "hash:"))


@pytest.mark.req("D-08")
def test_context_keeps_what_programs_use_as_ids_and_codes() -> None:
    job_id = uuid.UUID("0198c0de-0000-7000-8000-00000000000a")
    day = datetime(2026, 1, 5, 9, tzinfo=UTC)

    safe = safe_context(
        {"job": job_id, "at": day, "seconds": 1.5, "price": Decimal("9.90"), "of": State.FAILED}
    )

    assert safe == {
        "job": str(job_id), "at": "2026-01-05T09:00:00+00:00", "seconds": "1.5", "price": "9.90",
        "of": "failed",
    }  # fmt: skip


@pytest.mark.req("D-10")
def test_of_what_is_no_id_and_no_number_context_keeps_the_kind_only() -> None:
    class Reply:
        def __str__(self) -> str:
            raise AssertionError("nobody may ask")

    safe = safe_context(
        {"reply": Reply(), "body": {"a": CANARY}, "raw": CANARY.encode(), "huge": 10**400,
         "card": 4111111111111111, "phone": "+4930123456789", "mail": "ada@example.com"}
    )  # fmt: skip

    assert safe == {
        "reply": "[Reply]", "body": "[dict]", "raw": "[bytes]", "huge": "[number]",
        "card": "[card]", "phone": "[phone]", "mail": "[email]",
    }  # fmt: skip


def test_what_is_no_context_at_all_is_left_out() -> None:
    class Odd(Permanent):
        context = (("a", CANARY),)  # type: ignore[assignment]

        def __init__(self) -> None:
            pass

    assert fault_of(Odd(), stage="run", attempt=1).context == {}
    assert len(safe_context({f"field{number}": number for number in range(10_000)})) == 20


HOSTILE_NAMES = [
    "x" * 5_000_000,
    "<script>alert(1)</script>",
    "\x1b[2J\x1b[31mred",
    "a\nb: forged",
    "\u202egnp.exe",
    "Dear neighbour your dog",
    "AKIAIOSFODNN7EXAMPLE",
    "sk_live_" + "a1B2" * 6,
    "",
]


@pytest.mark.req("D-07", "D-11")
@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda name: ascii(name[:20]))
def test_a_name_that_is_none_or_private_never_reaches_the_stack(name: str) -> None:
    hostile = type("Hostile", (Exception,), {"__module__": name})
    hostile.__qualname__ = hostile.__name__ = name.replace("\x00", "") or "x y"
    code = compile("def boom(exc): raise exc", "<string>", "exec")
    space: dict[str, object] = {"__name__": name}
    exec(code, space)
    boom = space["boom"]
    boom.__code__ = boom.__code__.replace(co_name=name)  # type: ignore[attr-defined]
    with pytest.raises(Exception) as caught:
        boom(hostile(CANARY))  # type: ignore[operator]

    fault = fault_of(caught.value, stage="run", attempt=1)

    assert fault.error_class == "DEFECT"
    assert len(fault.stack) < 2_000
    assert len(fault.last_error) < 300
    for text in (fault.stack, fault.last_error, *map(str, fault.context.values())):
        assert name == "" or name[:200] not in text
        assert all(line.isprintable() for line in text.split("\n"))
        assert "<script" not in text
    assert "unnamed" in fault.stack or "xxx…" in fault.stack


@pytest.mark.parametrize(
    ("word", "stored"),
    [
        ("PRINTER_JAM", "PRINTER_JAM"),
        ("printer jam", "TRANSIENT"),
        ("X" * 65, "TRANSIENT"),
        ("E\x1b[31m", "TRANSIENT"),
        ("<B>", "TRANSIENT"),
        ("AKIAIOSFODNN7EXAMPLE", "TRANSIENT"),
        (7, "TRANSIENT"),
        (None, "TRANSIENT"),
    ],
)
def test_an_error_class_is_one_word_or_that_of_its_kind(word: object, stored: str) -> None:
    jam = Transient()
    jam.error_class = word  # type: ignore[misc, assignment]

    fault = fault_of(jam, stage="run", attempt=1)

    assert (fault.error_class, fault.retryable) == (stored, True)
    assert fault.last_error == f"{stored} stage=run attempt=1"


@pytest.mark.parametrize("word", ["printer jam", "Jam", "", "7UP", "X" * 65, None])
def test_a_kind_of_failure_is_declared_with_one_word_or_not_at_all(word: object) -> None:
    with pytest.raises(ConfigError, match="PrinterJam: error_class must be up to 64 capitals"):
        type("PrinterJam", (Transient,), {"error_class": word})


class Breaks(Transient):
    """Raises on every access."""

    @property
    def context(self) -> dict[str, int | str]:
        raise RuntimeError(CANARY)

    @context.setter
    def context(self, value: object) -> None:
        pass

    @property
    def retry_after(self) -> timedelta | None:
        raise RuntimeError(CANARY)

    @retry_after.setter
    def retry_after(self, value: object) -> None:
        pass


def test_an_exception_that_breaks_when_it_is_looked_at_is_a_defect() -> None:
    fault = fault_of(Breaks(), stage="run", attempt=2)

    assert (fault.error_class, fault.retryable) == ("DEFECT", False)
    assert fault.last_error == "DEFECT stage=run attempt=2 unreadable=1"
    assert retry_after_of(Breaks()) is None
    assert retry_after_of(RateLimited(retry_after=3)) == timedelta(seconds=3)
    assert retry_after_of(ValueError()) is None


@pytest.mark.req("D-07")
def test_the_stack_of_a_group_names_what_is_in_it() -> None:
    try:
        try:
            raise KeyError(CANARY)
        except KeyError as inner:
            raise ExceptionGroup(CANARY, [inner, ValueError(CANARY)]) from None
    except ExceptionGroup as group:
        stack = safe_stack(group)

    assert [line for line in stack.splitlines() if not line.startswith(" ")] == [
        "builtins.ExceptionGroup", "builtins.KeyError", "builtins.ValueError",
    ]  # fmt: skip
    assert CANARY not in stack


@pytest.mark.req("D-07")
def test_a_long_or_circular_chain_and_a_deep_stack_are_cut() -> None:
    def dive(depth: int) -> None:
        if depth:
            dive(depth - 1)
        raise ValueError(CANARY)

    with pytest.raises(ValueError) as caught:
        dive(200)
    deep = safe_stack(caught.value)
    first, second = ValueError(), KeyError()
    first.__cause__, second.__cause__ = second, first
    circle = safe_stack(first)
    link: BaseException = ValueError()
    for _ in range(100):
        above = RuntimeError()
        above.__cause__ = link
        link = above

    assert len(deep.splitlines()) == 21
    assert deep.endswith(" in dive")
    assert circle == "builtins.ValueError\nbuiltins.KeyError"
    assert len(safe_stack(link).splitlines()) == 5
