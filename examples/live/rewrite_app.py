"""Complaint rewrite in two browser windows: Nora writes a rude message, Luis reads a polite one.

    uvicorn examples.live.rewrite_app:app

Open http://127.0.0.1:8000/?person=nora and http://127.0.0.1:8000/?person=luis. DATABASE_URL names a
database of yours; without it, a SQLite file in a temporary folder is used. The simulator plays the
model. The page follows the rewrites of its person with EventSource; it learns states and
arrivals, and nothing of providers, attempts or queues.
"""

import os
import tempfile
import threading
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel

from holdfast import Actor, ActorType, Holdfast, Role, Settings
from holdfast.api import Identity, create_app
from holdfast_llm import ProviderSettings
from holdfast_rewrite import Rewrites, RewriteSettings, RouteSettings, Submission
from holdfast_simulator import Simulator

HERE = Path(__file__).parent
HOME = "0198c0de-0000-7000-8000-00000000000a"
PEOPLE = {
    "nora": "0198c0de-0000-7000-8000-0000000000a1",
    "luis": "0198c0de-0000-7000-8000-0000000000a2",
}
POLITE = "Could you tidy the kitchen a little after cooking? That would help me a lot."

os.environ["SIMULATED_KEY"] = "not-a-real-key"
simulator = Simulator(responder=lambda _: {"rewritten_text": POLITE, "output_language": "en"})
hf = Holdfast(
    settings=Settings(
        db=os.environ.get("DATABASE_URL") or f"sqlite:///{tempfile.mkdtemp()}/work.db",
        providers={
            "openai": ProviderSettings(
                base_url=simulator.url("openai"),
                credential_env="SIMULATED_KEY",
                allow_private=True,
            )
        },
        rewrite=RewriteSettings(
            # There is no judge here: what the gate cannot decide would wait for a person.
            without_judge="gate_only",
            routes=(
                RouteSettings(
                    provider="openai",
                    adapter_kind="openai_responses",
                    model="gpt-5.2",
                    # One call per message. In batches it costs half and takes until the next run.
                    execution_mode="async",
                    high_quality=True,
                    supports_translation=True,
                ),
            ),
        ),
    )
)
rewrites = Rewrites(hf)


def who(request: Request) -> Identity | None:
    """The person of the window. They read their own messages, and send through this application."""
    person = request.cookies.get("person")
    own = PEOPLE.get(person or "")
    if own is None or request.method != "GET" or request.query_params.get("user_id") != own:
        return None
    return Identity(Actor(ActorType.USER, own), Role.VIEWER, HOME, frozenset({"frontend"}))


@asynccontextmanager
async def working(app: FastAPI):
    """Rewrite in the background. In production this is `holdfast worker --dispatch`."""
    rewrites.directory.add_home(HOME)
    for user_id in PEOPLE.values():
        rewrites.directory.add_member(HOME, user_id, role="housemate", locale="en")
    with simulator:
        worker = hf.worker()
        thread = threading.Thread(target=worker.run)
        thread.start()
        yield
        worker.stop()
        thread.join()
    hf.close()


app = FastAPI(lifespan=working)
app.mount("/holdfast", create_app(hf, authenticate=who))


class Message(BaseModel):
    text: str


@app.post("/messages", status_code=202)
def send(message: Message, request: Request) -> dict[str, str]:
    """The sender is the person who is logged in, never one that the page names."""
    sender = request.cookies.get("person", "")
    if sender not in PEOPLE:
        raise HTTPException(401)
    (other,) = [user_id for name, user_id in PEOPLE.items() if name != sender]
    answer = rewrites.submit(
        Submission(HOME, PEOPLE[sender], other, message.text, "direct_message")
    )
    return {"rewrite_request_id": answer.rewrite_request_id, "status": answer.status}


@app.get("/")
def page(person: str = "nora") -> FileResponse:
    answer = FileResponse(HERE / "rewrite.html")
    answer.set_cookie("person", person if person in PEOPLE else "nora", samesite="strict")
    return answer


@app.get("/rewrite.js")
def script() -> FileResponse:
    return FileResponse(HERE / "rewrite.js")


@app.get("/me")
def me(request: Request) -> dict[str, str]:
    name = request.cookies.get("person", "")
    if name not in PEOPLE:
        raise HTTPException(401)
    return {"name": name, "user_id": PEOPLE[name]}
