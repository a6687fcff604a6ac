"""An application with a category of its own and a job of audit enrichment."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast import Context, Holdfast

hf = Holdfast()
hf.category("letter", queue="q:notifications", key_ttl=timedelta(days=90))


@hf.job("enrich", category="audit_enrichment")
def enrich(job: Context, payload: dict[str, Any]) -> None:
    first = job.audit.events(job.id)[0]
    job.audit.note(first["id"], {"who": "Ada\x1b[31m"}, name="reader")
