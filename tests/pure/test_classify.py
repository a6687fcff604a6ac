"""Which failure is it, and may it be tried again?"""

from __future__ import annotations

import socket
import sqlite3

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
from holdfast.engine.classify import classify, failure_of_status, fault_of, safe_context
from holdfast.errors import RuleBroken, StoreBusy, StoreUnavailable

CANARY = "canary-7f3a"


class Sqlstate(Exception):
    """A driver's error, known only by its SQLSTATE."""

    def __init__(self, sqlstate: str) -> None:
        self.sqlstate = sqlstate


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
    for name in ("text", "password", "token", "long"):
        assert str(safe[name]).startswith("hash:")
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
