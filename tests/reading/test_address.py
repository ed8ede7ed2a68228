"""Addresses and options."""

from __future__ import annotations

import pytest

from penstock_client.reading.address import Address, AddressError, parse_address
from penstock_client.top.options import read_options


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("gpu7", Address("gpu7", 8002)),
        ("gpu7:9002", Address("gpu7", 9002)),
        ("http://gpu7:9002/metrics", Address("gpu7", 9002, path="/metrics")),
        ("https://gpu7/", Address("gpu7", 8002, secure=True)),
        ("[::1]:9002", Address("::1", 9002)),
    ],
)
def test_addresses_are_read(text: str, address: Address) -> None:
    assert parse_address(text, 8002) == address


@pytest.mark.parametrize("text", ["", "a b", "gpu7:", "gpu7:0", "gpu7:99999", "::1", "ftp://x"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(AddressError, match="is not an address: write HOST:PORT or a URL"):
        parse_address(text, 8002)


def test_an_address_is_shown_as_it_is_written() -> None:
    texts = ("gpu7:9002", "[::1]:9002", "https://gpu7:9002/metrics")
    assert tuple(str(parse_address(text, 1)) for text in texts) == texts


def test_the_http_endpoint_is_on_the_host_of_the_metrics() -> None:
    options = read_options(["--url", "gpu7:9002"])
    assert (options.metrics, options.http) == (Address("gpu7", 9002), Address("gpu7", 8000))
    options = read_options(["--url", "gpu7", "--http", "gpu8:1"])
    assert options.http == Address("gpu8", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--interval", "0"], "'0' is not a number of seconds from 0.1 to 3600"),
        (["--interval", "nan"], "'nan' is not a number of seconds"),
        (["--interval", "x"], "'x' is not a number of seconds"),
        (["--url", "x:y"], "'x:y' is not an address"),
        (["--sort", "size"], "invalid choice: 'size'"),
        (["--more"], "unrecognized arguments: --more"),
    ],
)
def test_wrong_options_end_with_a_message(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        read_options(arguments)
    assert message in capsys.readouterr().err
