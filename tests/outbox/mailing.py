"""A separate worker process that sends one mail with the real clock, and is killed meanwhile."""

from __future__ import annotations

import socket
from typing import Any

from holdfast import Holdfast
from holdfast.channel.smtp import Smtp
from holdfast.clock import SystemClock
from holdfast.config import ChannelSettings, Settings


def smtp_settings(port: int) -> ChannelSettings:
    return ChannelSettings(
        kind="smtp",
        host="127.0.0.1",
        port=port,
        security="none",
        allow_private=True,
        sender="post@example.org",
    )


def send_one(url: str, port: int, org_id: str, delivery_id: str) -> None:
    """Deliver over a socket with a small buffer: a long body waits there until it is read."""
    connect = socket.create_connection

    def connect_small(*args: Any) -> socket.socket:
        made = connect(*args)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return made

    socket.create_connection = connect_small  # type: ignore[assignment]
    hf = Holdfast(settings=Settings(db=url))
    hf.outbox.use(Smtp("post", smtp_settings(port), None, SystemClock()))
    hf.outbox.deliver([delivery_id], org_id=org_id, worker_id="killed")
