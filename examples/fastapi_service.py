"""A FastAPI service: jobs in the transaction of a request, a worker in the process."""

import tempfile
from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from holdfast import Holdfast
from holdfast.contrib.fastapi import lifespan, provide
from holdfast.contrib.sqlalchemy import enqueue

DATABASE = f"sqlite:///{tempfile.mkdtemp()}/work.db"
hf = Holdfast(DATABASE, default_tenant=True)
engine = create_engine(DATABASE)
app = FastAPI(lifespan=lifespan(hf, worker=True, concurrency=2))


@hf.job("receipt.send")
def send_receipt(article: str) -> str:
    return f"receipt for {article}"


def transaction() -> Iterator[Session]:
    with Session(engine) as session, session.begin():
        yield session


# scope="function" commits before the response is sent.
Transaction = Annotated[Session, Depends(transaction, scope="function")]
Jobs = Annotated[Holdfast, Depends(provide(hf))]


@app.post("/orders", status_code=202)
def place_order(article: str, session: Transaction) -> dict[str, str]:
    session.execute(text("CREATE TABLE IF NOT EXISTS shop_order (article text)"))
    session.execute(text("INSERT INTO shop_order VALUES (:article)"), {"article": article})
    job = enqueue(session, send_receipt, article)
    if article == "sold out":
        raise HTTPException(409, "sold out")
    return {"job": job.id}


@app.get("/jobs/{job_id}")
async def show_job(job_id: str, jobs: Jobs) -> dict[str, str | None]:
    result = await jobs.await_result(job_id)
    return {"state": (await jobs.aget(job_id)).state, "result": result}


if __name__ == "__main__":
    with TestClient(app) as client:
        refused = client.post("/orders", params={"article": "sold out"})
        placed = client.post("/orders", params={"article": "rope"}).json()
        shown = client.get(f"/jobs/{placed['job']}").json()
        print(f"refused {refused.status_code}, {shown}")
    engine.dispose()
