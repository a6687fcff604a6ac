"""A FastAPI application with the API of Holdfast inside, and a page that follows its jobs.

    uvicorn examples.live.fastapi_app:app

The application's own login decides who may see what: here a cookie, in yours a session.
"""

from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse

from holdfast import Actor, ActorType, Holdfast, Role
from holdfast.api import Identity, create_app

HERE = Path(__file__).parent
ORG = "0198c0de-0000-7000-8000-00000000000a"

hf = Holdfast("sqlite:///orders.db")


@hf.job("order.ship")
def ship(job, payload):
    return {"shipped": payload["order"]}


def who(request: Request) -> Identity | None:
    """The identity of the person who is logged in: they read, and read their tenant only."""
    person = request.cookies.get("person")
    if person is None:
        return None
    return Identity(Actor(ActorType.USER, person), Role.VIEWER, ORG, frozenset({"events:read"}))


app = FastAPI()
app.mount("/holdfast", create_app(hf, authenticate=who))


@app.get("/")
def page(response: Response) -> FileResponse:
    answer = FileResponse(HERE / "events.html")
    answer.set_cookie("person", "ada", httponly=True, samesite="lax")
    return answer


@app.get("/events.js")
def script() -> FileResponse:
    return FileResponse(HERE / "events.js")


@app.post("/orders", status_code=202)
def order() -> dict[str, str]:
    job = hf.enqueue("order.ship", {"order": 42}, org_id=ORG)
    return {"job_id": job.id}
