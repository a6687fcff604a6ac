"""Enqueue a job that exists if and only if the caller's transaction commits."""

import tempfile

from sqlalchemy import create_engine, text

from holdfast import Context, Holdfast

path = f"{tempfile.mkdtemp()}/work.db"
hf = Holdfast(f"sqlite:///{path}")
engine = create_engine(f"sqlite:///{path}")
ORG = "0198c0de-0000-7000-8000-00000000000a"


@hf.job("receipt.send", category="notification")
def send_receipt(job: Context, payload: dict) -> None:
    print(f"  a receipt for order {payload['order']}")


def place_order(number: int, *, fail: bool) -> None:
    """Insert the order and enqueue its job in one transaction."""
    with engine.begin() as conn:
        conn.execute(text("INSERT INTO purchase (number) VALUES (:number)"), {"number": number})
        hf.enqueue("receipt.send", {"order": number}, org_id=ORG, conn=conn)
        if fail:
            raise ValueError("the card was declined")


_ = hf.store  # Opening the store creates the tables, outside the caller's transaction.
with engine.begin() as conn:
    conn.execute(text("CREATE TABLE purchase (number integer)"))

try:
    place_order(1, fail=True)
except ValueError as exc:
    print(f"order 1 rolled back: {exc}")
print(f"jobs run: {hf.worker().run(until_idle=True).claimed}")

place_order(2, fail=False)
print("order 2 committed")
print(f"jobs run: {hf.worker().run(until_idle=True).claimed}")
