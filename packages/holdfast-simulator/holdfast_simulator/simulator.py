"""The simulator: one world, served over HTTP, with everything that a test asks of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from holdfast_simulator.ask import Ask, Responder, respond
from holdfast_simulator.clock import Clock, VirtualClock
from holdfast_simulator.control import Control
from holdfast_simulator.faults import Faults
from holdfast_simulator.journal import Journal
from holdfast_simulator.leaks import Leaks
from holdfast_simulator.ledger import Ledger
from holdfast_simulator.messages import Messages
from holdfast_simulator.mounts import CARRIERS, MOUNTS
from holdfast_simulator.server import Server
from holdfast_simulator.smtp_server import SmtpServer
from holdfast_simulator.thing import Pace
from holdfast_simulator.world import World


class Simulator:
    """Simulated providers on a local port.

    with Simulator() as sim:
        client = OpenAI(base_url=sim.url("openai"), api_key="any", max_retries=0)
        sim.faults.add("accept_then_reset")
        ...
        sim.clock.advance(minutes=5)
        assert sim.ledger.double_paid() == {}

    The clock does not move by itself: pass the clock of the application under test, or a
    :class:`MovingClock` for real time. The same seed, clock and requests give the same output.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        seed: int = 0,
        pace: Pace | None = None,
        responder: Responder = respond,
        unit_of: Callable[[Ask], str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.clock = clock if clock is not None else VirtualClock()
        self.journal = Journal()
        self.world = World(self.clock, seed=seed, pace=pace, responder=responder, unit_of=unit_of)
        for make in MOUNTS:
            mount = make(self.world)
            self.world.mounts[mount.name] = mount
        for make_carrier in CARRIERS:
            carrier = make_carrier(self.world)
            self.world.carriers[carrier.name] = carrier
        control = Control(self.world, self.journal, self.reset)
        self._host = host
        self._smtp: dict[bool, SmtpServer] = {}
        self._server = Server((host, port), self.world, self.journal, control)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="holdfast-simulator", daemon=True
        )

    @property
    def faults(self) -> Faults:
        """The faults to simulate."""
        return self.world.faults

    @property
    def ledger(self) -> Ledger:
        """The billed executions."""
        return self.world.ledger

    @property
    def messages(self) -> Messages:
        """The accepted messages."""
        return self.world.messages

    @property
    def smtp(self) -> SmtpServer:
        """A mail server with STARTTLS. It starts to listen on first use."""
        return self.mail_server()

    @property
    def smtps(self) -> SmtpServer:
        """A mail server with TLS from the first byte. It starts to listen on first use."""
        return self.mail_server(is_tls=True)

    def mail_server(self, port: int = 0, *, is_tls: bool = False) -> SmtpServer:
        """Return the mail server of that kind; *port* applies on first use."""
        with self.world.lock:
            if is_tls not in self._smtp:
                self._smtp[is_tls] = SmtpServer(
                    self.world, self.journal, host=self._host, port=port, is_tls=is_tls
                )
            return self._smtp[is_tls]

    @property
    def leaks(self) -> Leaks:
        """The canary texts that were found where they must not be."""
        return self.world.leaks

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return self._server.origin

    def url(self, provider: str) -> str:
        """Return the base URL for the official client of a provider."""
        mount = self.world.doors.get(provider)
        if mount is None:
            known = ", ".join(self.world.doors)
            raise ValueError(f"there is no provider {provider!r}; there are {known}")
        return self.origin + mount.prefix

    def reset(self) -> None:
        """Forget files, batches, faults, journal, bill and leaks. The time stays."""
        self.world.reset()
        self.journal.clear()

    def start(self) -> Self:
        """Start serving."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop serving and close all connections. Safe to call twice."""
        while self._smtp:
            self._smtp.popitem()[1].close()
        if self._thread.is_alive():
            self._server.close()
            self._thread.join()
        else:
            self._server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
