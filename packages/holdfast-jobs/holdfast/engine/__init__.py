"""The way of a job.

    enqueue.py   A job is written once per idempotency key, with its audit event.
    claim.py     A worker takes due jobs under a lease: a token and an end.
    execute.py   One stage of the handler runs. Whatever happens becomes an Outcome.
    settle.py    The Outcome is written, if the lease is still ours, with its audit events.

A retry, a snooze and a release lead back to claim.py; the next stage goes on under the same lease.
A lease that runs out is brought back by upkeep.py. cancel.py stops what has not begun and asks the
rest to stop. Nothing else changes a job.
"""
