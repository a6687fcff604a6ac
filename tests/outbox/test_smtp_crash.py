"""A worker is killed at each phase of an SMTP dialogue, with a real server and a real kill -9."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.channel.channel import Capabilities, LookupKey, LookupResult, Sent
from holdfast.channel.message import Message
from holdfast.channel.smtp import Smtp
from holdfast.operate.verify.run import verify
from holdfast.outbox.delivery import State
from tests.channel.mail_server import mail_server
from tests.forking import SPAWN
from tests.outbox.mailing import send_one, smtp_settings
from tests.outbox.scripted import attempts_of, letter, state_of
from tests.story import ORG, look, make_holdfast

BEFORE_THE_DOT = ("greeting", "EHLO", "MAIL", "RCPT", "DATA", "body")


@dataclass
class StallingServer:
    """A mail server that stalls once at *phase*, and records the mails that it accepted."""

    phase: str
    reached: threading.Event = field(default_factory=threading.Event)
    mails: list[bytes] = field(default_factory=list)
    port: int = 0
    _is_stalling: bool = True
    _killed: threading.Event = field(default_factory=threading.Event)

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError, EOFError):
                self._talk(connection)

    def go_on(self) -> None:
        """The client has been killed; the next one is served."""
        self._is_stalling = False
        self._killed.set()

    def _talk(self, connection: socket.socket) -> None:
        file = connection.makefile("rb")
        self._say(connection, "greeting", "220 ready")
        while line := file.readline():
            verb = line.decode().split()[0].upper()
            self._say(connection, verb, "354 go on" if verb == "DATA" else "250 fine")
            if verb == "DATA":
                # With a small window the client waits in the body until it is read.
                self._stall("body")
                mail = b""
                while (line := file.readline()) != b".\r\n":
                    if not line:
                        return
                    mail += line
                self.mails.append(mail)
                self._say(connection, "dot", "250 queued")

    def _say(self, connection: socket.socket, phase: str, answer: str) -> None:
        self._stall(phase)
        connection.sendall(f"{answer}\r\n".encode())

    def _stall(self, phase: str) -> None:
        if self._is_stalling and phase == self.phase:
            self.reached.set()
            assert self._killed.wait(60)
            raise EOFError


@contextmanager
def stalling_server(phase: str) -> Iterator[StallingServer]:
    server = StallingServer(phase)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server.port = listener.getsockname()[1]
        threading.Thread(target=server.serve, args=(listener,), daemon=True).start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)


def smtp(port: int, clock: FakeClock) -> Smtp:
    return Smtp("post", smtp_settings(port), None, clock)


def kill_while_sending(url: str, server: StallingServer, delivery_id: str) -> None:
    """Start a worker, wait until the server stalls, and kill it."""
    worker = SPAWN.Process(target=send_one, args=(url, server.port, ORG, delivery_id), daemon=True)
    worker.start()
    try:
        assert server.reached.wait(60)
    finally:
        worker.kill()
        worker.join(60)
    assert worker.exitcode == -signal.SIGKILL
    server.go_on()


@pytest.fixture
def clock() -> FakeClock:
    """Behind the real clock at first: the parent's message is due for the child."""
    return FakeClock(datetime.now(UTC) - timedelta(minutes=1))


@pytest.fixture
def hf(url: str, clock: FakeClock) -> Iterator[Holdfast]:
    with make_holdfast(url, clock) as made:
        yield made


def after_a_kill(hf: Holdfast, clock: FakeClock, url: str, phase: str) -> tuple[Any, list[bytes]]:
    """Kill a worker at *phase*; return the delivery after the next worker, and all mails."""
    text = "A line of the mail.\n" * (45_000 if phase == "body" else 1)
    with stalling_server(phase) as server:
        hf.outbox.use(smtp(server.port, clock))
        (one,) = hf.outbox.intend([letter(text=text)], org_id=ORG)
        kill_while_sending(url, server, one.id)
        assert [row["outcome"] for row in attempts_of(hf, one)] == [None]
        # The lease of the killed worker has expired.
        clock.advance(minutes=30)
        hf.outbox.reconcile()
        clock.advance(minutes=30)
        hf.outbox.reconcile()
        return one, list(server.mails)


@pytest.mark.req("N-17")
@pytest.mark.parametrize("phase", BEFORE_THE_DOT)
def test_a_mail_whose_worker_is_killed_before_the_final_dot_is_sent_again(
    hf: Holdfast, clock: FakeClock, url: str, phase: str
) -> None:
    one, mails = after_a_kill(hf, clock, url, phase)

    assert state_of(hf, one).state is State.SENT
    assert len(mails) == 1
    assert [row["reason"] for row in attempts_of(hf, one)] == ["first", "proven_not_taken"]
    assert violated(hf) == []


@pytest.mark.both_databases
@pytest.mark.req("N-17")
def test_a_mail_whose_worker_is_killed_after_the_final_dot_is_held(
    hf: Holdfast, clock: FakeClock, url: str
) -> None:
    one, mails = after_a_kill(hf, clock, url, "dot")

    found = state_of(hf, one)
    assert (found.state, found.reason) == (State.HELD, "unknown")
    # The server accepted it once, and no worker sent it a second time.
    assert len(mails) == 1
    assert len(attempts_of(hf, one)) == 1
    assert violated(hf) == []


def violated(hf: Holdfast) -> list[str]:
    report = verify(hf.operate(actor="user:op", role="admin").context)
    return [check.name for check in report.violated]


@dataclass
class SlowDot:
    """An SMTP channel that calls a function right before the commit point is recorded."""

    smtp: Smtp
    before: Callable[[], None]
    after: Callable[[], None] = lambda: None
    name: str = "post"
    capabilities: Capabilities = Smtp.capabilities

    def send(self, message: Message) -> Sent:
        raise AssertionError("a channel with a commit point is asked to commit")

    def send_committing(self, message: Message, may_commit: Callable[[], bool]) -> Sent:
        def committing() -> bool:
            self.before()
            may = may_commit()
            self.after()
            return may

        return self.smtp.send_committing(message, committing)

    def lookup(self, key: LookupKey) -> LookupResult:
        return self.smtp.lookup(key)


@pytest.mark.both_databases
def test_a_worker_that_lost_its_lease_does_not_send_the_dot(
    hf: Holdfast, clock: FakeClock, url: str
) -> None:
    with mail_server() as server, make_holdfast(url, clock) as other:
        other.outbox.use(smtp(server.port, clock))

        def overtake() -> None:
            # The first worker stalls with the body sent. Its lease expires, and another worker
            # continues.
            clock.advance(minutes=30)
            other.outbox.reconcile()

        hf.outbox.use(SlowDot(smtp(server.port, clock), overtake))
        (one,) = hf.outbox.intend([letter()], org_id=ORG)
        hf.outbox.deliver([one.id], org_id=ORG, worker_id="slow")

    assert state_of(hf, one).state is State.SENT
    assert len(server.taken) == 1
    outcomes = [(row["outcome"], row["code"]) for row in attempts_of(hf, one)]
    assert outcomes == [("rejected", "not_committed"), ("accepted", None)]


def test_the_commit_point_is_on_record_when_the_dot_is_sent(hf: Holdfast, clock: FakeClock) -> None:
    seen: list[str] = []

    def read_phase() -> None:
        (row,) = look(hf.store, "SELECT phase FROM holdfast.delivery_attempt")
        seen.append(row["phase"])

    with mail_server() as server:
        hf.outbox.use(SlowDot(smtp(server.port, clock), read_phase, read_phase))
        (one,) = hf.outbox.intend([letter()], org_id=ORG)
        hf.outbox.deliver([one.id], org_id=ORG)
    assert seen == ["before_commit", "committed"]
    assert state_of(hf, one).state is State.SENT
