"""Parse an SMTP mail into one message for each recipient."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Iterator, Sequence

from holdfast_simulator.messages import ReceivedMessage


def read_mail(
    provider: str, user: str | None, recipients: Sequence[str], data: bytes
) -> Iterator[ReceivedMessage]:
    """Yield one message for each recipient. The token is the local part of the Message-ID."""
    mail = email.message_from_bytes(data, policy=email.policy.default)
    message_id = str(mail["message-id"] or "").strip()
    plain = mail.get_body(("plain",))
    html = mail.get_body(("html",))
    for address in recipients:
        yield ReceivedMessage(
            provider,
            user or "",
            message_id.strip("<>").rpartition("@")[0],
            address,
            str(mail["subject"] or ""),
            "" if plain is None else str(plain.get_content()),
            data,
            None if html is None else str(html.get_content()),
            {"message_id": message_id, "from": str(mail["from"] or "")},
        )
