"""Limits: a concurrency cap, a rate limit, a tenant weight and a cron schedule.

The clock is fake, so a night passes instantly. In production, `holdfast worker --dispatch` enforces
the same limits. They can also be set in holdfast.toml.
"""

import tempfile
from collections import Counter
from datetime import UTC, datetime

from holdfast import (
    Context,
    FakeClock,
    Holdfast,
    KeySettings,
    Rate,
    Settings,
    TenantSettings,
    dispatch_once,
    sync_schedules,
)

BAKERY = "0198c0de-0000-7000-8000-00000000000a"
LANE = "0198c0de-0000-7000-8000-00000000000b"

db = f"sqlite:///{tempfile.mkdtemp()}/work.db"
clock = FakeClock(datetime(2026, 3, 1, 18, 0, tzinfo=UTC))
limits = Settings(
    db=db,
    tenants={BAKERY: TenantSettings(weight=3)},
    keys={"mailer": KeySettings(rate=Rate(5, 60))},
)
hf = Holdfast(settings=limits, clock=clock)
hf.queue("q:reports", max_running=2)
served: Counter[str] = Counter()


@hf.job("report.build", queue="q:reports")
def build(job: Context, payload: dict) -> None: ...


@hf.job("mail.send")
def send(job: Context, payload: dict) -> None: ...


@hf.job("order.pack")
def pack(job: Context, payload: dict) -> None:
    served[job.org_id] += 1


@hf.job("oven.light", category="maintenance")
def light_oven(job: Context, payload: dict) -> dict:
    return {"degrees": payload["degrees"]}


hf.schedule(
    "oven",
    cron="0 4 * * *",
    zone="Europe/Zurich",
    job_type="oven.light",
    payload={"degrees": 230},
    org_id=BAKERY,
)
sync_schedules(hf)
worker = hf.worker()

hf.enqueue_many("report.build", [{"page": page} for page in range(6)], org_id=LANE)
print(f"reports run: {[worker.run_once().claimed for _ in range(3)]}, never more than 2 at once")

hf.enqueue_many("mail.send", [{"to": n} for n in range(8)], org_id=LANE, limit_key="mailer")
sent_now = worker.run_once().claimed
clock.advance(minutes=1)
print(f"mails sent: {sent_now}, and a minute later {worker.run_once().claimed}")

for org_id in (BAKERY, LANE):
    hf.enqueue_many("order.pack", [{"order": number} for number in range(20)], org_id=org_id)
worker.run_once(limit=8)
print(f"of 8 hands the bakery got {served[BAKERY]}, the lane {served[LANE]}")
worker.run_once()

clock.advance(hours=12)
enqueued = dispatch_once(hf)["enqueued"]
lit = worker.run_once().outcomes["completed"]
print(f"overnight the schedule enqueued {enqueued} job, and {lit} is completed")
print(f"See them with: holdfast --db {db} jobs list")
