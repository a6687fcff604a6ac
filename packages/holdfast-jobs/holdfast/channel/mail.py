"""A message as a mail: the same bytes for the same message, headers that hold one line each."""

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
    """The Message-ID, without its brackets: a reader that gets a mail twice knows it again."""
    return f"{token}@{sender_address(sender).rpartition('@')[2]}"


def compose(message: Message, sender: str, at: datetime) -> bytes:
    """The mail, in ASCII, with lines that end as SMTP wants it.

    A body is encoded, so that nothing in it can end a mail or begin another one. Raises ValueError
    for an address or a subject that no mail can have.
    """
    to = ascii_email(message.address)
    if to is None or subject_problem(message.subject) is not None:
        raise ValueError("no mail can be made of this")
    mail = EmailMessage(policy=SMTP)
    name, address = parseaddr(sender)
    mail["From"] = Address(name, addr_spec=address)
    mail["To"] = Address(addr_spec=to)
    mail["Date"] = format_datetime(at)
    mail["Message-ID"] = f"<{message_id(message.token, sender)}>"
    # Whoever is away does not answer a machine.
    mail["Auto-Submitted"] = "auto-generated"
    mail[TOKEN_HEADER] = message.token
    mail.set_content(message.text, cte="quoted-printable")
    if message.html is not None:
        mail.add_alternative(message.html, subtype="html", cte="quoted-printable")
        # Drawn at random otherwise.
        mail.set_boundary(f"=_{message.token}")
    return _subject(message.subject) + mail.as_bytes()


def _subject(text: str) -> bytes:
    """The subject's header. It is written here because the library reads what it is given.

    A text such as ``=?utf-8?q?a=0D=0AB?=`` is decoded by it, and where it then folds the line, the
    line break inside is a second header.
    """
    is_plain = text.isascii() and "=?" not in text and text == text.strip() and len(text) <= 68
    if not is_plain:
        text = Header(text, "utf-8", header_name="Subject").encode(linesep="\r\n")
    return f"Subject: {text}\r\n".encode("ascii")
