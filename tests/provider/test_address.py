"""Allowed addresses of providers."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.outbound.address import may_reach
from holdfast.outbound.guard import Blocked, Guard, Origin

INTO_OUR_HOUSE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "192.0.0.8",
    "198.18.0.1",
    "203.0.113.7",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "2001:db8::1",
    "fc00::1",
    "fd12:3456::1",
]
NOBODYS = [
    "0.0.0.0",
    "169.254.169.254",
    "169.254.1.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "fd20:ce::254",
    "ff02::1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
]


# An IPv4 address within an IPv6 address of a tunnel or a translator.
DISGUISED = [
    # 6to4: 127.0.0.1, 10.0.0.7, 192.168.1.1, 169.254.169.254
    "2002:7f00:1::",
    "2002:a00:7::1",
    "2002:c0a8:101:1::1",
    "2002:a9fe:a9fe::",
    # IPv4-compatible
    "::127.0.0.1",
    "::10.0.0.7",
    "::192.168.1.1",
    "::a9fe:a9fe",
    "::2",
    # NAT64: the well-known prefix, and the one for local use in every notation
    "64:ff9b::7f00:1",
    "64:ff9b::10.0.0.7",
    "64:ff9b::192.168.1.1",
    "64:ff9b::100.64.0.1",
    "64:ff9b:1::7f00:1",
    "64:ff9b:1::10.0.0.7",
    "64:ff9b:1:a00:0:700::",
    "64:ff9b:1:c0a8:1:100::",
    "64:ff9b:1:ffff::808:808",
    # Teredo: the client's address is inverted, the server's is not
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:0:a00:7:8000:0:f5ff:fff8",
    "2001::f5ff:fff8",
    # IPv4-translated
    "::ffff:0:127.0.0.1",
    "::ffff:0:10.0.0.7",
    "::ffff:0:a9fe:a9fe",
    # ISATAP
    "2606:4700::5efe:10.0.0.7",
    "fe80::5efe:10.0.0.7",
    "fd12:3456::200:5efe:c0a8:101",
]


@pytest.mark.parametrize("address", DISGUISED)
def test_no_permission_opens_a_private_address_in_disguise(address: str) -> None:
    assert not may_reach(address)
    assert not may_reach(address, private=True)


@pytest.mark.parametrize("address", ["::1", "fd12:3456::1", "::ffff:10.0.0.1", "64:ff9b::808:808"])
def test_what_is_no_disguise_is_reached_with_permission(address: str) -> None:
    assert may_reach(address, private=True)


@pytest.mark.parametrize("address", INTO_OUR_HOUSE)
def test_an_address_of_our_own_network_is_reached_only_with_permission(address: str) -> None:
    assert not may_reach(address)
    assert may_reach(address, private=True)


@pytest.mark.parametrize("address", NOBODYS)
def test_no_permission_opens_the_places_where_secrets_of_machines_are_kept(address: str) -> None:
    assert not may_reach(address)
    assert not may_reach(address, private=True)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "104.18.6.192", "2606:4700::6810:6c0", "64:ff9b::808:808", "::ffff:8.8.8.8"],
)
def test_a_public_address_is_reached_also_from_a_network_without_ipv4(address: str) -> None:
    assert may_reach(address)


@pytest.mark.parametrize("text", ["", "example.com", "127.1", "0x7f000001", "①②⑦.0.0.1"])
def test_what_is_no_address_is_not_reached(text: str) -> None:
    assert not may_reach(text, private=True)


def test_one_bad_address_of_a_host_blocks_all_of_them() -> None:
    origin = Origin.from_url("https://api.example.com/v1")
    guard = Guard(origin, resolve=lambda host, port: ["8.8.8.8", "10.0.0.1"])

    with pytest.raises(Blocked):
        guard.addresses("api.example.com", 443)


def test_a_guard_resolves_no_other_host_and_no_other_port() -> None:
    guard = Guard(
        Origin.from_url("https://api.example.com"), resolve=lambda host, port: ["8.8.8.8"]
    )

    assert guard.addresses("api.example.com", 443) == ["8.8.8.8"]
    for host, port in [("evil.example.com", 443), ("api.example.com", 8443)]:
        with pytest.raises(Blocked):
            guard.addresses(host, port)


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("https://api.openai.com/v1", Origin("https", "api.openai.com", 443)),
        ("https://API.OpenAI.com:8443/v1", Origin("https", "api.openai.com", 8443)),
        ("https://[2606:4700::1]/v1", Origin("https", "[2606:4700::1]", 443)),
        ("https://[2606:4700::1]:444", Origin("https", "[2606:4700::1]", 444)),
    ],
)
def test_an_origin_is_scheme_host_and_port(address: str, origin: Origin) -> None:
    assert Origin.from_url(address) == origin


@pytest.mark.parametrize(
    "address",
    [
        "https://user:geheim@api.example.com",
        "https://api.example.com:0/",
        "https://api.example.com:99999/",
        "https://api.example.com:x/",
        "https://exämple.com/",
        "https:///v1",
        "https://[::1",
        "ftp://api.example.com/",
        "http://api.example.com/",
        "api.example.com/v1",
    ],
)
def test_an_address_that_cannot_be_guarded_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Origin.from_url(address)

    assert "geheim" not in str(refused.value)


def test_plain_http_is_for_a_server_of_our_own() -> None:
    assert Origin.from_url("http://127.0.0.1:8000/x", allow_private=True).port == 8000
    with pytest.raises(ConfigError, match="allow_private"):
        Origin.from_url("http://127.0.0.1:8000/x")
