"""Enqueue typed jobs in the transaction of a SQLAlchemy session."""

import tempfile

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast import Holdfast
from holdfast.contrib.sqlalchemy import enqueue

DATABASE = f"sqlite:///{tempfile.mkdtemp()}/work.db"
hf = Holdfast(DATABASE, default_tenant=True)
engine = create_engine(DATABASE)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    article: Mapped[str]


@hf.job("receipt.send")
def send_receipt(order: int, *, article: str) -> None:
    print(f"receipt for order {order}: {article}")


def place_order(article: str) -> None:
    with Session(engine) as session, session.begin():
        order = Order(article=article)
        session.add(order)
        session.flush()
        enqueue(session, send_receipt, order.id, article=article)
        if article == "sold out":
            raise ValueError(article)


_ = hf.store  # Opening the store creates the tables of Holdfast.
Base.metadata.create_all(engine)
place_order("rope")
try:
    place_order("sold out")
except ValueError as exc:
    print(f"rolled back: {exc}")
print(f"jobs run: {hf.worker().run(until_idle=True).claimed}")
engine.dispose()
hf.close()
