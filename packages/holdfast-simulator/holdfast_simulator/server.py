"""The HTTP server. Routers answer the requests; faults truncate answers."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast_simulator.blob import PIECE, Blob
from holdfast_simulator.control import Control
from holdfast_simulator.exchange import Answer, Call, Endpoint, Op, Refused, Route, Why
from holdfast_simulator.faults import Rule
from holdfast_simulator.journal import KEPT_BODY, Journal, fingerprint, masked
from holdfast_simulator.message_faults import play_message
from holdfast_simulator.message_scripts import MESSAGE_SCRIPTS
from holdfast_simulator.play import NOTHING, End, Ending, play
from holdfast_simulator.state import SimulatorState

# Seconds between checks whether the client of a stalled connection is still there.
LOOK = 0.02
# Headers with the sender's message id; faults can target their values.
TOKENS = ("idempotency-key", "webhook-id")


class Server(ThreadingHTTPServer):
    """Serves one state over keep-alive connections, one thread each."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], state: SimulatorState, journal: Journal, control: Control
    ) -> None:
        self.state = state
        self.journal = journal
        self.control = control
        self.is_closing = threading.Event()
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        super().__init__(address, Handler)

    @property
    def origin(self) -> str:
        host, port = self.server_address[0], self.server_address[1]
        return f"http://{host!s}:{port}"

    def find(self, path: str) -> tuple[Endpoint, str] | None:
        """Return the router of a path, and the rest of the path."""
        for router in self.state.endpoints.values():
            if path.startswith(f"{router.prefix}/"):
                return router, path[len(router.prefix) :]
        return None

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._open.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._changed:
                self._open.discard(request)
                self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""

    def close(self) -> None:
        """Stop serving and end every connection and thread."""
        self.is_closing.set()
        self.shutdown()
        with self._changed:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._open, timeout=5.0)
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "holdfast-simulator"
    sys_version = ""
    disable_nagle_algorithm = True
    wbufsize = PIECE

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: the journal records requests."""

    def __getattr__(self, name: str) -> Any:
        # The standard library calls do_GET, do_POST and so on.
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the simulator's time, so that clients can interpret Retry-After dates."""
        return format_datetime(self.server.state.clock.now(), usegmt=True)

    def _serve(self) -> None:
        with suppress(ConnectionError, TimeoutError):
            parts = urlsplit(self.path)
            path = unquote(parts.path)
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            headers = {name.lower(): value for name, value in self.headers.items()}
            call = Call(self.command, path, query, headers, Blob(), self._origin(headers))
            if path == "/_sim" or path.startswith("/_sim/"):
                self._read_body(call.body)
                self._send(self.server.control.handle(call))
            else:
                self._exchange(call)

    def _origin(self, headers: dict[str, str]) -> str:
        host = headers.get("host")
        return f"http://{host}" if host else self.server.origin

    def _exchange(self, call: Call) -> None:
        """Handle one request to a provider completely."""
        server = self.server
        found = server.find(call.path)
        if found is None:
            self._read_body(call.body)
            known = ", ".join(router.prefix for router in server.state.endpoints.values())
            self._send(
                Answer.from_json({"error": f"Nothing is mounted here; there are {known}."}, 404)
            )
            return
        router, path = found
        route, params = _route(router, call.method, path)
        op = Op.OTHER if route is None else route.op
        pieces = self._body()
        call.body.write(next(pieces, b""))
        tokens = [call.headers.get(name, "") for name in TOKENS]
        head = f"{call.path}\n{call.query}\n{tokens}\n".encode() + call.body.read()
        rule = server.state.faults.on_exchange(router.name, op, call.method, path, head)
        defect: list[str] = []
        if rule is not None and rule.name == "upload_interrupted":
            turn = Ending(NOTHING, End.RESET)
        else:
            for piece in pieces:
                call.body.write(piece)
            turn = _answer(server.state, router, route, replace(call, params=params), rule, defect)
        body = call.body
        server.journal.add(
            at=server.state.clock.now(),
            provider=router.name,
            op=str(op),
            method=call.method,
            path=call.path,
            query=call.query,
            headers=masked(call.headers),
            size=body.size,
            body=body.read() if body.size <= KEPT_BODY else None,
            status=turn.answer.status,
            fault=None if rule is None else rule.name,
            defect=defect[0] if defect else None,
        )
        self._act(turn)

    # -- the request's body

    def _body(self) -> Iterator[bytes]:
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            yield from self._chunks()
            return
        left = int(self.headers.get("content-length") or 0)
        while left > 0:
            piece = self.rfile.read(min(PIECE, left))
            if not piece:
                raise ConnectionError("the client went away")
            left -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while True:
            size = int(self.rfile.readline().split(b";")[0] or b"0", 16)
            if size == 0:
                while self.rfile.readline().strip():
                    pass
                return
            left = size
            while left > 0:
                piece = self.rfile.read(min(PIECE, left))
                if not piece:
                    raise ConnectionError("the client went away")
                left -= len(piece)
                yield piece
            self.rfile.readline()

    def _read_body(self, blob: Blob) -> None:
        for piece in self._body():
            blob.write(piece)

    # -- the answer

    def _act(self, turn: Ending) -> None:
        match turn.end:
            case End.SEND:
                self._send(turn.answer)
            case End.RESET:
                self._reset()
            case End.CUT:
                self._send(turn.answer, turn.share, is_chunked=turn.is_chunked)
                self.close_connection = True
            case End.STALL:
                if turn.answer is not NOTHING:
                    self._send(turn.answer, turn.share)
                self._stall(turn.seconds)
                self.close_connection = True

    def _send(
        self, answer: Answer, share: float | None = None, *, is_chunked: bool = False
    ) -> None:
        """Send an answer, or part of its body with the headers of the complete answer."""
        pieces = iter([answer.body]) if answer.pieces is None else answer.pieces()
        size = len(answer.body) if answer.pieces is None else answer.size
        is_chunked = is_chunked or size is None
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if is_chunked:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(size))
        self.end_headers()
        if share is not None:
            pieces = _first(pieces, int((size or 0) * share))
        for piece in pieces:
            self._write(piece, is_chunked=is_chunked)
        if is_chunked and share is None:
            self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _write(self, piece: bytes, *, is_chunked: bool) -> None:
        if not piece:
            return
        if is_chunked:
            self.wfile.write(b"%x\r\n" % len(piece))
        self.wfile.write(piece)
        if is_chunked:
            self.wfile.write(b"\r\n")

    def _reset(self) -> None:
        """Close the connection so that the client sees a reset."""
        self.close_connection = True
        no_linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
        # The socket closes with its two files, right after this request.
        self.connection.close()

    def _stall(self, seconds: float) -> None:
        """Send nothing until the client disconnects, the time is over, or the simulator closes."""
        end = time.monotonic() + seconds
        self.connection.settimeout(LOOK)
        while time.monotonic() < end and not self.server.is_closing.is_set():
            try:
                if not self.connection.recv(1, socket.MSG_PEEK):
                    return
                # The client sent more data, so it is still connected.
                self.server.is_closing.wait(LOOK)
            except TimeoutError:
                continue
            except OSError:
                return


def _route(router: Endpoint, method: str, path: str) -> tuple[Route | None, dict[str, str]]:
    for route in router.routes:
        params = route.match(method, path)
        if params is not None:
            return route, params
    return None, {}


def _answer(
    state: SimulatorState,
    router: Endpoint,
    route: Route | None,
    call: Call,
    rule: Rule | None,
    defects: list[str],
) -> Ending:
    """Let the router answer under the state's lock, with the fault applied."""

    def process() -> Answer:
        try:
            if route is None:
                raise Refused(Why.NOT_FOUND, f"There is no {call.method} {call.path}.")
            key = router.credential(call)
            if key is None:
                raise Refused(Why.UNAUTHORIZED, "You didn't provide an API key.")
            account = f"{router.name}:{fingerprint(key)}"
            return route.handle(replace(call, account=account))
        except Refused as refused:
            return router.refuse(refused)
        except Exception as exc:
            # A responder or router bug: the client gets a 500, and the journal records the error.
            defects.append(f"{type(exc).__qualname__}: {exc}")
            return router.refuse(Refused(Why.SERVER_ERROR, "Internal error of the simulator."))

    with state.lock:
        state.pass_time()
        state.leaks.forbid("address", call.path, *call.query, *call.query.values())
        state.leaks.forbid("header", *call.headers.values())
        if rule is not None and rule.name in MESSAGE_SCRIPTS:
            return play_message(rule, state.messages, router, process)
        return play(rule, state, router, call, process)


def _first(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the first *size* bytes."""
    for piece in pieces:
        if size <= 0:
            return
        yield piece[:size]
        size -= len(piece)
