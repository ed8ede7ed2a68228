"""The pure decisions of the client: addresses, load balancing, policies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_client.client import CallPolicy, ResourceExhaustedError, UnavailableError
from penstock_client.client.caller import Balancer
from penstock_client.client.errors import UnknownError, error_of
from penstock_client.reading.address import parse_server


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("host", "host:8001"),
        ("host:9", "host:9"),
        ("[::1]:9", "[::1]:9"),
        ("[::1]", "[::1]:8001"),
        ("grpc://host:9", "host:9"),
        ("grpcs://host", "grpcs://host:8001"),
        ("http://host", "http://host:8000"),
        ("https://host:9/", "https://host:9"),
        ("unix:/tmp/socket", "unix:/tmp/socket"),
    ],
)
def test_addresses(text: str, told: str) -> None:
    assert str(parse_server(text)) == told


@pytest.mark.parametrize(
    "text", ["", ":1", "host:", "host:0", "host:70000", "host:x", "::1", "ftp://host", "http://a/b"]
)
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        parse_server(text)


@given(st.text(max_size=20))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        told = str(parse_server(text))
    except ValueError as error:
        told = str(error)
    assert told


def test_the_address_with_the_fewest_open_calls_is_next() -> None:
    balancer = Balancer(3)
    picked = []
    for _ in range(6):
        picked.append(balancer.pick(0.0))
        balancer.begin(picked[-1])
    assert sorted(picked) == [0, 0, 1, 1, 2, 2]
    balancer.end(1)
    assert balancer.pick(0.0) == 1


def test_an_address_that_failed_rests_longer_each_time() -> None:
    balancer = Balancer(2)
    balancer.failed(0, now=0.0)
    assert {balancer.pick(0.1) for _ in range(4)} == {1}
    assert {balancer.pick(0.3) for _ in range(4)} == {0, 1}
    balancer.failed(0, now=1.0)
    assert {balancer.pick(1.3) for _ in range(4)} == {1}
    balancer.answered(0)
    assert {balancer.pick(1.3) for _ in range(4)} == {0, 1}


def test_where_all_are_down_one_is_tried() -> None:
    balancer = Balancer(2)
    balancer.failed(0, now=0.0)
    balancer.failed(1, now=0.0)
    assert balancer.pick(0.0, tried={0}) == 1
    assert balancer.pick(0.0, tried={0, 1}) in (0, 1)


@given(st.integers(1, 6), st.text(min_size=1))
def test_calls_of_one_sequence_go_to_one_address(count: int, key: str) -> None:
    balancer = Balancer(count)
    first = balancer.pick(0.0, key=key)
    balancer.begin(first)
    assert balancer.pick(0.0, key=key) == first


@given(st.integers(1, 50), st.floats(0, 1))
def test_the_backoff_doubles_up_to_a_bound(attempt: int, chance: float) -> None:
    policy = CallPolicy(attempts=100, backoff=0.5, longest_backoff=4.0)
    whole = min(4.0, 0.5 * 2 ** (attempt - 1))
    wait = policy.delay(attempt, UnavailableError("busy"), lambda: chance)
    assert wait is not None
    assert whole / 2 <= wait <= whole


def test_the_server_says_when_to_come_again() -> None:
    policy = CallPolicy(attempts=2, backoff=0.1)
    assert policy.delay(1, ResourceExhaustedError("full", retry_after=7.0)) == 7.0


@pytest.mark.parametrize(
    "fields", [{"attempts": 0}, {"backoff": -1.0}, {"backoff": 9.0}, {"hedge_after": -1.0}]
)
def test_a_policy_without_sense_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        CallPolicy(**fields)  # type: ignore[arg-type]


def test_a_code_that_is_not_known_is_an_unknown_error() -> None:
    assert type(error_of(99, "?")) is UnknownError
