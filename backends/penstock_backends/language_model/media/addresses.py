"""Public addresses, by a table of our own: Python's differs from release to release."""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

_NOT_PUBLIC_4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",  # Azure's WireServer: public by its number only
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
"""Networks that IANA's registry does not take for globally reachable, and multicast."""

_UNICAST_6: Final = IPv6Network("2000::/3")
"""All of IPv6 that is handed out to networks."""

_NOT_PUBLIC_6: Final = tuple(
    map(
        IPv6Network,
        (
            # For protocols. Some of it is reachable, but only by anycast to what is near.
            "2001::/23",
            "2001:db8::/32",
            "2002::/16",  # 6to4: behind it is an address of IPv4
            "3fff::/20",
        ),
    )
)

_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
"""Addresses behind which translators reach IPv4 (RFC 6052, section 2.1)."""


def is_public(address: str) -> bool:
    """Whether an address, as `getaddrinfo` tells it, is one of the internet at large."""
    try:
        six = IPv6Address(address.partition("%")[0])
    except AddressValueError:
        return _is_public_4(address)
    if six in _MAPPED or six in _NAT64:
        return _is_public_4(str(IPv4Address(six.packed[-4:])))
    return six in _UNICAST_6 and not any(six in network for network in _NOT_PUBLIC_6)


def _is_public_4(address: str) -> bool:
    try:
        four = IPv4Address(address)
    except AddressValueError:
        return False
    return not any(four in network for network in _NOT_PUBLIC_4)
