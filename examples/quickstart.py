"""One job and one worker. Enqueued twice, run once."""

from holdfast import Context, Holdfast

hf = Holdfast("sqlite:///work.db")  # or postgresql://…


@hf.job("report.export")
def export_report(job: Context, payload: dict) -> dict:
    return {"file": f"project-{payload['project']}.csv", "attempt": job.attempt}


first = hf.enqueue("report.export", {"project": 7}, idempotency_key="export-7")
again = hf.enqueue("report.export", {"project": 7}, idempotency_key="export-7")
hf.worker().run(until_idle=True)
job = hf.get(first.id)
print(f"enqueued again: {again.created}, {job.state}: {job.result}")
