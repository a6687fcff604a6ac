"""Rules of an application for exceptions: retry_on=, give_up_on= and classify_error=."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    ConfigError,
    Context,
    Failure,
    FakeClock,
    Holdfast,
    JobCanceled,
    LeaseLost,
    RateLimited,
    RetryPolicy,
    Settings,
    Snooze,
    State,
    Transient,
    UpstreamDown,
)
from holdfast.engine.classify import failure_of, fault_of
from holdfast.engine.error_rules import ErrorRules
from holdfast.errors import HandlerTimeout
from tests.story import ORG

CANARY = "canary-7f3a"
NOW = RetryPolicy(steps=(timedelta(0),))


class PrinterJam(Exception):
    """An application's own error."""


class PaperJam(PrinterJam):
    pass


class HTTPStatusError(Exception):
    """An error with a response, as HTTP clients raise it."""

    def __init__(self, status: int) -> None:
        self.response = type("Response", (), {"status_code": status, "headers": {}})()
        self.response.headers = {"Retry-After": "9"}


def raised(exc: BaseException, **rules: Any) -> Failure:
    return failure_of(exc, ErrorRules(**rules))


@pytest.mark.req("R-01")
@pytest.mark.parametrize(
    "match",
    [
        PrinterJam,
        f"{__name__}.PrinterJam",
        f"{__name__}.PaperJam",
        lambda exc: isinstance(exc, PaperJam),
    ],
)
def test_a_match_is_a_class_a_name_or_a_function(match: Any) -> None:
    retried = raised(PaperJam(CANARY), retry_on=(match,))
    left = raised(ValueError(CANARY), retry_on=(match,))

    assert (retried.error_class, retried.context) == ("TRANSIENT", {"exception": "PaperJam"})
    assert left.error_class == "DEFECT"


def test_a_name_may_be_the_one_that_a_package_exports() -> None:
    assert raised(Transient(), give_up_on=("holdfast.Transient",)).error_class == "PERMANENT"
    assert raised(Transient(), give_up_on=("holdfast.Missing",)).error_class == "TRANSIENT"
    assert raised(Transient(), give_up_on=("no_such_module.X",)).error_class == "TRANSIENT"


def test_giving_up_comes_before_retrying_and_both_before_the_rule_of_the_application() -> None:
    def classify(exc: BaseException) -> type[Failure]:
        return RateLimited

    both = raised(PaperJam(), retry_on=(PrinterJam,), give_up_on=(PaperJam,), classify=classify)
    one = raised(PrinterJam(), retry_on=(PrinterJam,), give_up_on=(PaperJam,), classify=classify)
    none = raised(ValueError(), retry_on=(PrinterJam,), give_up_on=(PaperJam,), classify=classify)

    assert [found.error_class for found in (both, one, none)] == [
        "PERMANENT", "TRANSIENT", "RATE_LIMITED",
    ]  # fmt: skip
    assert not both.pages_operator


def test_a_failure_that_a_rule_confirms_keeps_its_class_and_one_it_changes_keeps_its_status() -> (
    None
):
    confirmed = raised(HTTPStatusError(503), retry_on=(HTTPStatusError,))
    changed = raised(HTTPStatusError(404), retry_on=(HTTPStatusError,))
    ended = raised(HTTPStatusError(503), give_up_on=(HTTPStatusError,))
    final = raised(HTTPStatusError(404), give_up_on=(HTTPStatusError,))

    found = [(one.error_class, one.context["status"]) for one in (confirmed, changed, ended, final)]
    assert found == [("UPSTREAM_DOWN", 503), ("TRANSIENT", 404), ("PERMANENT", 503), ("GONE", 404)]
    for failure in (confirmed, changed):
        assert isinstance(failure, Transient)
        assert failure.retry_after == timedelta(seconds=9)


def test_the_rule_of_the_application_returns_a_class_a_failure_or_none() -> None:
    own = UpstreamDown(printer=7)
    answers: dict[type, Any] = {PrinterJam: RateLimited, PaperJam: own}

    def classify(exc: BaseException) -> Any:
        return answers.get(type(exc))

    by_class = raised(PrinterJam(CANARY), classify=classify)

    assert (by_class.error_class, by_class.context) == (
        "RATE_LIMITED", {"exception": "PrinterJam"},
    )  # fmt: skip
    assert raised(PaperJam(CANARY), classify=classify) is own
    assert raised(TimeoutError(), classify=classify).error_class == "NETWORK_TIMEOUT"


def breaks(exc: BaseException) -> Any:
    raise KeyError(CANARY)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"retry_on": (breaks,)}, "KeyError"),
        ({"give_up_on": (breaks,)}, "KeyError"),
        ({"classify": breaks}, "KeyError"),
        ({"classify": lambda exc: "RATE_LIMITED"}, "NoErrorClass"),
        ({"classify": lambda exc: ValueError}, "NoErrorClass"),
    ],
)
def test_a_rule_that_breaks_does_not_apply_and_is_named(rules: Any, said: str) -> None:
    found = raised(TimeoutError(CANARY), **rules)

    assert (found.error_class, found.context) == ("NETWORK_TIMEOUT", {"rule_raised": said})


@pytest.mark.req("R-01", "R-26")
def test_a_job_type_declares_what_is_retried_and_what_is_not(hf: Holdfast) -> None:
    @hf.job("print", max_attempts=2, retry=NOW, retry_on=(PrinterJam,), give_up_on=HandlerTimeout)
    def work(job: Context, payload: Any) -> int:
        if job.attempt == 2:
            return job.attempt
        raise {"jam": PaperJam, "slow": HandlerTimeout, "bug": KeyError}[payload["as"]]

    jobs = [hf.enqueue("print", {"as": one}, org_id=ORG) for one in ("jam", "slow", "bug")]
    hf.worker().run(until_idle=True)

    found = [hf.get(item.id, org_id=ORG) for item in jobs]
    assert [(job.state, job.error_class) for job in found] == [
        (State.COMPLETED, "TRANSIENT"), (State.FAILED, "PERMANENT"), (State.FAILED, "DEFECT"),
    ]  # fmt: skip


def test_a_stage_replaces_the_rules_of_its_pipeline(hf: Holdfast) -> None:
    line = hf.pipeline("line", retry_on=PrinterJam)
    tried: list[str] = []

    @line.stage("first", retry=NOW, max_attempts=2)
    def first(job: Context, payload: Any) -> None:
        tried.append("first")
        if job.attempt == 1:
            raise PrinterJam(CANARY)

    @line.stage("second", retry=NOW, max_attempts=2, retry_on=(ValueError,))
    def second(job: Context, payload: Any) -> None:
        tried.append("second")
        raise PrinterJam(CANARY)

    made = hf.enqueue("line", {}, org_id=ORG)
    hf.worker().run(until_idle=True)

    assert tried == ["first", "first", "second"]
    assert hf.get(made.id, org_id=ORG).error_class == "DEFECT"


def test_an_application_has_one_rule_for_all_of_its_job_types(url: str) -> None:
    def classify(exc: BaseException) -> type[Failure] | None:
        return UpstreamDown if isinstance(exc, PrinterJam) else None

    with Holdfast(settings=Settings(db=url), clock=FakeClock(), classify_error=classify) as hf:

        @hf.job("print", max_attempts=2)
        def work(job: Context, payload: Any) -> None:
            raise PrinterJam(CANARY)

        made = hf.enqueue("print", {}, org_id=ORG)
        hf.worker().run(until_idle=True)
        job = hf.get(made.id, org_id=ORG)

    assert (job.state, job.error_class) == (State.QUEUED, "UPSTREAM_DOWN")


@pytest.mark.req("R-10", "D-10")
def test_a_defect_says_which_line_would_retry_it(hf: Holdfast) -> None:
    events: list[Any] = []
    hf.events.subscribe(events.append)

    @hf.job("print")
    def work(job: Context, payload: Any) -> None:
        raise PrinterJam(CANARY)

    made = hf.enqueue("print", {}, org_id=ORG)
    hf.worker().run(until_idle=True)

    remedy = "@hf.job(…, retry_on=(PrinterJam,))"
    explained = hf.operate(actor="user:ada", role="operator", org_id=ORG).explain(made.id)
    assert hf.get(made.id, org_id=ORG).last_error == (
        f"DEFECT stage=run attempt=1 exception=PrinterJam remedy={remedy}"
    )
    assert explained.next.endswith(f"To retry this exception in future: {remedy}")
    assert remedy in [getattr(event, "remedy", None) for event in events]


@pytest.mark.req("D-07")
@pytest.mark.parametrize(
    "name", ["AKIAIOSFODNN7EXAMPLE", "Dear neighbour", "A,))\nimport os", "x" * 5_000]
)
def test_a_class_name_that_is_private_or_none_is_not_suggested(name: str) -> None:
    exc = type("Odd", (Exception,), {})
    exc.__name__ = name

    assert "remedy" not in fault_of(exc(CANARY), stage="run", attempt=1).context


def test_the_suggestion_for_a_pipeline_names_its_stage_decorator() -> None:
    fault = fault_of(PrinterJam(CANARY), stage="fetch", attempt=1)

    assert fault.context["remedy"] == "@pipeline.stage(…, retry_on=(PrinterJam,))"


async def awaited(exc: BaseException) -> bool:
    return True


WRONG: list[tuple[Any, str]] = [
    (7, "takes exception classes, their names"),
    (int, "takes exception classes; int is none"),
    ("PrinterJam", "takes names of classes with their module"),
    (["shop.errors."], "takes names of classes with their module"),
    ((PrinterJam, None), "takes exception classes, their names"),
    (Snooze, "cannot contain Snooze"),
    ([JobCanceled], "cannot contain JobCanceled"),
    (LeaseLost, "cannot contain LeaseLost"),
    (awaited, "takes plain functions with one parameter"),
    (lambda: True, "takes plain functions with one parameter"),
    ({"a": 1}, "takes exception classes, their names"),
]


def nothing(job: Context, payload: dict[str, Any]) -> None:
    """Do nothing."""


@pytest.mark.parametrize("option", ["retry_on", "give_up_on"])
@pytest.mark.parametrize(("given", "says"), WRONG)
def test_a_match_that_cannot_work_is_refused_when_it_is_declared(
    option: str, given: Any, says: str
) -> None:
    hf = Holdfast("sqlite://")
    declare: list[Callable[[], object]] = [
        lambda: hf.job("a", **{option: given})(nothing),
        lambda: hf.pipeline("b", **{option: given}).stage("s")(nothing),
        lambda: hf.pipeline("c").stage("s", **{option: given})(nothing),
    ]

    for call in declare:
        with pytest.raises(ConfigError, match=f"{option}= {says}"):
            call()


@pytest.mark.parametrize("given", [7, "x", awaited, lambda: None, PrinterJam])
def test_a_rule_of_the_application_that_cannot_work_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="classify_error= must be a plain function"):
        Holdfast("sqlite://", classify_error=given)
