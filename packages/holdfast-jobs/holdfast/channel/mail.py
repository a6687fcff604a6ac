"""Render a message as a mail: deterministic bytes, one line per header."""

from __future__ import annotations

from datetime import datetime
from email.header import Header
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr

from holdfast.channel.address import ascii_email, subject_problem
from holdfast.channel.message import Message

TOKEN_HEADER = "X-Holdfast-Token"  # noqa: S105


def sender_address(sender: str) -> str:
    """The bare address of ``Name <name@example.com>``."""
    return parseaddr(sender)[1]


def message_id(token: str, sender: str) -> str:
    """The Message-ID without brackets. Mail clients use it to recognize a duplicate."""
    return f"{token}@{sender_address(sender).rpartition('@')[2]}"


def compose(message: Message, sender: str, at: datetime) -> bytes:
    """Return the mail in ASCII, with CRLF line endings.

    The body is encoded, so that nothing in it can end the mail or start another one. Raises
    ValueError for an invalid address or subject.
    """
    to = ascii_email(message.address)
    if to is None or subject_problem(message.subject) is not None:
        raise ValueError("the message cannot be encoded as mail")
    mail = EmailMessage(policy=SMTP)
    name, address = parseaddr(sender)
    mail["From"] = Address(name, addr_spec=address)
    mail["To"] = Address(addr_spec=to)
    mail["Date"] = format_datetime(at)
    mail["Message-ID"] = f"<{message_id(message.token, sender)}>"
    # Suppresses automatic replies.
    mail["Auto-Submitted"] = "auto-generated"
    mail[TOKEN_HEADER] = message.token
    mail.set_content(message.text, cte="quoted-printable")
    if message.html is not None:
        mail.add_alternative(message.html, subtype="html", cte="quoted-printable")
        # The default boundary is random.
        mail.set_boundary(f"=_{message.token}")
    return _subject(message.subject) + mail.as_bytes()


def _subject(text: str) -> bytes:
    """Write the subject header. The standard library would decode the text first.

    It decodes text such as ``=?utf-8?q?a=0D=0AB?=``. When it then folds the line, the line break
    inside becomes a second header.
    """
    is_plain = text.isascii() and "=?" not in text and text == text.strip() and len(text) <= 68
    if not is_plain:
        text = Header(text, "utf-8", header_name="Subject").encode(linesep="\r\n")
    return f"Subject: {text}\r\n".encode("ascii")
