"""The job lifecycle.

    enqueue.py   Writes a job once per idempotency key, with its audit event.
    claim.py     A worker claims due jobs with a lease (fencing token and expiry).
    execute.py   Runs one stage of the handler and returns an Outcome.
    settle.py    Writes the Outcome and its audit events, if the lease is still held.

Retries, snoozes and releases return to claim.py. The next stage continues under the same lease.
maintenance.py rescues jobs whose lease expired. cancel.py cancels jobs that have not started and
requests running ones to stop. Nothing else changes the state of a job.

    fairness.py, limits.py   How queues and tenants share the workers.
    worker/                  The worker process.
    schedule/                Schedules and their dispatcher.
    runs.py, bounded_run.py  Bounded runs; run_log.py records them.
"""
