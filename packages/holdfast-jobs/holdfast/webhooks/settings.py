"""The section ``[webhooks]`` of the settings file."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.config.setting_type import FLAG, Section, number, setting, whole


@dataclass(frozen=True, slots=True)
class WebhookSettings(Section):
    """Endpoints that get signed messages about changes: `[webhooks]`."""

    allow_private: bool = setting(False, FLAG)
    """Allow endpoints in a private network, and plain HTTP."""
    overlap_seconds: float = setting(86_400.0, number(0, 30 * 86_400))
    """How long the previous secret of an endpoint signs messages as well after a rotation."""
    max_endpoints: int = setting(50, whole(1, 1_000))
    """Maximum number of endpoints of one tenant."""
    max_parallel: int = setting(4, whole(1, 32))
    """Maximum number of messages that one pass sends in parallel."""
    connect_seconds: float = setting(10.0, number(0.1, 600))
    """Timeout for connecting."""
    read_seconds: float = setting(15.0, number(0.1, 600))
    """Timeout for reading a response."""
