"""One message to one recipient, as every channel gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send. Its token is the same on every attempt."""

    # Made of the delivery's identity, so that whoever sends it again sends the same.
    token: str
    # Where it goes in the channel's own words: an e-mail address, a URL, a channel's name.
    address: str = field(repr=False)
    subject: str = field(repr=False)
    text: str = field(repr=False)
    html: str | None = field(default=None, repr=False)
    # What a program reads instead of a text.
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
    # When it first went out: the date of a mail, the same on every try.
    at: datetime | None = None
    # Whose it is. A channel may have a secret for each tenant.
    org_id: str | None = None
