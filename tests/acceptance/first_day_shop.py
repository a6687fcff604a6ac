"""The shop of test_first_day.py, written as a new user would: FastAPI, SQLAlchemy and Holdfast.

The test copies it into an empty folder and runs it with the built wheels. It imports nothing of the
tests.
"""

import os
import socket
from datetime import timedelta
from pathlib import Path

import httpx
import uvicorn
from fastapi import FastAPI, HTTPException
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast import Context, Holdfast, RetryPolicy
from holdfast.contrib.sqlalchemy import enqueue

DATABASE = os.environ["SHOP_DATABASE"]
hf = Holdfast(DATABASE, default_tenant=True)
is_sqlite = DATABASE.startswith("sqlite")
engine = create_engine(
    DATABASE.replace("postgresql:", "postgresql+psycopg:"),
    connect_args={"timeout": 60} if is_sqlite else {},
)
# Certificates are not needed, and take a tenth of a second to load.
client = httpx.Client(timeout=5, trust_env=False, verify=False)
MARK = "?" if is_sqlite else "%s"


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    article: Mapped[str]


class Effect(Base):
    """One row for each time that a job of an order had its effect."""

    __tablename__ = "shop_effect"
    id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[int]
    kind: Mapped[str]


def note(job: Context, order: int, kind: str) -> None:
    with job.transaction(complete=True) as connection:
        connection.execute(
            f"INSERT INTO shop_effect (number, kind) VALUES ({MARK}, {MARK})",
            (order, kind),
        )


@hf.job("receipt.send")
def send_receipt(job: Context, order: int) -> None:
    note(job, order, "receipt")


@hf.job("stock.reserve")
def reserve_stock(job: Context, order: int) -> None:
    note(job, order, "stock")


@hf.job("parcel.pack")
async def pack_parcel(job: Context, order: int) -> None:
    note(job, order, "parcel")


@hf.job("card.charge", max_attempts=2, retry=RetryPolicy(steps=(timedelta(0),)))
def charge_card(job: Context, number: int) -> None:
    address = Path("provider.txt").read_text().split()[number % 2]
    answer = client.post(address, headers={"Idempotency-Key": job.idempotency_key})
    answer.raise_for_status()


app = FastAPI()


@app.post("/orders", status_code=202)
def place_order(article: str) -> dict[str, int]:
    with Session(engine) as session, session.begin():
        order = Order(article=article)
        session.add(order)
        session.flush()
        for job in (send_receipt, reserve_stock, pack_parcel):
            enqueue(session, job, order=order.id)
        if article == "sold out":
            raise HTTPException(409, "sold out")
        return {"order": order.id}


@app.post("/charges", status_code=202)
def charge(count: int) -> dict[str, int]:
    return {"jobs": len(charge_card.enqueue_many([{"number": n} for n in range(count)]))}


if __name__ == "__main__":
    Base.metadata.create_all(engine)
    hf.store  # noqa: B018 — creates the tables of Holdfast on SQLite
    listener = socket.create_server(("127.0.0.1", 0), backlog=200)
    Path("port.txt").write_text(str(listener.getsockname()[1]))
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
