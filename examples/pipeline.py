"""A pipeline: named stages, each with its own attempt budget and stored result.

The second stage fails once and is retried. The first stage does not run again, because its result
is stored.
"""

import tempfile
import time
from collections import Counter
from datetime import timedelta

from holdfast import Context, Holdfast, NetworkTimeout, RetryPolicy

db = f"sqlite:///{tempfile.mkdtemp()}/work.db"
hf = Holdfast(db)
ORG = "0198c0de-0000-7000-8000-00000000000a"

digest = hf.pipeline("digest.send", version="1", category="notification")
runs: Counter[str] = Counter()


@digest.stage("collect", max_attempts=2)
def collect(job: Context, payload: dict) -> list:
    runs["collect"] += 1
    return ["the kettle is broken", "the cat is back"]


@digest.stage("translate", max_attempts=4, retry=RetryPolicy(steps=(timedelta(seconds=0.2),)))
def translate(job: Context, payload: dict) -> list:
    runs["translate"] += 1
    if job.attempt == 1:
        raise NetworkTimeout(service="translator")
    return [f"[{payload['language']}] {line}" for line in job.outputs["collect"]]


@digest.stage("send", max_attempts=10)
def send(job: Context, payload: dict) -> dict:
    runs["send"] += 1
    return {"lines": len(job.outputs["translate"])}


enqueued = hf.enqueue("digest.send", {"language": "de"}, org_id=ORG)
while not hf.get(enqueued.id, org_id=ORG).state.is_terminal:
    hf.worker().run(until_idle=True)
    time.sleep(0.05)

job = hf.get(enqueued.id, org_id=ORG)
print(f"{job.state}: {job.result}")
print("runs: " + ", ".join(f"{stage} {count}" for stage, count in runs.items()))
print(f"See it with: holdfast --db {db} jobs show {job.id}")
