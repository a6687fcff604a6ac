"""One SMTP connection, command by command, with faults applied."""

from __future__ import annotations

import base64
import re
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from holdfast_simulator.exchange import Op
from holdfast_simulator.faults import Rule
from holdfast_simulator.journal import KEPT_BODY
from holdfast_simulator.mail import read_mail

if TYPE_CHECKING:
    from holdfast_simulator.smtp_server import SmtpServer

PROVIDER = "smtp"
MOST_BYTES = 10 * 1024 * 1024
LONGEST_LINE = 64 * 1024
LOOK = 0.02
PATH = re.compile(r"(?:FROM|TO):\s*<([^<>]*)>(.*)", re.IGNORECASE)


class Over(Exception):
    """Raised to end the connection."""


@dataclass(slots=True)
class Envelope:
    """The mail in progress."""

    sender: str | None = None
    recipients: list[str] = field(default_factory=list)
    is_utf8: bool = False


class Session:
    """Reads commands until the client disconnects or a fault ends the connection."""

    def __init__(self, smtp: SmtpServer, connection: socket.socket) -> None:
        self._smtp = smtp
        self._connection = connection
        self._in: BinaryIO = connection.makefile("rb")
        self._is_tls = isinstance(connection, ssl.SSLSocket)
        self._user: str | None = None
        self._has_greeted = False
        self._mail = Envelope()
        self._does: Mapping[str, Callable[[str], None]] = {
            "EHLO": self._ehlo,
            "HELO": self._helo,
            "STARTTLS": self._starttls,
            "AUTH": self._auth,
            "MAIL": self._from,
            "RCPT": self._to,
            "DATA": self._data,
            "RSET": self._reset,
            "NOOP": lambda _rest: self._say("250 2.0.0 OK"),
            "VRFY": lambda _rest: self._say("252 2.1.5 Cannot say"),
            "QUIT": self._quit,
        }

    def run(self) -> None:
        """Handle commands until the connection ends."""
        with suppress(Over):
            if self._is_refused(Op.CONNECT, "CONNECT", ""):
                return
            self._say("220 simulator ESMTP")
            while True:
                line = self._line().decode("utf-8", "surrogateescape").rstrip("\r\n")
                verb, _, rest = line.partition(" ")
                do = self._does.get(verb.upper())
                if do is None:
                    self._say("500 5.5.2 Unknown command")
                else:
                    do(rest.strip())

    def close(self) -> None:
        with suppress(OSError):
            self._in.close()
            self._connection.close()

    # -- the line

    def _line(self) -> bytes:
        line = self._in.readline(LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise Over
        return line

    def _say(self, *lines: str) -> None:
        *first, last = lines
        text = "".join(f"{line[:3]}-{line[4:]}\r\n" for line in first) + f"{last}\r\n"
        self._connection.sendall(text.encode())

    def _drop(self) -> None:
        """Close the connection so that the client sees a reset."""
        no_linger = struct.pack("ii", 1, 0)
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
        raise Over

    def _stall(self, seconds: float) -> None:
        """Send nothing until the time is over or the server closes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._smtp.is_closing.is_set():
            self._smtp.is_closing.wait(LOOK)
        raise Over

    # -- the greeting

    def _helo(self, rest: str) -> None:
        self._has_greeted = True
        self._mail = Envelope()
        self._say("250 simulator")

    def _ehlo(self, rest: str) -> None:
        self._has_greeted = True
        self._mail = Envelope()
        can = ["8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES"]
        # AUTH is offered only under TLS.
        if self._is_tls:
            can.append("AUTH PLAIN LOGIN")
        elif self._smtp.context is not None:
            can.append("STARTTLS")
        told = [f"250 {word}" for word in can]
        self._say("250 simulator", *told, f"250 SIZE {MOST_BYTES}")

    def _starttls(self, rest: str) -> None:
        if self._is_tls:
            self._say("503 5.5.1 TLS is on")
            return
        if self._smtp.context is None:
            self._say("454 4.7.0 TLS is not available")
            return
        self._say("220 2.0.0 Go ahead")
        # Discards plaintext that was sent before the TLS handshake.
        self._in.close()
        self._connection = self._smtp.context.wrap_socket(self._connection, server_side=True)
        self._in = self._connection.makefile("rb")
        self._is_tls = True
        self._has_greeted = False
        self._user = None

    def _auth(self, rest: str) -> None:
        if not self._is_tls:
            self._say("538 5.7.11 Encryption is required")
            return
        kind, _, first = rest.partition(" ")
        match kind.upper():
            case "PLAIN":
                _, name, password = (self._decoded(first or self._ask("")) + "\0\0").split("\0")[:3]
            case "LOGIN":
                name = self._decoded(first or self._ask("VXNlcm5hbWU6"))
                password = self._decoded(self._ask("UGFzc3dvcmQ6"))
            case _:
                self._say("504 5.5.4 Not a way to log in here")
                return
        users = self._smtp.users
        if users and users.get(name) != password:
            self._say("535 5.7.8 Authentication failed")
            return
        self._user = name
        self._say("235 2.7.0 Welcome")

    def _ask(self, prompt: str) -> str:
        self._say(f"334 {prompt}")
        return self._line().decode("ascii", "replace").strip()

    def _decoded(self, text: str) -> str:
        return base64.b64decode(text).decode("utf-8", "replace")

    # -- the mail

    def _from(self, rest: str) -> None:
        found = PATH.match(rest)
        if not self._has_greeted:
            self._say("503 5.5.1 Say EHLO first")
        elif self._smtp.requires_tls and not self._is_tls:
            self._say("530 5.7.0 Say STARTTLS first")
        elif self._smtp.users and self._user is None:
            self._say("530 5.7.0 Authentication required")
        elif found is None or not rest.upper().startswith("FROM"):
            self._say("501 5.5.4 MAIL FROM:<address>")
        else:
            self._mail = Envelope(found[1], is_utf8="SMTPUTF8" in found[2].upper())
            self._say("250 2.1.0 OK")

    def _to(self, rest: str) -> None:
        found = PATH.match(rest)
        if self._mail.sender is None:
            self._say("503 5.5.1 Say MAIL first")
        elif found is None or "@" not in found[1] or not rest.upper().startswith("TO"):
            self._say("501 5.1.3 RCPT TO:<address>")
        elif not found[1].isascii() and not self._mail.is_utf8:
            self._say("553 5.6.7 SMTPUTF8 is needed")
        elif not self._is_refused(Op.RECIPIENT, "RCPT", found[1]):
            self._mail.recipients.append(found[1])
            self._say("250 2.1.5 OK")

    def _reset(self, rest: str) -> None:
        self._mail = Envelope()
        self._say("250 2.0.0 OK")

    def _quit(self, rest: str) -> None:
        self._say("221 2.0.0 Bye")
        raise Over

    def _data(self, rest: str) -> None:
        if not self._mail.recipients:
            self._say("503 5.5.1 Say RCPT first")
            return
        self._say("354 End with a dot on a line")
        parts: list[bytes] = []
        size = 0
        # Only CR LF ends a line. A dot after a bare LF neither ends the mail nor is doubled.
        begins = True
        while (line := self._line()) != b".\r\n" or not begins:
            size += len(line)
            if size <= MOST_BYTES:
                # A leading dot is doubled on the wire.
                parts.append(line[1:] if begins and line.startswith(b".") else line)
            begins = line.endswith(b"\r\n")
        mail, self._mail = self._mail, Envelope()
        if size > MOST_BYTES:
            self._say("552 5.3.4 Too large")
            return
        self._finish(mail, b"".join(parts))

    def _finish(self, mail: Envelope, data: bytes) -> None:
        """Handle the final dot: accept or refuse the mail, independent of the reply."""
        state = self._smtp.state
        with state.lock:
            state.pass_time()
            recipients = ",".join(mail.recipients)
            rule = state.faults.on_exchange(PROVIDER, Op.SEND, "DATA", recipients, data)
            name = "" if rule is None else rule.name
            queue_id = state.new_id("", 10).upper()
            # A replay on the wire counts as another mail: SMTP does not deduplicate.
            times = {"duplicate_on_the_wire": 2}.get(name, 0 if name in BEFORE else 1)
            for number in range(times):
                with state.messages.under(name):
                    for letter in read_mail(PROVIDER, self._user, mail.recipients, data):
                        state.messages.take(letter, f"{queue_id}{number or ''}")
        self._note(Op.SEND, "DATA", name, data)
        self._answer(name, rule, queue_id)

    def _answer(self, name: str, rule: Rule | None, queue_id: str) -> None:
        options = {} if rule is None else rule.options
        match name:
            case "accept_then_drop" | "drop_before_accept" | "accept_then_reset" | "reset_before":
                self._drop()
            case "error_after_accept" | "accept_then_500":
                self._say("421 4.3.0 Service is shutting down")
                raise Over
            case "truncated_answer":
                # An incomplete reply code, which carries no information.
                self._connection.sendall(b"25")
                raise Over
            case "answer_hangs" | "accept_then_hang":
                self._stall(options["seconds"])
            case "throttled" | "refused":
                self._say(REFUSALS[name])
            case _:
                self._say(f"250 2.0.0 Ok: queued as {queue_id}")

    def _is_refused(self, op: Op, verb: str, address: str) -> bool:
        """Return whether a fault refuses the mail before it is transferred."""
        state = self._smtp.state
        rule = state.faults.on_exchange(PROVIDER, op, verb, address, address.encode())
        if rule is None:
            return False
        self._note(op, verb, rule.name, b"")
        if rule.name not in REFUSALS:
            self._drop()
        self._say("421 4.3.2 Too many connections" if op is Op.CONNECT else REFUSALS[rule.name])
        return True

    def _note(self, op: Op, verb: str, fault: str, data: bytes) -> None:
        """Record the mail in the journal. Its headers stay in its bytes."""
        self._smtp.journal.add(
            at=self._smtp.state.clock.now(),
            provider=PROVIDER,
            op=str(op),
            method=verb,
            path="",
            query={},
            headers={"tls": str(self._is_tls).lower(), "user": self._user or ""},
            size=len(data),
            body=data if len(data) <= KEPT_BODY else None,
            status=0,
            fault=fault or None,
        )


REFUSALS = {
    "throttled": "452 4.3.1 No room, come back later",
    "refused": "550 5.1.1 No such mailbox",
}
# Faults that store nothing.
BEFORE = {"drop_before_accept", "reset_before", *REFUSALS}
