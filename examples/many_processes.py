"""Several worker processes on one SQLite file: each job is executed exactly once."""

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from holdfast import Context, Holdfast

hf = Holdfast()  # The parent process passes the database with --db.
ORG = "0198c0de-0000-7000-8000-00000000000a"
JOBS = 60


@hf.job("photo.shrink")
def shrink(job: Context, payload: dict) -> dict:
    time.sleep(0.03)
    return {"photo": payload["photo"], "pid": os.getpid()}


def main() -> None:
    db = f"sqlite:///{tempfile.mkdtemp()}/work.db"
    with Holdfast(db) as parent:
        parent.job("photo.shrink")(shrink)
        photos = [{"photo": number} for number in range(JOBS)]
        jobs = parent.enqueue_many("photo.shrink", photos, org_id=ORG)
        command = [sys.executable, "-m", "holdfast", "--db", db, "--app", "many_processes:hf"]
        command += ["worker", "--until-idle", "--concurrency", "2", "--log-level", "warning"]
        here = Path(__file__).parent
        workers = [subprocess.Popen(command, cwd=here) for _ in range(3)]
        for worker in workers:
            worker.wait()
        completed = [parent.get(job.id, org_id=ORG) for job in jobs]
    by_process = Counter(job.result["pid"] for job in completed)
    for pid, count in by_process.items():
        print(f"process {pid} ran {count}")
    print(f"{sum(by_process.values())} of {JOBS} jobs completed in {len(workers)} processes")
    print(f"See them with: holdfast --db {db} jobs count")


if __name__ == "__main__":
    main()
