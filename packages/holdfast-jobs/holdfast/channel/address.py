"""Validate addresses and subjects. Pure; error messages never repeat the input.

A line break in a header would start a second header, so such input is rejected, not repaired.
"""

from __future__ import annotations

import re
import socket
import unicodedata

from holdfast.config import ChannelSettings
from holdfast.errors import ConfigError
from holdfast.outbound.address import may_reach
from holdfast.outbound.guard import Origin

LONGEST_SUBJECT = 500
LONGEST_URL = 2000
# Atoms separated by dots. Quoted local parts are legal but rare, and allow injection.
_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_CONVERSATION = re.compile(r"[CGD][A-Z0-9]{2,30}")
# Unicode categories allowed in a domain: letters, marks and digits.
_LETTERS = frozenset({"Ll", "Lm", "Lo", "Mn", "Mc", "Nd"})
# Names that are only valid within one network, like names without a dot.
_OWN = (".localhost", ".local", ".internal", ".home.arpa")
# Ports of databases and similar services, which could read a request as commands.
_OTHERS = frozenset({1433, 1521, 2049, 2375, 3306, 3389, 5432, 5672, 6379, 9200, 11211, 27017})
# Characters that may end a line, here or in another parser.
_BREAKS = frozenset({"Cc", "Zl", "Zp", "Cs"})


def problem(settings: ChannelSettings, address: str, subject: str) -> str | None:
    """Return why a channel cannot carry this message, without repeating it; None if it can.

    It needs no credential: the process that stores a message may not be the one that sends it.
    """
    match settings.kind:
        case "slack":
            found = conversation_problem(address)
        case "webhook" if settings.base_url is not None:
            found = line_problem(address)
        case "webhook":
            found = url_problem(address, allow_private=settings.allow_private)
        case _:
            found = email_problem(address)
    if found is not None:
        return f"address {found}"
    if settings.kind == "resend" and not subject:
        return "subject must not be empty"
    found = subject_problem(subject)
    return None if found is None else f"subject {found}"


def ascii_email(address: str) -> str | None:
    """The address as mail servers accept it, with an ASCII domain; None if it is invalid."""
    local, at, domain = address.rpartition("@")
    # "=?" starts an encoded word, which a reader of the header may decode into a line break.
    if not at or len(local) > 64 or "=?" in local or not _LOCAL.fullmatch(local):
        return None
    labels = [_ascii_label(label) for label in domain.split(".")]
    plain = ".".join(labels)
    if len(plain) > 253 or len(labels) < 2 or not all(map(_LABEL.fullmatch, labels)):
        return None
    return f"{local}@{plain}"


def _ascii_label(label: str) -> str:
    """A domain label in ASCII, as IDNA 2008 writes it; empty if it is ambiguous.

    Python's codec implements IDNA 2003, which maps "straße" to "strasse", a different domain. A
    label is accepted only if both versions agree.
    """
    if label.isascii():
        return label
    text = unicodedata.normalize("NFC", label.lower())
    is_plain = all(letter == "-" or unicodedata.category(letter) in _LETTERS for letter in text)
    if not is_plain or text != unicodedata.normalize("NFKC", text.casefold()):
        return ""
    return "xn--" + text.encode("punycode").decode("ascii")


def email_problem(address: str) -> str | None:
    """What is wrong with an e-mail address; None if it is valid."""
    if ascii_email(address) is not None:
        return None
    says = "must be one e-mail address such as name@example.com, without a name around it"
    if not address.rpartition("@")[2].isascii():
        says += "; a domain in another script can be given as xn--…"
    return says


def url_problem(address: str, *, allow_private: bool = False) -> str | None:
    """What is wrong with the URL of a webhook; None if it is valid."""
    says = "must be an address such as https://example.com/hooks, without a login or a fragment"
    if len(address) > LONGEST_URL or not address.isascii() or not address.isprintable():
        return says
    if any(letter in address for letter in ' #\\"<>'):
        return says
    try:
        origin = Origin.from_url(address, allow_private=allow_private)
    except ConfigError:
        return says
    if not _may_lead(origin.host, is_private=allow_private):
        return "must lead to a public server, or with allow_private = true to one of your own"
    if origin.port in _OTHERS or (origin.port < 1024 and origin.port not in (80, 443)):
        return "must have port 443 or one from 1024 on at which no other service listens"
    return None


def _may_lead(host: str, *, is_private: bool) -> bool:
    """Whether a host may be called, judged by its name; the guard checks its addresses."""
    last = host.rpartition(".")[2]
    if host.startswith("[") or last[0].isdecimal():
        address = _numbers(host)
        return address is not None and may_reach(address, private=is_private)
    return is_private or not (last == host or f".{host}".endswith(_OWN))


def _numbers(host: str) -> str | None:
    """The IP address that a numeric host denotes; None if it is not numeric.

    Resolvers also accept "127.1", "0x7f000001" and "017700000001" as addresses.
    """
    if host.startswith("["):
        return host[1:-1]
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None


def conversation_problem(address: str) -> str | None:
    """What is wrong with the id of a Slack conversation; None if it is valid."""
    if _CONVERSATION.fullmatch(address) is None:
        # A conversation name allows posting but not reading.
        return "must be the id of a conversation such as C0123456789, not its name"
    return None


def line_problem(address: str) -> str | None:
    """What is wrong with an address that only the gateway can interpret; None if it is valid."""
    if not 1 <= len(address) <= LONGEST_SUBJECT or has_breaks(address):
        return f"must be one line of 1 to {LONGEST_SUBJECT} characters"
    return None


def subject_problem(subject: str) -> str | None:
    """What is wrong with a subject; None if it is valid."""
    if len(subject) > LONGEST_SUBJECT or has_breaks(subject):
        return f"must be one line of at most {LONGEST_SUBJECT} characters"
    return None


def text_problem(written: str, longest: int | None) -> str | None:
    """What is wrong with the rendered subject and text; None if they are valid."""
    if longest is None or len(written) <= longest:
        return None
    return f"text must have at most {longest} characters with its subject; cut it or send a link"


def has_breaks(text: str) -> bool:
    """Whether *text* holds line breaks or other control characters."""
    return any(unicodedata.category(letter) in _BREAKS for letter in text)
