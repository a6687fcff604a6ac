"""The settings of the HTTP API and the console."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.config.setting_type import Section, number, setting, text, whole


@dataclass(frozen=True, slots=True)
class ServeSettings(Section):
    """Address and limits of `holdfast serve`: `[serve]`."""

    host: str = setting("127.0.0.1", text("an address"))
    """Address to listen on. An address other than loopback needs an API key, or an authentication
    of your own."""
    port: int = setting(8321, whole(0, 65_535))
    """Port to listen on; 0 chooses a free one."""
    session_hours: float = setting(12.0, number(0.1, 30 * 24))
    """How long a session of the console lasts."""
    requests_per_minute: int = setting(60_000, whole(1, 10_000_000))
    """Requests that an API key may make in a minute, unless the key has its own limit."""
    body_limit_bytes: int = setting(1024 * 1024, whole(1024, 64 * 1024 * 1024))
    """Maximum size of a request body in bytes."""
    body_seconds: float = setting(10.0, number(0.1, 300))
    """How long a client may take to send a request body."""
    read_seconds: float = setting(5.0, number(0.1, 300))
    """How long the database may work on one read of a request."""
