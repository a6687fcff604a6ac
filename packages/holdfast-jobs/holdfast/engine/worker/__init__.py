"""The worker process: fetch, execute and settle jobs, renew leases, send heartbeats."""
