"""One tenant, one job, one worker. Enqueued twice, run once."""

import tempfile

from holdfast import Context, Holdfast

hf = Holdfast(f"sqlite:///{tempfile.mkdtemp()}/work.db")  # or postgresql://…
ORG = "0198c0de-0000-7000-8000-00000000000a"


@hf.job("report.export", category="export")
def export_report(job: Context, payload: dict) -> dict:
    file = job.artifacts.put(b"task,hours\nroof,7\n", name=f"project-{payload['project']}.csv")
    return {"artifact": file.ref, "attempt": job.attempt}


first = hf.enqueue("report.export", {"project": 7}, org_id=ORG, idempotency_key="export-7")
again = hf.enqueue("report.export", {"project": 7}, org_id=ORG, idempotency_key="export-7")
hf.worker().run(until_idle=True)
job = hf.get(first.id, org_id=ORG)
print(f"enqueued again: {again.created}, {job.state}: {job.result}")
