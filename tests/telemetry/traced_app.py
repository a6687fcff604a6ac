"""An application that exports its traces, for a real worker process."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from holdfast import Context, Holdfast, NetworkTimeout, Settings
from holdfast.engine.retry import RetryPolicy
from holdfast.telemetry.trace import trace

NOW = RetryPolicy(steps=(timedelta(0),))
CANARY = "canary-9f2b"


def make(url: str, **settings: Any) -> Holdfast:
    hf = Holdfast(settings=Settings(db=url, **settings))
    report = hf.pipeline("report.make")

    @report.stage("fetch", retry=NOW)
    def fetch(job: Context, payload: dict[str, Any]) -> dict[str, str]:
        local = payload["text"] + CANARY
        if job.attempt == 1:
            raise NetworkTimeout(f"{local} {CANARY}", host=CANARY)
        return {"page": CANARY}

    @report.stage("draw")
    async def draw(job: Context, payload: dict[str, Any]) -> str:
        return CANARY

    return hf


def export(hf: Holdfast, endpoint: str) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    trace(hf, provider)
    return provider


if "TRACES_TO" in os.environ:
    hf = make(os.environ["HOLDFAST_DB"], poll_seconds=0.05)
    export(hf, os.environ["TRACES_TO"])
