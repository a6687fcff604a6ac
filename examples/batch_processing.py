"""Batch processing of model requests: two methods build each request and accept its reply.

The provider is the bundled simulator and the clock is fake, so a day passes instantly and nothing
is billed. In production, `holdfast worker --dispatch` runs these steps.
"""

import os
import tempfile

from holdfast import FakeClock, Holdfast, Settings, dispatch_once, sync_schedules
from holdfast_llm import Item, ProviderSettings, Reply, Request, Route
from holdfast_simulator import Simulator

BAKERY = "0198c0de-0000-7000-8000-00000000000a"
CAFE = "0198c0de-0000-7000-8000-00000000000b"

os.environ["SIMULATED_KEY"] = "not-a-real-key"
db = f"sqlite:///{tempfile.mkdtemp()}/work.db"
clock = FakeClock()
simulator = Simulator(clock=clock)
provider = ProviderSettings(
    base_url=simulator.url("openai"),
    credential_env="SIMULATED_KEY",
    allow_private=True,
)
hf = Holdfast(settings=Settings(db=db, providers={"openai": provider}), clock=clock)


@hf.batch("review.answer", route=Route("openai", "openai_responses", "gpt-5.2"))
class AnswerReview:
    def request(self, item: Item) -> Request:
        return Request((item.payload["review"],), "Answer the review in one friendly sentence.")

    def accept(self, item: Item, reply: Reply) -> dict:
        return {"answer": reply.text}


with simulator:
    sync_schedules(hf)
    jobs = [
        hf.enqueue("review.answer", {"review": f"The bread was good, {number}."}, org_id=org_id)
        for org_id in (BAKERY, CAFE)
        for number in range(3)
    ]
    states = []
    for _ in range(4):
        clock.advance(minutes=15)
        dispatch_once(hf)
        states.append(hf.get(jobs[0].id, org_id=BAKERY).state.value)
    print(f"every quarter of an hour a job was: {', '.join(states)}")

    answered = sum(hf.get(job.id, org_id=job.org_id).state == "completed" for job in jobs)
    print(f"{answered} of {len(jobs)} jobs answered in {len(simulator.state.batches)} batches")
    print(f"paid twice: {len(simulator.ledger.double_paid())}")
print(f"See it with: holdfast --db {db} batches list --all")
