"""A scripted mail server that records what it received."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PEM = Path(__file__).parents[1] / "telemetry" / "loopback.pem"
# Instead of an answer: the connection closes, without a reply or in the middle of the body.
HANG_UP = "hang up"
CUT = "cut"


@dataclass
class MailServer:
    """*says* maps a command to its answer; ``greeting`` and ``dot`` are separate phases."""

    says: Mapping[str, str] = field(default_factory=dict)
    offers: tuple[str, ...] = ("SIZE 1000000",)
    is_encrypted: bool = False
    heard: list[str] = field(default_factory=list)
    mails: list[bytes] = field(default_factory=list)
    # The mails whose final dot arrived.
    taken: list[bytes] = field(default_factory=list)
    port: int = 0

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            # Several clients may be connected at once.
            threading.Thread(target=self._attend, args=(connection,), daemon=True).start()

    def _attend(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, EOFError), ExitStack() as opened:
            if self.is_encrypted:
                connection = opened.enter_context(self._wrapped(connection))
            self._talk(connection, opened)

    def _wrapped(self, connection: socket.socket) -> ssl.SSLSocket:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(PEM)
        return context.wrap_socket(connection, server_side=True)

    def _talk(self, connection: socket.socket, opened: ExitStack) -> None:
        file = opened.enter_context(connection.makefile("rb"))
        self._say(connection, self.says.get("greeting", "220 ready"))
        while line := file.readline():
            command = line.decode().strip()
            self.heard.append(command)
            verb = command.split(" ")[0].upper()
            answer = self.says.get(verb, self._answer(verb))
            self._say(connection, answer)
            if verb == "STARTTLS" and answer.startswith("220"):
                connection = opened.enter_context(self._wrapped(connection))
                file = opened.enter_context(connection.makefile("rb"))
            if verb == "DATA" and answer.startswith("354"):
                if self.says.get("dot") == CUT:
                    raise EOFError
                mail = b""
                while (line := file.readline()) not in (b".\r\n", b""):
                    mail += line
                self.mails.append(mail)
                if line:
                    self.taken.append(mail)
                self._say(connection, self.says.get("dot", "250 queued"))
            if verb == "QUIT":
                return

    def _answer(self, verb: str) -> str:
        match verb:
            case "EHLO":
                return "\r\n".join(["250-here", *(f"250-{word}" for word in self.offers), "250 OK"])
            case "STARTTLS":
                return "220 go on"
            case "DATA":
                return "354 go on"
            case "AUTH":
                return "235 welcome"
            case "QUIT":
                return "221 bye"
            case _:
                return "250 fine"

    def _say(self, connection: socket.socket, answer: str) -> None:
        if answer == HANG_UP:
            raise EOFError
        connection.sendall(f"{answer}\r\n".encode())


@contextmanager
def mail_server(
    says: Mapping[str, str] | None = None, *, offers: tuple[str, ...] = (), encrypted: bool = False
) -> Iterator[MailServer]:
    server = MailServer(says or {}, (*offers, "SIZE 1000000"), encrypted)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if server.says.get("dot") == CUT:
            # Loopback buffers hold a whole mail by default (2.6 MB). With small ones the client
            # waits in the middle of it, however late the server closes the connection.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        server.port = listener.getsockname()[1]
        thread = threading.Thread(target=server.serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)
