"""The simulator's mail server, spoken to by the standard library's client and byte by byte."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage

import pytest

from holdfast_simulator import Simulator, smtp_server
from holdfast_simulator.certificate import certificate

SENDER = "post@holdfast.test"
ADA = "ada@example.test"
LINE = b"x" * 998 + b"\r\n"


def mail(token: str = "tok-1", to: str = ADA, text: str = "Hello\n") -> EmailMessage:
    made = EmailMessage()
    made["From"] = SENDER
    made["To"] = to
    made["Subject"] = "Grüße"
    made["Message-ID"] = f"<{token}@holdfast.test>"
    made.set_content(text)
    made.add_alternative("<p>Hello</p>", subtype="html")
    return made


@contextmanager
def client(sim: Simulator, timeout: float = 10.0) -> Iterator[smtplib.SMTP]:
    with smtplib.SMTP(sim.smtp.host, sim.smtp.port, timeout=timeout) as found:
        yield found


def trust(sim: Simulator) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=sim.smtp.certificate)
    # Python requires this by default from 3.13 on.
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def test_a_mail_is_accepted_and_listed_as_it_was_sent(sim: Simulator) -> None:
    with client(sim) as smtp:
        refused = smtp.send_message(mail(text="Hello\n.\n.dots\n"))
    (taken,) = sim.messages.accepted

    assert refused == {}
    assert (taken.provider, taken.token, taken.address) == ("smtp", "tok-1", ADA)
    assert taken.letter.subject == "Grüße"
    assert taken.letter.text.splitlines() == ["Hello", ".", ".dots"]
    assert taken.letter.html is not None
    assert "<p>Hello</p>" in taken.letter.html
    assert taken.at == sim.clock.now()


def test_each_recipient_has_a_letter_of_its_own(sim: Simulator) -> None:
    with client(sim) as smtp:
        smtp.sendmail(SENDER, [ADA, "bob@example.test"], mail().as_bytes())

    assert [taken.address for taken in sim.messages.with_token("tok-1")] == [
        ADA,
        "bob@example.test",
    ]
    assert sim.messages.accepted_twice() == {}


def test_the_same_mail_again_is_taken_again(sim: Simulator) -> None:
    # Written once: the library draws another boundary each time.
    written = mail().as_bytes()
    for _ in range(2):
        with client(sim) as smtp:
            smtp.sendmail(SENDER, [ADA], written)
    (several,) = sim.messages.accepted_twice().values()

    assert len({taken.id for taken in several}) == 2
    assert len({taken.letter.body_hash for taken in several}) == 1


def test_a_connection_takes_one_mail_after_another(sim: Simulator) -> None:
    with client(sim) as smtp:
        for number in range(3):
            smtp.send_message(mail(f"tok-{number}"))

    assert [taken.token for taken in sim.messages.accepted] == ["tok-0", "tok-1", "tok-2"]


# -- TLS and passwords


def test_a_client_that_trusts_the_certificate_continues_encrypted(sim: Simulator) -> None:
    sim.smtp.users["ada"] = "secret"
    with client(sim) as smtp:
        smtp.starttls(context=trust(sim))
        smtp.login("ada", "secret")
        smtp.send_message(mail())
    (entry,) = sim.journal.find(provider="smtp")

    assert dict(entry.headers) == {"tls": "true", "user": "ada"}
    assert len(sim.messages.accepted) == 1


def test_a_client_that_does_not_trust_it_sends_nothing(sim: Simulator) -> None:
    with client(sim) as smtp, pytest.raises(ssl.SSLCertVerificationError):
        smtp.starttls(context=ssl.create_default_context())

    assert sim.messages.accepted == []


def test_tls_can_begin_with_the_first_byte(sim: Simulator) -> None:
    port = sim.smtps.port
    with smtplib.SMTP_SSL("localhost", port, timeout=60, context=trust(sim)) as smtp:
        smtp.send_message(mail())

    assert len(sim.messages.accepted) == 1


def test_a_password_is_neither_offered_nor_taken_in_the_open(sim: Simulator) -> None:
    sim.smtp.users["ada"] = "secret"
    with client(sim) as smtp:
        smtp.ehlo()
        offered = smtp.has_extn("auth")
        code, _ = smtp.docmd("AUTH", "PLAIN AGFkYQBzZWNyZXQ=")
        with pytest.raises(smtplib.SMTPSenderRefused) as refused:
            smtp.send_message(mail())

    assert not offered
    assert code == 538
    assert refused.value.smtp_code == 530
    assert sim.messages.accepted == []


@pytest.mark.parametrize("way", ["PLAIN", "LOGIN"])
def test_a_wrong_password_is_refused(sim: Simulator, way: str) -> None:
    sim.smtp.users["ada"] = "secret"
    with client(sim) as smtp:
        smtp.starttls(context=trust(sim))
        smtp.ehlo()
        smtp.esmtp_features["auth"] = way
        with pytest.raises(smtplib.SMTPAuthenticationError):
            smtp.login("ada", "guess")
        assert smtp.login("ada", "secret")[0] == 235


def test_what_was_sent_ahead_of_tls_is_not_obeyed_behind_it(sim: Simulator) -> None:
    with socket.create_connection((sim.smtp.host, sim.smtp.port), timeout=60) as wire:
        wire.recv(100)
        wire.sendall(b"STARTTLS\r\nEHLO slipped.in\r\nMAIL FROM:<evil@example.test>\r\n")
        assert wire.recv(100).startswith(b"220 2.0.0")
        with trust(sim).wrap_socket(wire, server_hostname="127.0.0.1") as safe:
            safe.sendall(b"RCPT TO:<ada@example.test>\r\n")
            assert safe.recv(100).startswith(b"503")

    assert sim.messages.accepted == []


def test_a_server_may_insist_on_tls(sim: Simulator) -> None:
    sim.smtp.requires_tls = True
    with client(sim) as smtp, pytest.raises(smtplib.SMTPSenderRefused) as refused:
        smtp.send_message(mail())

    assert refused.value.smtp_code == 530


def test_the_certificate_is_the_same_for_the_same_seed_and_openssl_reads_it() -> None:
    ours, other = certificate(1), certificate(2)
    told = ssl.PEM_cert_to_DER_cert(ours[0])

    assert certificate(1) == ours != other
    assert told != ssl.PEM_cert_to_DER_cert(other[0])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ours[0])
    assert context.cert_store_stats() == {"x509": 1, "crl": 0, "x509_ca": 1}


def test_without_trustme_there_is_plain_smtp_only(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smtp_server, "has_trustme", lambda: False)

    with client(sim) as smtp:
        smtp.ehlo()
        assert not smtp.has_extn("starttls")
        assert smtp.docmd("STARTTLS")[0] == 454
        smtp.send_message(mail())

    assert len(sim.messages.accepted) == 1


# -- commands out of order


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (["MAIL FROM:<a@example.test>"], 503),
        (["EHLO me", "RCPT TO:<a@example.test>"], 503),
        (["EHLO me", "DATA"], 503),
        (["EHLO me", "MAIL FROM:<a@example.test>", "DATA"], 503),
        (["EHLO me", "MAIL FROM:<a@example.test>", "RCPT TO:<nobody>"], 501),
        (["EHLO me", "MAIL FROM a@example.test"], 501),
        (["EHLO me", "MAIL FROM:<a@example.test>", "RCPT TO:<ä@example.test>"], 553),
        (["EHLO me", "MAIL FROM:<a@example.test> SMTPUTF8", "RCPT TO:<ä@example.test>"], 250),
        (["HELO me", "NOOP"], 250),
        (["VRFY ada"], 252),
        (["TURN"], 500),
    ],
)
def test_a_command_is_answered_by_the_rules(sim: Simulator, lines: list[str], code: int) -> None:
    with client(sim) as smtp:
        smtp.command_encoding = "utf-8"
        answers = [smtp.docmd(line)[0] for line in lines]

    assert answers[-1] == code


def test_a_mail_that_breaks_off_before_the_dot_is_not_taken(sim: Simulator) -> None:
    with client(sim) as smtp:
        smtp.ehlo()
        smtp.mail(SENDER)
        smtp.rcpt(ADA)
        smtp.docmd("DATA")
        assert smtp.sock is not None
        smtp.sock.sendall(mail().as_bytes())
        smtp.close()

    assert sim.messages.accepted == []


@pytest.mark.parametrize("end", ["\n.\n", "\n.\r\n", "\r\n.\n"])
def test_a_bare_line_feed_does_not_end_a_mail(sim: Simulator, end: str) -> None:
    with client(sim) as smtp:
        smtp.ehlo()
        smtp.mail(SENDER)
        smtp.rcpt(ADA)
        smtp.docmd("DATA")
        smtp.send(f"Subject: one\r\n\r\ntext{end}MAIL FROM:<evil@example.test>\r\n.\r\n")
        assert smtp.getreply()[0] == 250

    (taken,) = sim.messages.accepted
    assert "MAIL FROM" in taken.letter.text


def test_a_mail_that_is_too_large_is_refused_and_the_connection_continues(sim: Simulator) -> None:
    with client(sim) as smtp:
        with pytest.raises(smtplib.SMTPDataError) as refused:
            smtp.sendmail(SENDER, [ADA], b"Subject: x\r\n\r\n" + LINE * 10_600)
        smtp.send_message(mail())

    assert refused.value.smtp_code == 552
    assert len(sim.messages.accepted) == 1


def test_many_clients_at_once_lose_nothing(sim: Simulator) -> None:
    port = sim.smtp.port
    start = threading.Barrier(8)

    def send(number: int) -> None:
        start.wait()
        with smtplib.SMTP("127.0.0.1", port, timeout=60) as smtp:
            smtp.send_message(mail(f"tok-{number}"))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(taken.token for taken in sim.messages.accepted) == [f"tok-{n}" for n in range(8)]


def test_it_listens_only_from_when_it_is_asked_for_and_ends_with_the_simulator() -> None:
    with Simulator() as sim:
        port = sim.smtp.port
        assert sim.smtp.port == port
        stays = socket.create_connection(("127.0.0.1", port), timeout=60)
        assert stays.recv(100).startswith(b"220")
        safe = smtplib.SMTP("127.0.0.1", port, timeout=60)
        safe.starttls(context=trust(sim))
    with stays:
        assert stays.recv(100) == b""
    with pytest.raises(smtplib.SMTPServerDisconnected):
        safe.noop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=60)
    assert [thread.name for thread in threading.enumerate() if "smtp" in thread.name] == []
