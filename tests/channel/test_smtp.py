"""Mail over SMTP: before the final dot nothing is accepted, after it only a reply decides."""

from __future__ import annotations

import email
import re
from dataclasses import replace
from datetime import UTC, datetime
from email import policy
from email.header import decode_header, make_header
from typing import Any

import pytest

from holdfast import FakeClock
from holdfast.channel.channel import Accepted, ChannelRefused, Lookup, Rejected, Throttled, Unsure
from holdfast.channel.message import Message
from holdfast.channel.smtp import Smtp
from holdfast.config import ChannelSettings
from holdfast.outbound.credential import Credential
from tests.channel.mail_server import CUT, HANG_UP, PEM, MailServer, mail_server
from tests.channel.names import deaf_port, leading

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MAIL = Message("hf_1", "ada@example.com", "Review of 4711", "Two findings.\n", at=AT)


def channel(server: MailServer, password: str | None = None, **options: Any) -> Smtp:
    given = {
        "host": "localhost",
        "security": "none",
        "allow_private": True,
        **options,
    }
    settings = ChannelSettings(
        kind="smtp",
        port=server.port,
        sender="Holdfast <post@example.org>",
        **given,
    )
    credential = None if password is None else Credential(password)
    return Smtp("mail", settings, credential, FakeClock())


def test_a_mail_is_handed_over_under_a_message_id_made_of_its_token() -> None:
    with mail_server() as server:
        sent = channel(server).send(MAIL)

    assert sent == Accepted("hf_1@example.org")
    found = email.message_from_bytes(server.mails[0], policy=policy.default)
    assert found["Message-ID"] == "<hf_1@example.org>"
    assert (found["To"], found["From"]) == ("ada@example.com", "Holdfast <post@example.org>")
    assert found["Subject"] == MAIL.subject
    assert found.get_content().splitlines() == ["Two findings."]
    assert "rcpt TO:<ada@example.com>" in server.heard
    assert server.heard[0] == "ehlo example.org"


def test_a_mail_is_the_same_on_every_try() -> None:
    with mail_server() as server:
        mail = channel(server)
        mail.send(replace(MAIL, html="<p>Two findings.</p>"))
        mail.send(replace(MAIL, html="<p>Two findings.</p>"))

    first, second = server.mails
    assert first == second
    assert b"multipart/alternative" in first


@pytest.mark.parametrize(
    "subject",
    [
        "Grüße an Zoë",
        "😀" * 500,
        "word " * 99 + "end",
        "x" * 500,
        "",
        "  kept  ",
        "=?utf-8?q?Hello=0D=0ABcc:_eve@example.com?=",
        "word " * 20 + "=?utf-8?q?Hello=0D=0ABcc:_eve@example.com?=",
        "=?utf-8?b?SGVsbG8NCkJjYzogZXZlQGV4YW1wbGUuY29t?= " * 4,
    ],
)
def test_a_subject_arrives_as_it_is_in_one_header(subject: str) -> None:
    with mail_server() as server:
        assert channel(server).send(replace(MAIL, subject=subject)) == Accepted("hf_1@example.org")

    (mail,) = server.mails
    head = mail.split(b"\r\n\r\n")[0]
    names = [line.split(b":")[0] for line in head.split(b"\r\n") if not line.startswith(b" ")]
    assert sorted(names) == sorted(
        [
            b"Subject",
            b"From",
            b"To",
            b"Date",
            b"Message-ID",
            b"Auto-Submitted",
            b"X-Holdfast-Token",
            b"MIME-Version",
            b"Content-Type",
            b"Content-Transfer-Encoding",
        ]
    )
    assert head.isascii()
    assert max(map(len, head.split(b"\r\n"))) <= 78
    found = email.message_from_bytes(mail)
    assert str(make_header(decode_header(found["Subject"]))) == subject


def test_an_address_in_another_script_is_written_in_ascii() -> None:
    with mail_server() as server:
        channel(server).send(replace(MAIL, address="ada@bücher.example"))

    assert "rcpt TO:<ada@xn--bcher-kva.example>" in server.heard
    assert b"\r\nTo: ada@xn--bcher-kva.example\r\n" in server.mails[0]


@pytest.mark.parametrize(
    "text", ["x" * 100_000, "ä" * 5_000, "." * 5_000, "word " * 30_000, "\n" * 2_000]
)
def test_a_line_is_never_longer_than_servers_take(text: str) -> None:
    with mail_server() as server:
        channel(server).send(replace(MAIL, text=text, html=f"<p>{text}</p>"))

    (mail,) = server.mails
    unstuffed = re.sub(rb"(?m)^\.\.", b".", mail)
    assert mail.isascii()
    assert max(map(len, unstuffed.split(b"\r\n"))) <= 78
    found = email.message_from_bytes(unstuffed, policy=policy.default)
    body = found.get_body(("plain",))
    assert body is not None
    assert body.get_content().rstrip("\r\n") == text.rstrip("\n")


@pytest.mark.parametrize("text", ["a\n.\nb", "a\r\n.\r\nMAIL FROM:<x@example.com>\r\n", "a\r.\rb"])
def test_a_line_with_a_dot_ends_no_mail(text: str) -> None:
    with mail_server() as server:
        channel(server).send(replace(MAIL, text=text))

    (found,) = server.mails
    assert b"\r\n..\r\n" in found
    assert not {13, 10} & set(found.replace(b"\r\n", b""))
    assert [line.split(" ")[0].upper() for line in server.heard].count("MAIL") == 1


@pytest.mark.parametrize(
    ("says", "answer"),
    [
        ({"greeting": "554 go away"}, ChannelRefused("smtp_554")),
        ({"greeting": "421 too many"}, Throttled("smtp_421")),
        ({"greeting": HANG_UP}, Rejected("unreachable", is_permanent=False)),
        ({"MAIL": "550 not you"}, ChannelRefused("smtp_550")),
        ({"MAIL": "452 full"}, Throttled("smtp_452")),
        ({"MAIL": "552 too large"}, Rejected("smtp_552", is_permanent=True)),
        ({"EHLO": "554 go away", "HELO": "554"}, ChannelRefused("smtp_554")),
        ({"EHLO": "421 too many", "HELO": "421"}, Throttled("smtp_421")),
        ({"RCPT": "421 going away"}, Throttled("smtp_421")),
        ({"RCPT": "530 log in first"}, ChannelRefused("smtp_530")),
        ({"RCPT": "550 nobody of that name"}, Rejected("smtp_550", is_permanent=True)),
        ({"RCPT": "450 later"}, Rejected("smtp_450", is_permanent=False)),
        ({"RCPT": HANG_UP}, Rejected("unreachable", is_permanent=False)),
        ({"DATA": "554 no"}, Rejected("smtp_554", is_permanent=True)),
        ({"DATA": HANG_UP}, Rejected("unreachable", is_permanent=False)),
        ({"dot": "554 spam"}, Rejected("smtp_554", is_permanent=True)),
        ({"dot": "451 later"}, Rejected("smtp_451", is_permanent=False)),
        ({"dot": "452 full"}, Throttled("smtp_452")),
    ],
)
def test_a_refusal_proves_that_nothing_was_taken(says: dict[str, str], answer: object) -> None:
    with mail_server(says) as server:
        assert channel(server).send(MAIL) == answer


@pytest.mark.parametrize(
    ("dot", "reason"),
    [
        (HANG_UP, "no_answer"),
        ("421 shutting down", "smtp_421"),
        ("25", "smtp_25"),
        ("hello", "smtp_0"),
        ("354 go on", "smtp_354"),
    ],
)
def test_after_the_final_dot_a_lost_answer_leaves_it_open(dot: str, reason: str) -> None:
    with mail_server({"dot": dot}) as server:
        assert channel(server).send(MAIL) == Unsure(reason)
    assert len(server.mails) == 1


def test_a_connection_that_breaks_in_the_middle_of_a_mail_took_nothing() -> None:
    with mail_server({"EHLO": "250 here", "dot": CUT}) as server:
        long = replace(MAIL, text="word " * 2_000_000)
        assert channel(server).send(long) == Rejected("unreachable", is_permanent=False)
    assert server.mails == []


def test_a_server_that_is_not_there_took_nothing() -> None:
    with deaf_port() as port:
        answer = channel(MailServer(port=port)).send(MAIL)

    assert answer == Rejected("unreachable", is_permanent=False)


def test_a_server_in_our_own_network_is_not_called_unless_it_is_allowed() -> None:
    with mail_server(offers=("STARTTLS",)) as server:
        mail = channel(server, security="starttls", allow_private=False)
        assert mail.send(MAIL) == ChannelRefused("address_refused")
    assert server.heard == []


@pytest.mark.parametrize(
    ("ehlo", "verbs"),
    [
        ("502 what?", ["EHLO", "HELO", "MAIL", "RCPT", "DATA", "QUIT"]),
        ("250 here", ["EHLO", "MAIL", "RCPT", "DATA", "QUIT"]),
        ("250-here\r\n250-SIZE\r\n250 X-ODD a=b", ["EHLO", "MAIL", "RCPT", "DATA", "QUIT"]),
        ("250-here\r\n250-size 0\r\n250 pipelining", ["EHLO", "MAIL", "RCPT", "DATA", "QUIT"]),
    ],
)
def test_whatever_a_server_says_of_itself_it_gets_the_mail(ehlo: str, verbs: list[str]) -> None:
    with mail_server({"EHLO": ehlo}) as server:
        assert channel(server).send(MAIL) == Accepted("hf_1@example.org")

    assert [line.split(" ")[0].upper() for line in server.heard] == verbs
    assert len(server.mails) == 1


def test_a_mail_that_is_larger_than_the_server_takes_is_not_begun() -> None:
    with mail_server() as server:
        answer = channel(server).send(replace(MAIL, text="word " * 250_000))

    assert answer == Rejected("too_large", is_permanent=True)
    assert [line.split(" ")[0].upper() for line in server.heard] == ["EHLO", "QUIT"]


@pytest.mark.parametrize("leads_to", ["127.0.0.1", "10.0.0.7", "169.254.169.254"])
def test_a_name_that_leads_into_our_own_network_is_not_called(leads_to: str) -> None:
    with mail_server(offers=("STARTTLS",)) as server, leading("mail.example.com", leads_to):
        mail = channel(server, host="mail.example.com", security="starttls", allow_private=False)
        assert mail.send(MAIL) == ChannelRefused("address_refused")
    assert server.heard == []


def test_a_name_is_resolved_once_and_the_address_that_was_looked_at_is_called() -> None:
    with (
        mail_server() as server,
        leading("mail.example.com", "127.0.0.1", "169.254.169.254") as asked,
    ):
        mail = channel(server, host="mail.example.com")
        first = mail.send(MAIL)
        was_asked = list(asked)
        second = mail.send(MAIL)

    assert (first, was_asked) == (Accepted("hf_1@example.org"), ["mail.example.com"])
    assert second == ChannelRefused("address_refused")
    assert len(server.mails) == 1


# -- encryption and logins


def test_with_starttls_the_login_and_the_mail_are_encrypted() -> None:
    with mail_server(offers=("STARTTLS", "AUTH PLAIN")) as server:
        mail = channel(
            server,
            "hunter2",
            security="starttls",
            ca_file=str(PEM),
            username="ada",
            credential_env="X",
        )
        assert mail.send(MAIL) == Accepted("hf_1@example.org")

    verbs = [line.split(" ")[0].upper() for line in server.heard]
    assert verbs == ["EHLO", "STARTTLS", "EHLO", "AUTH", "MAIL", "RCPT", "DATA", "QUIT"]


def test_with_tls_everything_is_encrypted_from_the_first_byte() -> None:
    with mail_server(encrypted=True) as server:
        mail = channel(server, security="tls", ca_file=str(PEM))
        assert mail.send(MAIL) == Accepted("hf_1@example.org")


def test_a_server_that_offers_no_encryption_hears_nothing() -> None:
    with mail_server(offers=("AUTH PLAIN",)) as server:
        mail = channel(server, "hunter2", security="starttls", username="ada", credential_env="X")
        assert mail.send(MAIL) == ChannelRefused("not_supported")

    assert [line.split(" ")[0].upper() for line in server.heard] in (["EHLO"], ["EHLO", "QUIT"])


@pytest.mark.parametrize(
    ("starttls", "answer"),
    [
        ("454 not just now", Rejected("smtp_454", is_permanent=False)),
        ("502 not here", ChannelRefused("smtp_502")),
        (HANG_UP, Rejected("unreachable", is_permanent=False)),
        # A man in the middle injects a line that looks like the server's next reply.
        ("220 go on\r\n250 in the clear", ChannelRefused("tls")),
    ],
)
def test_a_server_that_goes_back_on_encryption_hears_no_login_and_no_mail(
    starttls: str, answer: object
) -> None:
    with mail_server({"STARTTLS": starttls}, offers=("STARTTLS", "AUTH PLAIN")) as server:
        mail = channel(server, "hunter2", security="starttls", username="a", credential_env="X")
        assert mail.send(MAIL) == answer

    verbs = [line.split(" ")[0].upper() for line in server.heard]
    assert verbs[:2] == ["EHLO", "STARTTLS"]
    assert set(verbs[2:]) <= {"QUIT"}


def test_a_server_without_a_supported_login_is_distinguished_from_an_unavailable_one() -> None:
    with mail_server(offers=("AUTH XOAUTH2",), encrypted=True) as server:
        mail = channel(
            server, "hunter2", security="tls", ca_file=str(PEM), username="a", credential_env="X"
        )
        assert mail.send(MAIL) == ChannelRefused("not_supported")
    assert server.mails == []


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_an_untrusted_certificate_is_refused(security: str) -> None:
    with mail_server(offers=("STARTTLS",), encrypted=security == "tls") as server:
        mail = channel(server, security=security)
        assert mail.send(MAIL) == ChannelRefused("tls")
    assert server.mails == []


def test_a_wrong_password_does_not_fail_the_mail() -> None:
    says = {"AUTH": "535 no"}
    with mail_server(says, offers=("AUTH PLAIN",), encrypted=True) as server:
        mail = channel(
            server, "hunter2", security="tls", ca_file=str(PEM), username="a", credential_env="X"
        )
        assert mail.send(MAIL) == ChannelRefused("smtp_535")


# -- mails that are not sent


@pytest.mark.parametrize(
    "wrong",
    [
        {"subject": "Hello\r\nBcc: eve@example.com"},
        {"subject": "Hello\u2028Bcc: eve@example.com"},
        {"address": "ada@example.com\r\nRCPT TO:<eve@example.com>"},
        {"address": "ada@example.com, eve@example.com"},
        {"address": "Ada <ada@example.com>"},
    ],
)
def test_a_second_header_or_recipient_is_refused_before_a_call(
    wrong: dict[str, str],
) -> None:
    with mail_server() as server:
        answer = channel(server).send(replace(MAIL, **wrong))  # type: ignore[arg-type]

    assert answer == Rejected("bad_message", is_permanent=True)
    assert server.heard == []


def test_a_mail_server_cannot_be_asked_and_says_so() -> None:
    assert Smtp.capabilities.lookup is Lookup.NONE
    assert Smtp.capabilities.idempotency_seconds is None
