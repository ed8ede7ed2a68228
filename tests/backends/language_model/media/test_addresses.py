"""The table of public addresses."""

from __future__ import annotations

import pytest

from penstock_backends.language_model.media.addresses import is_public


@pytest.mark.parametrize(
    "address",
    [
        *("8.8.8.8", "1.1.1.1", "172.32.0.1", "192.0.1.1", "168.63.129.17", "223.255.255.255"),
        *("2606:4700::1111", "2001:4860:4860::8888", "2a00:1450::1", "2620:fe::fe"),
        *("::ffff:8.8.8.8", "64:ff9b::808:808"),
    ],
)
def test_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        # What clouds answer from.
        *("169.254.169.254", "168.63.129.16", "192.0.0.192", "100.100.100.200", "fd00:ec2::254"),
        *("0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "172.16.0.1", "172.31.255.255"),
        *("192.0.0.1", "192.0.0.9", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1"),
        *("198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1"),
        *("255.255.255.255", "::", "::1", "::8.8.8.8", "100::1", "fc00::1", "fd12::1", "fe80::1"),
        *("fe80::1%eth0", "fec0::1", "ff02::1", "4000::1", "5f00::1", "1fff::1", "3fff::1"),
        *("2001::1", "2001:2::1", "2001:10::1", "2001:1ff::1", "2001:db8::1", "2002:808:808::1"),
        *("::ffff:10.0.0.1", "::ffff:168.63.129.16", "64:ff9b::a00:1", "64:ff9b::c000:c0"),
        *("64:ff9b:1::808:808", "what", "", "1.2.3", "0x7f.1"),
    ],
)
def test_everything_else_is_not(address: str) -> None:
    assert not is_public(address)
