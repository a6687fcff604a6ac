"""Which addresses and subjects may be used."""

from __future__ import annotations

import pytest

from holdfast.channel.address import ascii_email, problem
from holdfast.config import ChannelSettings

MAIL = ChannelSettings(kind="mailbox", folder="/nowhere", sender="post@example.com")
RESEND = ChannelSettings(kind="resend", credential_env="KEY", sender="post@example.com")
SLACK = ChannelSettings(kind="slack", credential_env="KEY")
HOOK = ChannelSettings(kind="webhook")
OWN_HOOK = ChannelSettings(kind="webhook", allow_private=True)
GATEWAY = ChannelSettings(kind="webhook", base_url="https://sms.example.com/send")


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("ada@example.com", "ada@example.com"),
        ("ada.l+news@mail.example.com", "ada.l+news@mail.example.com"),
        ("ada@bücher.example", "ada@xn--bcher-kva.example"),
        ("ada@BÜCHER.Example", "ada@xn--bcher-kva.Example"),
        ("ada@bu\u0308cher.example", "ada@xn--bcher-kva.example"),
        ("ada@пример.рф", "ada@xn--e1afmkfd.xn--p1ai"),
        ("ada@xn--strae-oqa.example", "ada@xn--strae-oqa.example"),
    ],
)
def test_an_address_is_written_as_mail_servers_take_it(address: str, plain: str) -> None:
    assert ascii_email(address) == plain
    assert problem(MAIL, address, "Hello") is None


@pytest.mark.parametrize(
    "address",
    [
        "",
        "ada",
        "@example.com",
        "ada@",
        "ada@localhost",
        "ada@example..com",
        "ada@-example.com",
        ".ada@example.com",
        "a..da@example.com",
        "ada@example.com\n",
        "ada@example.com\r\nBcc: eve@example.com",
        "ada@exam\nple.com",
        "ada@example.com,eve@example.com",
        "ada@example.com eve@example.com",
        "ada@eve@example.com",
        "Ada <ada@example.com>",
        '"ada lovelace"@example.com',
        "zoë@example.com",
        "ada@[127.0.0.1]",
        "ada@" + "a" * 64 + ".com",
        "a" * 65 + "@example.com",
        "ada@" + ".".join(["abcdefghi"] * 30),
        "=?utf-8?q?ada=0D=0ABcc=3A_eve=40example.com?=@example.com",
    ],
)
def test_what_is_not_one_plain_address_is_refused_and_not_repeated(address: str) -> None:
    found = problem(MAIL, address, "Hello")

    # The same message for every fault: it contains nothing of the address.
    assert found == (
        "address must be one e-mail address such as name@example.com, without a name around it"
    )


@pytest.mark.parametrize(
    "domain",
    [
        "straße.example",
        "STRAẞE.example",
        "βόλος.example",
        "ΒΌΛΟΣ.example",
        "a\u200cb.example",
        "a\u200db.example",
        "a\u00adb.example",
        "\uff45xample.com",
        "example。com",
        "oﬃce.example",
        "\u13a0.example",
        "mail.straße.example.com",
        "example.com\u2028",
    ],
)
def test_a_domain_that_would_become_another_one_is_refused(domain: str) -> None:
    found = problem(MAIL, f"ada@{domain}", "Hello")

    assert ascii_email(f"ada@{domain}") is None
    assert found is not None
    assert found.endswith("a domain in another script can be given as xn--…")


@pytest.mark.parametrize(
    "subject", ["a\nb", "a\rb", "a\0b", "a\x85b", "a\u2028b", "a\u2029b", "a\x1bb", "x" * 501]
)
@pytest.mark.parametrize(
    ("settings", "address"),
    [(MAIL, "ada@example.com"), (SLACK, "C0123"), (HOOK, "https://example.com/hook")],
)
def test_a_subject_is_one_line(settings: ChannelSettings, address: str, subject: str) -> None:
    found = problem(settings, address, subject)

    assert found == "subject must be one line of at most 500 characters"


def test_a_subject_may_be_left_out_except_where_the_provider_wants_one() -> None:
    assert problem(MAIL, "ada@example.com", "") is None
    assert problem(RESEND, "ada@example.com", "") == "subject must not be empty"


@pytest.mark.parametrize(
    "address",
    [
        "http://example.com/hook",
        "ftp://example.com/hook",
        "https://user:password@example.com/hook",
        "https://example.com/hook#part",
        "https://example.com/a b",
        "https://exämple.com/hook",
        "https://example.com/\r\nHost: evil",
        "https://example.com\\@evil.example/",
        "https:///hook",
        "https://example.com:0/hook",
        "https://example.com/" + "x" * 2000,
        "//example.com/hook",
        "/hook",
    ],
)
def test_a_webhook_goes_to_a_plain_https_address(address: str) -> None:
    found = problem(HOOK, address, "Hello")

    assert found is not None
    assert found.startswith("address must be an address such as")


NOT_PUBLIC = [
    "127.0.0.1",
    "127.1",
    "0x7f000001",
    "0X7F.1",
    "2130706433",
    "017700000001",
    "0177.0.0.1",
    "0",
    "10.0.0.7",
    "100.64.0.1",
    "169.254.169.254",
    "192.0.0.8",
    "192.168.1.1",
    "198.18.0.1",
    "255.255.255.255",
    "127.0.0.08",
    "1.2.3.4.5",
    "example.0x7f",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[::127.0.0.1]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[1::2::3]",
    "localhost",
    "LOCALHOST",
    "my.localhost",
    "printer.local",
    "metadata.google.internal",
    "router.home.arpa",
    "intranet",
]


@pytest.mark.parametrize("host", NOT_PUBLIC)
def test_a_webhook_into_a_network_of_our_own_is_refused_when_it_is_intended(host: str) -> None:
    for address in (f"https://{host}/hook", f"https://{host}:8443/hook", f"https://{host}"):
        assert problem(HOOK, address, "Hello") is not None
    # A gateway interprets the address itself.
    assert problem(GATEWAY, f"https://{host}/hook", "Hello") is None


def test_what_is_refused_says_what_would_allow_it_and_not_the_address() -> None:
    found = problem(HOOK, "https://10.0.0.7/hook", "Hello")

    assert found == (
        "address must lead to a public server, or with allow_private = true to one of your own"
    )


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "0xa9fea9fe", "[fd00:ec2::254]", "0", "[fe80::1]", "1.2.3.4.5"]
)
def test_reserved_addresses_are_refused_even_with_allow_private(host: str) -> None:
    assert problem(OWN_HOOK, f"http://{host}/hook", "Hello") is not None


@pytest.mark.parametrize("port", [22, 25, 23, 139, 3306, 5432, 6379, 11211, 27017])
def test_a_webhook_goes_to_no_port_of_another_service(port: int) -> None:
    for settings in (HOOK, OWN_HOOK):
        found = problem(settings, f"https://example.com:{port}/hook", "Hello")
        assert found is not None
        assert found.startswith("address must have port 443 or one from 1024 on")


@pytest.mark.parametrize(
    "address",
    [
        "https://example.com",
        "https://EXAMPLE.com:443/hook",
        "https://hooks.example.com:8443/a?b=1",
        "https://xn--bcher-kva.example/hook",
        "https://93.184.215.14/hook",
        "https://[2606:2800:21f:cb07::1]/hook",
        "https://10.example.com/hook",
        "https://internal.example.com/hook",
        "https://localhost.example.com/hook",
        "https://mylocal.example/hook",
    ],
)
def test_a_webhook_to_a_public_server_is_taken(address: str) -> None:
    assert problem(HOOK, address, "Hello") is None


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:8080/hook",
        "http://[::1]:8080/hook",
        "http://localhost/hook",
        "https://intranet/hook",
        "https://hooks.internal/hook",
    ],
)
def test_a_server_of_our_own_is_called_if_that_is_allowed(address: str) -> None:
    assert problem(OWN_HOOK, address, "Hello") is None


def test_a_webhook_of_our_own_network_may_do_without_encryption_if_that_is_allowed() -> None:
    assert problem(OWN_HOOK, "http://10.0.0.7/hook", "Hello") is None
    assert problem(HOOK, "https://example.com/hook?a=1", "Hello") is None


@pytest.mark.parametrize("address", ["#general", "general", "U0123456", "C", "c0123", "C01 23", ""])
def test_a_conversation_is_named_by_its_id(address: str) -> None:
    assert problem(SLACK, "C0123456789", "Hello") is None
    assert "id of a conversation" in str(problem(SLACK, address, "Hello"))


def test_what_only_a_gateway_can_read_is_one_line() -> None:
    assert problem(GATEWAY, "+49 151 1234567", "Hello") is None
    for address in ("", "+49\n151", "1" * 501):
        assert "must be one line" in str(problem(GATEWAY, address, "Hello"))
