"""One message to one recipient, as every channel gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send. Its token is the same on every attempt."""

    token: str
    """Identifies the delivery; the same on every attempt."""
    address: str = field(repr=False)
    """The address in the form of the channel: an e-mail address, a URL, a channel name."""
    subject: str = field(repr=False)
    """The subject."""
    text: str = field(repr=False)
    """The plain text."""
    html: str | None = field(default=None, repr=False)
    """The HTML text, if any."""
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Data for programs that receive the message."""
    at: datetime | None = None
    """When it was first sent; the same on every attempt."""
    org_id: str | None = None
    """The tenant of the message. A channel may have a secret for each tenant."""
