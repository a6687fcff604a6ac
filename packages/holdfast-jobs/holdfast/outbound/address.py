"""Classify IP addresses as public or not. Pure.

An explicit list: the ``is_global`` of Python 3.11 calls ``64:ff9b::7f00:1`` and ``2002:7f00:1::``
global, and both lead to this machine.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

# This network, link-local, multicast, reserved, and the metadata services of clouds. No setting
# allows them.
_NEVER = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "169.254.0.0/16",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/128",
        "fd00:ec2::254/128",
        "fd20:ce::254/128",
        "fe80::/10",
        "ff00::/8",
    )
)
# Private, shared, documentation and benchmark networks. Of IPv6 only 2000::/3 is allocated; within
# it 2001::/23 holds Teredo and other tunnels, 2002::/16 is 6to4.
_PRIVATE = tuple(
    ip_network(text)
    for text in (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
    )
)
# Tunnels and translators embed an IPv4 address, often a private one, in an IPv6 address. No setting
# allows them. IPv4-compatible, IPv4-translated, NAT64 for local use (RFC 8215 leaves open where the
# IPv4 address is), Teredo and 6to4.
_DISGUISES = tuple(
    ip_network(text)
    for text in ("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "2001::/32", "2002::/16")
)
_LOOPBACK = IPv6Address("::1")
# The upper half of an ISATAP interface id; the lower half is an IPv4 address.
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
_HANDED_OUT = ip_network("2000::/3")
_NAT64 = ip_network("64:ff9b::/96")


def may_reach(text: str, *, private: bool = False) -> bool:
    """Whether a connection to an address is allowed; *private* also allows private networks."""
    try:
        given = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if _is_disguise(given):
        return False
    if given in _NAT64:
        # NAT64 leads to public servers only.
        private = False
    address = _innermost(given)
    if any(address in network for network in _NEVER):
        return False
    if private:
        return True
    if isinstance(address, IPv6Address) and address not in _HANDED_OUT:
        return False
    return not any(address in network for network in _PRIVATE)


def _is_disguise(address: IPv4Address | IPv6Address) -> bool:
    """Whether packets to *address* are routed to an embedded IPv4 address."""
    if isinstance(address, IPv4Address) or address == _LOOPBACK:
        return False
    is_isatap = (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP
    return is_isatap or any(address in network for network in _DISGUISES)


def _innermost(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The address that packets are routed to: embedded IPv4 is judged as IPv4.

    A network without IPv4 reaches every public server through NAT64, so it is unwrapped, not
    refused.
    """
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address
