"""Checked by mypy, never run: what a type checker knows about declared jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from holdfast import Context, Enqueued, Holdfast

hf = Holdfast("sqlite:///work.db")


@dataclass
class Order:
    number: int


@hf.job("mail.send")
def send_mail(to: str, *, copies: int = 1) -> bool:
    return True


@hf.job("order.ship")
async def ship(job: Context, order: Order) -> dict[str, int]:
    return {}


@hf.job("order.print")
def print_order(job: Context, payload: dict[str, int]) -> None: ...


assert_type(send_mail("a@example.com"), bool)
assert_type(send_mail.enqueue("a@example.com", copies=2), Enqueued[bool])
assert_type(send_mail.enqueue(to="a@example.com").result(timeout=1), bool)
assert_type(send_mail.configure(delay=5).enqueue(to="a@example.com"), Enqueued[bool])
assert_type(ship.enqueue(Order(7)), Enqueued[dict[str, int]])
assert_type(print_order.enqueue({"number": 7}), Enqueued[None])
assert_type(hf.enqueue("order.print", {}), Enqueued[Any])


async def wait() -> None:
    assert_type(await ship.enqueue(Order(7)), dict[str, int])
    assert_type(await (await ship.aenqueue(Order(7))), dict[str, int])


send_mail.enqueue()  # type: ignore[call-arg]
send_mail.enqueue(to=7)  # type: ignore[arg-type]
send_mail.enqueue(to="a@example.com", subject="x")  # type: ignore[call-arg]
send_mail.configure(colour="red")  # type: ignore[call-arg]
ship.enqueue({"number": 7})  # type: ignore[arg-type]
print_order({"number": 7})  # type: ignore[call-arg, arg-type]
