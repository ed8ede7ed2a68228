"""Look-ups of names: bounded, shared, and left by those whose time is over."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock_backends.language_model.media.name_lookups import MOST_OF_A_SITE, NameLookups


class Resolver:
    """Answers at once, except names that end with `slow.example`: those wait for `over`."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.begun: list[str] = []
        self.lookups = NameLookups(self.look_up)

    def look_up(self, host: str, port: int) -> Sequence[Any]:
        self.begun.append(host)
        if host.endswith("slow.example"):
            self.over.wait()
        if host == "unknown.example":
            raise OSError("no such host")
        return [(0, 0, 0, "", ("192.0.2.1", port))]


@pytest.fixture
def resolver() -> Iterator[Resolver]:
    made = Resolver()
    yield made
    made.over.set()


def test_a_host_has_addresses(resolver: Resolver) -> None:
    assert resolver.lookups.addresses("a.example", 80, 10) == ["192.0.2.1"]


def test_an_unknown_host_is_an_error(resolver: Resolver) -> None:
    for _ in range(2):
        with pytest.raises(OSError, match="no such host"):
            resolver.lookups.addresses("unknown.example", 80, 10)


def test_slow_names_of_one_site_leave_room_for_others(resolver: Resolver) -> None:
    for number in range(MOST_OF_A_SITE + 5):
        with pytest.raises(TimeoutError):
            resolver.lookups.addresses(f"{number}.slow.example", 80, 0.01)
    assert len(resolver.begun) == MOST_OF_A_SITE
    assert resolver.lookups.addresses("a.b.other", 80, 10) == ["192.0.2.1"]


def test_who_asks_for_the_same_host_shares_a_look_up(resolver: Resolver) -> None:
    with ThreadPoolExecutor(8) as threads:
        asked = [
            threads.submit(resolver.lookups.addresses, "slow.example", 80, 10) for _ in range(8)
        ]
        with pytest.raises(TimeoutError):
            resolver.lookups.addresses("slow.example", 80, 0.01)
        resolver.over.set()
        assert [one.result() for one in asked] == [["192.0.2.1"]] * 8


def test_owners_below_a_country_s_ending_are_apart(resolver: Resolver) -> None:
    for number in range(MOST_OF_A_SITE):
        with pytest.raises(TimeoutError):
            resolver.lookups.addresses(f"{number}.slow.example", 80, 0.01)
    begun = len(resolver.begun)
    for host in ("a.evil.co.uk", "a.good.co.uk"):
        assert resolver.lookups.addresses(host, 80, 10)
    assert len(resolver.begun) == begun + 2
