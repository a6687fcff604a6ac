"""The server of ``holdfast serve``: uvicorn in this process, with a bounded shutdown."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address

from holdfast.api.application import create_app
from holdfast.api.sessions import DevLogin
from holdfast.app import Holdfast
from holdfast.errors import ConfigError
from holdfast.operate.access import has_keys
from holdfast.operate.changes import end_streams

try:
    import uvicorn
except ModuleNotFoundError as exc:
    raise ConfigError(
        "holdfast serve needs the extra serve. Install it: pip install 'holdfast-jobs[serve]'."
    ) from exc

# How long open requests and event streams may take when the server stops.
SHUTDOWN_SECONDS = 5


class Server:
    """Serves one application. The address is bound when the object is created."""

    def __init__(
        self,
        hf: Holdfast,
        *,
        host: str | None = None,
        port: int | None = None,
        is_dev: bool = False,
        shutdown_seconds: int = SHUTDOWN_SECONDS,
    ) -> None:
        limits = hf.settings.serve
        host = limits.host if host is None else host
        port = limits.port if port is None else port
        check_address(hf, host, is_dev=is_dev)
        self.dev_login = DevLogin() if is_dev else None
        self.app = create_app(hf, dev_login=self.dev_login)
        self._socket = _bind(host, port)
        bound = self._socket.getsockname()
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        self.url = f"http://{shown}:{bound[1]}"
        self._server = StreamingServer(
            hf,
            uvicorn.Config(
                self.app,
                log_level="warning",
                access_log=False,
                server_header=False,
                # Anyone can send X-Forwarded-For: the address of a client is that of its socket.
                proxy_headers=False,
                date_header=True,
                timeout_graceful_shutdown=shutdown_seconds,
                timeout_keep_alive=15,
                h11_max_incomplete_event_size=64 * 1024,
                lifespan="off",
            ),
        )

        self.app.state.is_stopping = lambda: self._server.should_exit

    @property
    def greeting(self) -> list[str]:
        """Lines for the person who started it."""
        if self.dev_login is None:
            return [f"Holdfast serves {self.url}", f"API reference: {self.url}/v1/docs"]
        link = f"{self.url}/dev-login?token={self.dev_login.token}"
        return [f"Open the console (single use): {link}", f"API reference: {self.url}/v1/docs"]

    def run(self, on_started: Callable[[], object] | None = None) -> None:
        """Serve until SIGINT or SIGTERM. Open requests have a few seconds to finish.

        *on_started* is called when requests are answered and both signals end the server.
        """
        self._server.on_started = on_started
        # Bulk actions of an earlier process continue.
        self.app.state.bulk_runner.wake()
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self.app.state.bulk_runner.stop()
            self.app.state.run_runner.stop(SHUTDOWN_SECONDS)

    def stop(self) -> None:
        """Stop serving, from any thread."""
        self._server.should_exit = True


class StreamingServer(uvicorn.Server):
    """Ends the event streams when it stops, which would otherwise keep it running."""

    def __init__(self, hf: Holdfast, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._hf = hf
        self.on_started: Callable[[], object] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.on_started is not None:
            self.on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say farewell to the clients of event streams, then stop."""
        await asyncio.to_thread(end_streams, self._hf)
        await super().shutdown(sockets)


def check_address(hf: Holdfast, host: str, *, is_dev: bool) -> None:
    """Raise ConfigError for an address that others can reach without authentication."""
    if is_loopback(host):
        return
    if is_dev:
        raise ConfigError(
            f"--dev logs in without a key, so it listens on this machine only, not on {host}."
            " Leave --host out, or leave --dev out and create a key: holdfast keys create NAME"
            " --role admin --reason TEXT"
        )
    if hf.settings.serve.oidc.issuer is None and not has_keys(hf.store):
        raise ConfigError(
            f"{host} is reachable from other machines, and no API key exists. Create one first:"
            " holdfast keys create NAME --role admin --reason TEXT"
        )


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as exc:
        raise ConfigError(
            f"Cannot listen on {host} port {port}: {exc.strerror}. Choose another: --port."
        ) from exc
