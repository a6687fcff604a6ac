"""A collector on loopback that parses and stores the spans of OpenTelemetry's exporter."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.trace.v1 import trace_pb2


@dataclass(frozen=True)
class Seen:
    """A span as it was transferred."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    failed: bool
    description: str
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    events: int

    @classmethod
    def of(cls, span: trace_pb2.Span) -> Seen:
        return cls(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
            span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
            span.status.message,
            {
                item.key: getattr(item.value, str(item.value.WhichOneof("value")))
                for item in span.attributes
            },
            [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
            len(span.events),
        )


@dataclass
class Collector:
    url: str
    spans: list[Seen] = field(default_factory=list)
    bytes: bytearray = field(default_factory=bytearray)

    def take(self, body: bytes) -> None:
        self.bytes += body
        request = otlp.ExportTraceServiceRequest.FromString(body)
        self.spans += (
            Seen.of(span)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        )

    def named(self, name: str) -> list[Seen]:
        return [span for span in self.spans if span.name == name]


@contextmanager
def collecting() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.take(self.rfile.read(int(self.headers["content-length"])))
            answer = otlp.ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None: ...

    with serving(Handler) as server:
        found = Collector(f"http://127.0.0.1:{server.server_port}/v1/traces")
        yield found


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[ThreadingHTTPServer]:
    """A real HTTP server on a free port of the loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
