"""The simulator: one state, served over HTTP, with an interface for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from holdfast_simulator.clock import Clock, VirtualClock
from holdfast_simulator.control import Control
from holdfast_simulator.faults import Faults
from holdfast_simulator.journal import Journal
from holdfast_simulator.leaks import Leaks
from holdfast_simulator.ledger import Ledger
from holdfast_simulator.messages import Messages
from holdfast_simulator.models import Pace
from holdfast_simulator.prompt import Prompt, Responder, respond
from holdfast_simulator.routers import CARRIERS, ROUTERS
from holdfast_simulator.server import Server
from holdfast_simulator.smtp_server import SmtpServer
from holdfast_simulator.state import SimulatorState


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
        unit_of: Callable[[Prompt], str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.clock = clock if clock is not None else VirtualClock()
        self.journal = Journal()
        self.state = SimulatorState(
            self.clock, seed=seed, pace=pace, responder=responder, unit_of=unit_of
        )
        for make in ROUTERS:
            router = make(self.state)
            self.state.routers[router.name] = router
        for make_carrier in CARRIERS:
            carrier = make_carrier(self.state)
            self.state.carriers[carrier.name] = carrier
        control = Control(self.state, self.journal, self.reset)
        self._host = host
        self._smtp: dict[bool, SmtpServer] = {}
        self._server = Server((host, port), self.state, self.journal, control)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="holdfast-simulator", daemon=True
        )

    @property
    def faults(self) -> Faults:
        """The faults to simulate."""
        return self.state.faults

    @property
    def ledger(self) -> Ledger:
        """The billed executions."""
        return self.state.ledger

    @property
    def messages(self) -> Messages:
        """The accepted messages."""
        return self.state.messages

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
        with self.state.lock:
            if is_tls not in self._smtp:
                self._smtp[is_tls] = SmtpServer(
                    self.state, self.journal, host=self._host, port=port, is_tls=is_tls
                )
            return self._smtp[is_tls]

    @property
    def leaks(self) -> Leaks:
        """The canary texts that were found where they must not be."""
        return self.state.leaks

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return self._server.origin

    def url(self, provider: str) -> str:
        """Return the base URL for the official client of a provider."""
        router = self.state.endpoints.get(provider)
        if router is None:
            known = ", ".join(self.state.endpoints)
            raise ValueError(f"there is no provider {provider!r}; there are {known}")
        return self.origin + router.prefix

    def reset(self) -> None:
        """Forget files, batches, faults, journal, bill and leaks. The time stays."""
        self.state.reset()
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
