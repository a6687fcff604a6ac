"""Typed handles: `@hf.job` returns the function with calls that enqueue it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

import pydantic
import pytest

from holdfast import (
    Context,
    DeclaredJob,
    FakeClock,
    Holdfast,
    InvalidJob,
    InvalidSchedule,
    JobRequest,
    Priority,
    dispatch_once,
    sync_schedules,
)
from holdfast.config import DEFAULT_ORG, Settings
from holdfast.errors import ConfigError
from tests.story import ORG
from tests.tree import ROOT


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Line:
    article: UUID
    price: Decimal
    note: str | None = None


@dataclass
class Order:
    number: int
    placed_at: datetime
    lines: list[Line] = field(default_factory=list)
    size: Size = Size.SMALL


class Invoice(pydantic.BaseModel):
    number: int
    due: datetime | None = None


ARTICLE = UUID("0198c0de-0000-7000-8000-0000000000aa")
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def shop(url: str, clock: FakeClock) -> Iterator[Holdfast]:
    with Holdfast(settings=Settings(db=url), clock=clock, default_tenant=True) as made:
        yield made


def run_all(hf: Holdfast) -> None:
    while hf.worker().run_once().claimed:
        pass


def test_a_declared_job_is_called_like_its_function_and_enqueues_its_arguments(
    shop: Holdfast,
) -> None:
    @shop.job("mail.send")
    def send_mail(to: str, *, copies: int = 1, when: datetime | None = None) -> dict[str, Any]:
        """Send a mail."""
        return {"to": to, "copies": copies, "at": str(when)}

    handle = send_mail.enqueue("a@example.com", when=NOON)
    run_all(shop)

    assert isinstance(send_mail, DeclaredJob)
    assert send_mail(to="b", copies=3) == {"to": "b", "copies": 3, "at": "None"}
    assert (send_mail.__name__, send_mail.__doc__) == ("send_mail", "Send a mail.")
    assert handle.get().payload == {"to": "a@example.com", "when": NOON.isoformat()}
    assert handle.result(timeout=10) == {"to": "a@example.com", "copies": 1, "at": str(NOON)}
    assert handle.org_id == DEFAULT_ORG


def test_handlers_take_the_job_and_dataclasses_and_models(shop: Holdfast) -> None:
    seen: list[Any] = []

    @shop.job("order.ship")
    def ship(job: Context, order: Order) -> None:
        seen.append((job.attempt, order))

    @shop.job("invoice.pay")
    async def pay(invoice: Invoice) -> None:
        seen.append(invoice)

    order = Order(7, NOON, [Line(ARTICLE, Decimal("9.90"))], Size.LARGE)
    ship.enqueue(order)
    ship.enqueue(number=8, placed_at=NOON)  # type: ignore[call-arg]
    pay.enqueue(Invoice(number=3, due=NOON))
    shop.enqueue("invoice.pay", Invoice(number=4))  # type: ignore[arg-type]
    run_all(shop)

    assert seen == [(1, order), (1, Order(8, NOON)), Invoice(number=3, due=NOON), Invoice(number=4)]


WRONG: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "missing": ((), {}, "to: is missing"),
    "unknown": (("a",), {"subject": "x"}, "subject: is not an argument of send"),
    "wrong type": (("a",), {"copies": "two"}, "copies: must be int, not str"),
    "a flag is no number": (("a",), {"copies": True}, "copies: must be int, not bool"),
    "twice": (("a",), {"to": "b"}, "to: is passed twice"),
    "too many": (("a", "b"), {}, "takes 1 by position, not 2"),
    "one of": (("a",), {"mode": "soon"}, "mode: must be one of 'now', 'later'"),
    "nested": (
        ("a",),
        {"line": {"article": "x", "price": "1"}},
        "line.article: is not a valid UUID",
    ),
    "nested list": (("a",), {"sizes": ["small", "huge"]}, "sizes.1: is not a valid Size"),
    "no document": (("a",), {"extra": object()}, "payload"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused_before_anything_is_written(shop: Holdfast, name: str) -> None:
    @shop.job("mail.send")
    def send(
        to: str,
        *,
        copies: int = 1,
        mode: Literal["now", "later"] = "now",
        line: Line | None = None,
        sizes: list[Size] | None = None,
        extra: Any = None,
    ) -> None: ...

    args, kwargs, problem = WRONG[name]
    with pytest.raises(InvalidJob, match=problem.replace(".", r"\.")):
        send.enqueue(*args, **kwargs)
    with pytest.raises(InvalidJob):
        send.enqueue_many([{"to": "b"}, {**kwargs, **({} if name == "missing" else {"to": 1})}])
    with pytest.raises(InvalidJob, match="to: is missing"):
        shop.enqueue("mail.send", {})

    assert shop.operate(actor="user:1", role="admin").jobs.counts() == ()


def test_wrong_fields_of_dataclasses_and_models_are_named(shop: Holdfast) -> None:
    @shop.job("order.ship")
    def ship(job: Context, order: Order) -> None: ...

    @shop.job("invoice.pay")
    def pay(job: Context, invoice: Invoice) -> None: ...

    with pytest.raises(InvalidJob) as refused:
        ship.enqueue({"number": "7", "colour": "red"})  # type: ignore[arg-type]
    assert refused.value.fields == {
        "number": "must be int, not str",
        "colour": "is not a field of Order",
        "placed_at": "is missing",
    }
    with pytest.raises(InvalidJob, match="number: Field required"):
        pay.enqueue(due=NOON)  # type: ignore[call-arg]
    with pytest.raises(InvalidJob, match="payload: must be an object, not int"):
        pay.enqueue(7)  # type: ignore[arg-type]


PATHS = {
    "enqueue": lambda shop, kind, bad: shop.enqueue(kind, bad),
    "enqueue_many": lambda shop, kind, bad: shop.enqueue_many(kind, [bad]),
    "a request": lambda shop, kind, bad: shop.enqueue_many(kind, [JobRequest(bad, DEFAULT_ORG)]),
    "a tenant": lambda shop, kind, bad: shop.for_org(ORG).enqueue(kind, bad),
    "aenqueue": lambda shop, kind, bad: asyncio.run(shop.aenqueue(kind, bad)),
    "an operator": lambda shop, kind, bad: shop.operate(actor="user:1", role="admin").jobs.enqueue(
        kind, bad
    ),
    "a connection": lambda shop, kind, bad: shop.enqueue(kind, bad, conn=object()),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", ["mail.send", "order.ship", "invoice.pay", "order.check"])
def test_every_path_of_an_enqueue_checks_what_the_handler_declares(
    shop: Holdfast, path: str, kind: str
) -> None:
    shop.job("mail.send")(lambda number: None)
    pipeline = shop.pipeline("order.check")

    @shop.job("order.ship")
    def ship(job: Context, order: Order) -> None: ...

    @shop.job("invoice.pay")
    def pay(job: Context, invoice: Invoice) -> None: ...

    @pipeline.stage("fetch")
    def fetch(job: Context, payload: dict[str, Any]) -> None: ...

    @pipeline.stage("pay")
    def pay_later(job: Context, invoice: Invoice) -> None: ...

    with pytest.raises(InvalidJob, match="number"):
        PATHS[path](shop, kind, {"a": "q"})

    assert shop.operate(actor="user:1", role="admin").jobs.counts() == ()


def test_configured_enqueues_have_a_delay_a_priority_and_a_key(
    shop: Holdfast, clock: FakeClock
) -> None:
    @shop.job("mail.send")
    def send(to: str) -> str:
        return to

    later = send.configure(delay="5m", priority="high", key="welcome-7")
    first, again = later.enqueue(to="a"), later.enqueue(to="a")
    at = send.configure(at=clock.now() + timedelta(hours=1), org_id=ORG).enqueue(to="b")
    plain = shop.enqueue("mail.send", {"to": "c"}, delay=timedelta(seconds=30))

    record = first.get().record
    assert record["not_before_at"] == clock.now() + timedelta(minutes=5)
    assert record["priority"] == Priority.HIGH
    assert (again.id, again.created) == (first.id, False)
    assert at.get().record["not_before_at"] == clock.now() + timedelta(hours=1)
    assert at.org_id == ORG
    clock.advance(seconds=31)
    run_all(shop)
    assert [job.get().state for job in (plain, first)] == ["completed", "queued"]
    assert send.options == {}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"delay": "soon"}, "delay: must be a length of time"),
        ({"delay": -1}, "delay: must be from zero"),
        ({"delay": True}, "delay: must be a timedelta"),
        ({"at": datetime(2026, 3, 2)}, "at: must be an aware datetime"),  # noqa: DTZ001
        ({"delay": 5, "at": NOON}, "delay: cannot be combined with at"),
        ({"at": NOON.replace(year=2090)}, "at: is more than five years away"),
    ],
)
def test_a_due_time_that_cannot_be_meant_is_refused(
    shop: Holdfast, options: Any, problem: str
) -> None:
    shop.job("mail.send")(lambda job, payload: None)

    with pytest.raises(InvalidJob, match=problem):
        shop.enqueue("mail.send", {}, **options)


def test_many_jobs_are_enqueued_at_once_and_from_a_loop(shop: Holdfast) -> None:
    @shop.job("order.ship")
    def ship(job: Context, order: Order) -> int:
        return order.number

    many = ship.enqueue_many([Order(1, NOON), {"number": 2, "placed_at": NOON}])
    asked = JobRequest(payload={"number": 3, "placed_at": NOON.isoformat()}, org_id=DEFAULT_ORG)

    async def enqueue() -> list[Any]:
        return [
            await ship.aenqueue(Order(4, NOON)),
            *await ship.configure(org_id=DEFAULT_ORG).aenqueue_many([asked]),
        ]

    handles = [*many, *asyncio.run(enqueue())]
    run_all(shop)

    assert [handle.result(timeout=10) for handle in handles] == [1, 2, 4, 3]


def test_a_notification_is_scheduled_by_its_handle(shop: Holdfast, clock: FakeClock) -> None:
    @shop.job("digest.send", category="notification")
    def digest(to: str) -> None: ...

    digest.schedule(cron="0 8 * * *", arguments={"to": "a@example.com"})
    declared = shop.schedules.by_name["digest-send"]

    assert (declared.job_type, declared.payload) == ("digest.send", {"to": "a@example.com"})
    assert declared.org_id == DEFAULT_ORG
    with pytest.raises(InvalidJob, match="to: is missing"):
        digest.schedule("other", cron="0 8 * * *")
    with pytest.raises(InvalidSchedule, match="cron"):
        digest.schedule("other", cron="often", arguments={"to": "a"})


def test_a_job_of_the_application_recurs_for_its_tenant_and_for_several(
    shop: Holdfast, clock: FakeClock
) -> None:
    @shop.job("stock.count", queue="q:exports")
    def count(shelf: int) -> int:
        return shelf

    shop.job("plan.make", category="planning")(lambda job, payload: None)
    count.schedule(cron="0 * * * *", arguments={"shelf": 3})
    count.schedule("each", every="1h", arguments={"shelf": 4}, tenants=[ORG, DEFAULT_ORG])
    sync_schedules(shop)
    clock.advance(hours=1)
    dispatch_once(shop)
    run_all(shop)

    jobs = shop.operate(actor="user:1", role="admin").jobs.list()
    assert sorted((job.org_id, job.state, job.queue) for job in jobs) == [
        (DEFAULT_ORG, "completed", "q:exports"),
        (DEFAULT_ORG, "completed", "q:exports"),
        (ORG, "completed", "q:exports"),
    ]
    # The rules of the specification's categories stay.
    with pytest.raises(InvalidSchedule, match="neither maintenance nor a notification"):
        shop.schedule("plans", cron="0 3 * * *", job_type="plan.make", org_id=ORG)


def test_declarations_with_a_job_parameter_keep_working(shop: Holdfast) -> None:
    bound = 3

    @shop.job("with.default")
    def with_default(job: Any, payload: Any, value: int = bound) -> Any:
        return [job.job_type, payload, value]

    @shop.job("only.job")
    def only(job: Context) -> str:
        return job.job_type

    shop.job("a.lambda")(lambda _job, _payload: {"payload": _payload})
    names = ("with.default", "a.lambda")
    handles = [shop.enqueue(name, {"a": 1}) for name in names] + [only.enqueue()]
    run_all(shop)

    assert [handle.result(timeout=10) for handle in handles] == [
        ["with.default", {"a": 1}, 3],
        {"payload": {"a": 1}},
        "only.job",
    ]
    with pytest.raises(ConfigError, match="'values' cannot be passed by name"):
        shop.job("no.names")(lambda *values: None)


def test_a_type_checker_knows_the_arguments_and_the_result() -> None:
    from mypy import api

    file = ROOT / "tests" / "typing" / "declared_jobs.py"
    settings = ["--config-file", str(ROOT / "pyproject.toml")]
    printed, problems, code = api.run([*settings, f"--cache-dir={ROOT}/.mypy_cache", str(file)])

    assert (printed.partition(":")[0], problems, code) == ("Success", "", 0), printed
