"""The application of the demo: one noisy tenant, four quiet ones, and their job types."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast.app import Holdfast
from holdfast.config import Settings
from holdfast.engine.context import Context
from holdfast.engine.retry import RetryPolicy
from holdfast.errors import UpstreamDown

# A short lease, so that the jobs of the killed worker are rescued within seconds.
hf = Holdfast(
    settings=Settings(db="sqlite:", lease_seconds=1.5, rescue_seconds=0.3, poll_seconds=0.05)
)


@dataclass(frozen=True, slots=True)
class Firm:
    """One tenant of the demo."""

    org_id: str
    name: str
    job_type: str


FLOOD = Firm("0198c0de-0000-7000-8000-000000000001", "Gull & Gull Leaflets", "leaflet.print")
QUIET = (
    Firm("0198c0de-0000-7000-8000-000000000002", "Moonlight Bakery", "bread.bake"),
    Firm("0198c0de-0000-7000-8000-000000000003", "Otter & Sons Plumbing", "pipe.mend"),
    Firm("0198c0de-0000-7000-8000-000000000004", "The Pigeon Post", "letter.carry"),
    Firm("0198c0de-0000-7000-8000-000000000005", "9 Lantern Lane", "lamp.light"),
)
FIRMS = (FLOOD, *QUIET)
BAKERY, PLUMBING, POST, LANE = QUIET
NAMES = {firm.org_id: firm.name for firm in FIRMS}


def _take_your_time(job: Context, payload: dict[str, Any]) -> dict[str, Any]:
    time.sleep(payload["seconds"])
    return {"number": payload["number"], "attempt": job.attempt}


for firm in FIRMS:
    hf.job(firm.job_type)(_take_your_time)


@hf.job("weather.ask", retry=RetryPolicy(steps=(timedelta(seconds=1),)))
def ask_the_weather(job: Context, _payload: dict[str, Any]) -> dict[str, str]:
    """An upstream that is unavailable on the first attempt."""
    if job.attempt == 1:
        raise UpstreamDown(status=503)
    return {"sky": "mostly pigeons"}


@hf.job("tea.pour")
def pour_tea(_job: Context, payload: dict[str, Any]) -> dict[str, float]:
    """A handler with a bug: it divides by zero without guests."""
    return {"cups_each": payload["cups"] / payload["guests"]}
