"""SMTP: mail to a server that supports no lookup.

Before the final dot, the server has accepted nothing. After it, the outcome is unknown until the
server answers the dot (RFC 1047).
"""

from __future__ import annotations

import re
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from holdfast.channel.address import ascii_email
from holdfast.channel.channel import (
    Accepted,
    Capabilities,
    ChannelRefused,
    LookupFailed,
    LookupKey,
    LookupResult,
    Rejected,
    Sent,
    Throttled,
    Unsure,
)
from holdfast.channel.mail import compose, message_id, sender_address
from holdfast.channel.message import Message
from holdfast.clock import Clock
from holdfast.config import ChannelSettings
from holdfast.errors import ConfigError
from holdfast.outbound.client import is_tls_refusal
from holdfast.outbound.credential import Credential
from holdfast.outbound.guard import Blocked, Guard, Origin

# The limit for a whole session. A slow server that sends a byte now and then never triggers a read
# timeout.
LONGEST_SECONDS = 300.0
PORTS = {"starttls": 587, "tls": 465, "none": 25}
_GOODBYE_SECONDS = 2.0
# At most this many addresses of a host are tried.
_TRIED = 3
# Temporarily unavailable: the server is shutting down, or its disk is full.
_BUSY = frozenset({421, 452})
# Codes about our protocol use or our login, at any stage.
_OURS = frozenset({500, 502, 503, 530, 534, 535, 538})
_DOTS = re.compile(rb"(?m)^\.")


class Smtp:
    """Sends mails through one server, with one connection per mail."""

    capabilities = Capabilities(longest_token=200)

    def __init__(
        self, name: str, settings: ChannelSettings, credential: Credential | None, clock: Clock
    ) -> None:
        self.name = name
        self._settings = settings
        self._credential = credential
        self._clock = clock
        self._sender = settings.sender or ""
        self._security = settings.security or "starttls"
        port = settings.port or PORTS[self._security]
        origin = Origin("smtp", settings.host or "", port)
        self._guard = Guard(origin, settings.allow_private)
        self._trust = self._trusted()

    def send(self, message: Message) -> Sent:
        """Send a mail once."""
        return self.send_committing(message, lambda: True)

    def send_committing(self, message: Message, may_commit: Callable[[], bool]) -> Sent:
        """Send a mail once; *may_commit* is called right before the final dot."""
        try:
            body = compose(message, self._sender, message.at or self._clock.now())
        except ValueError:
            return Rejected("bad_message", is_permanent=True)
        try:
            with self._session() as session:
                self._greet(session)
                self._address(session, message.address, len(body))
                session.put(_DOTS.sub(b"..", body))
                if not may_commit():
                    raise _NotCommittedError
                return self._finish(session, message.token)
        except _Refused as exc:
            return exc.answer
        except _NotCommittedError:
            return Rejected("not_committed", is_permanent=False)
        except smtplib.SMTPResponseException as exc:
            return _refusal(exc.smtp_code, is_about_us=True)
        except Blocked:
            return ChannelRefused("address_refused")
        except (OSError, smtplib.SMTPException) as exc:
            if is_tls_refusal(exc):
                return ChannelRefused("tls")
            # smtplib raises these if no authentication method matches.
            if type(exc) in (smtplib.SMTPNotSupportedError, smtplib.SMTPException):
                return ChannelRefused("not_supported")
            return Rejected("unreachable", is_permanent=False)

    def lookup(self, key: LookupKey) -> LookupResult:
        """Return LookupFailed: SMTP supports no lookup."""
        return LookupFailed("not_supported")

    @contextmanager
    def _session(self) -> Iterator[_Session]:
        session = _Session(self._guard, self._sender, self._settings)
        try:
            session.open(self._trust if self._security == "tls" else None)
            yield session
            session.leave()
        except _Refused:
            # Servers penalize clients that disconnect without QUIT.
            session.leave()
            raise
        finally:
            session.end()

    def _greet(self, session: _Session) -> None:
        session.ehlo_or_helo_if_needed()
        if self._security == "starttls" and self._trust is not None:
            session.encrypt(self._trust)
            session.ehlo_or_helo_if_needed()
        if self._credential is not None:
            session.login(self._settings.username or "", self._credential.reveal())

    def _address(self, session: _Session, address: str, size: int) -> None:
        options = [f"size={size}"] if session.has_extn("size") else []
        most = session.esmtp_features.get("size", "")
        if most.isdecimal() and 0 < int(most) < size:
            raise _Refused(Rejected("too_large", is_permanent=True))
        code, _ = session.mail(sender_address(self._sender), options)
        if code != 250:
            # 552 answers the declared size (RFC 1870).
            raise _Refused(_refusal(code, is_about_us=code != 552 or not options))
        code, _ = session.rcpt(ascii_email(address) or "")
        if code not in (250, 251):
            raise _Refused(_refusal(code))
        code, _ = session.docmd("DATA")
        if code != 354:
            raise _Refused(_refusal(code))

    def _finish(self, session: _Session, token: str) -> Sent:
        try:
            session.put(b".\r\n")
            code, _ = session.getreply()
        except (OSError, smtplib.SMTPException):
            return Unsure("no_answer")
        if 200 <= code < 300:
            return Accepted(message_id(token, self._sender))
        # A 421 may arrive at any time and says nothing about the mail.
        if code == 421 or not 400 <= code < 600:
            return Unsure(f"smtp_{max(code, 0)}")
        return _refusal(code)

    def _trusted(self) -> ssl.SSLContext | None:
        if self._security == "none":
            return None
        try:
            return ssl.create_default_context(cafile=self._settings.ca_file)
        except OSError as exc:
            raise ConfigError(
                f"The certificate file of channel {self.name} cannot be read:"
                f" {exc.strerror or 'it contains no certificates'}. Check"
                f" channels.{self.name}.ca_file."
            ) from None


class _Refused(Exception):
    """The server refused before the mail was complete."""

    def __init__(self, answer: Sent) -> None:
        super().__init__("refused")
        self.answer = answer


class _NotCommittedError(Exception):
    """The final dot may not be sent; the connection is closed without it."""


def _refusal(code: int, *, is_about_us: bool = False) -> Sent:
    """The result of a code that proves that nothing was accepted.

    A server that refuses our login or our sender refuses every mail until that is corrected.
    """
    if code in _BUSY:
        return Throttled(f"smtp_{code}")
    is_final = 500 <= code < 600
    if is_final and (is_about_us or code in _OURS):
        return ChannelRefused(f"smtp_{code}")
    return Rejected(f"smtp_{max(code, 0)}", is_permanent=is_final)


class _Session(smtplib.SMTP):
    """One connection to an address that the guard has checked, with a total time limit."""

    def __init__(self, guard: Guard, sender: str, settings: ChannelSettings) -> None:
        # The local host name is private, and resolving it may take seconds.
        hello = sender_address(sender).rpartition("@")[2]
        super().__init__(local_hostname=hello, timeout=settings.connect_seconds)
        self._guard = guard
        self._read_seconds = settings.read_seconds
        self._trust: ssl.SSLContext | None = None
        self._wire: socket.socket | None = None
        self._timer = threading.Timer(LONGEST_SECONDS, self._cut)
        self._timer.daemon = True

    def open(self, trust: ssl.SSLContext | None) -> None:
        """Connect and read the greeting; with *trust* the connection uses TLS from the start."""
        self._timer.start()
        self._trust = trust
        code, _ = self.connect(self._guard.origin.host, self._guard.origin.port)
        if code != 220:
            raise _Refused(_refusal(code, is_about_us=True))

    def encrypt(self, trust: ssl.SSLContext) -> None:
        """Upgrade to TLS. If the server does not offer it, nothing is sent unencrypted."""
        if not self.has_extn("starttls"):
            raise smtplib.SMTPNotSupportedError("no STARTTLS")
        code, _ = self.docmd("STARTTLS")
        if code != 220 or self.sock is None:
            raise _Refused(_refusal(code, is_about_us=True))
        self.sock = self._wrapped(self.sock, trust)
        # Discard plain-text input, including data injected before the handshake.
        self.file = None
        self.helo_resp = self.ehlo_resp = None
        self.esmtp_features = {}
        self.does_esmtp = False

    def put(self, data: bytes) -> None:
        """Send raw bytes. Raises OSError if not all of them were sent."""
        if self.sock is None:
            raise smtplib.SMTPServerDisconnected("closed")
        self.sock.sendall(data)

    def leave(self) -> None:
        """Send QUIT. The mail is complete, so the wait for the answer is short."""
        with suppress(OSError, smtplib.SMTPException):
            if self.sock is not None:
                self.sock.settimeout(_GOODBYE_SECONDS)
                self.quit()

    def end(self) -> None:
        self._timer.cancel()
        self.close()
        # After a failed handshake, close the raw connection.
        if self._wire is not None:
            self._wire.close()

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        failure: OSError = ConnectionError("no address")
        for address in self._guard.addresses(host, port)[:_TRIED]:
            try:
                self._wire = socket.create_connection((address, port), timeout)
                break
            except OSError as exc:
                failure = exc
        else:
            raise failure
        self._wire.settimeout(self._read_seconds)
        return self._wire if self._trust is None else self._wrapped(self._wire, self._trust)

    def _wrapped(self, wire: socket.socket, trust: ssl.SSLContext) -> ssl.SSLSocket:
        found = trust.wrap_socket(
            wire, server_hostname=self._guard.origin.host, do_handshake_on_connect=False
        )
        # The time limit also covers the handshake.
        self._wire = found
        found.do_handshake()
        return found

    def _cut(self) -> None:
        if self._wire is not None:
            with suppress(OSError):
                self._wire.shutdown(socket.SHUT_RDWR)
