"""`$PENSTOCK_URL`, for commands that speak to several endpoints of a server."""

from __future__ import annotations

import pytest

from penstock_client.reading.address import Address, AddressError, named_server
from penstock_client.top.options import read_options


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("gpu7", ("gpu7:8001", "gpu7:8000", "gpu7:8002")),
        ("gpu7:9001 gpu8:9001", ("gpu7:9001", "gpu7:8000", "gpu7:8002")),
        ("grpcs://gpu7", ("https://gpu7:8001", "https://gpu7:8000", "gpu7:8002")),
        ("http://gpu7:9000/v1", ("gpu7:8001", "gpu7:9000/v1", "gpu7:8002")),
        ("https://[::1]:9000", ("https://[::1]:8001", "https://[::1]:9000", "[::1]:8002")),
    ],
)
def test_one_address_names_all_endpoints(text: str, endpoints: tuple[str, ...]) -> None:
    server = named_server({"PENSTOCK_URL": text})
    assert server is not None
    assert tuple(map(str, (server.grpc, server.http, server.metrics))) == endpoints


def test_without_the_variable_no_server_is_named() -> None:
    assert named_server({"PENSTOCK_URL": " "}) is None


@pytest.mark.parametrize("text", ["ftp://gpu7", "unix:/run/penstock", "gpu7:0"])
def test_what_is_no_address_is_refused_with_the_variable(text: str) -> None:
    with pytest.raises(AddressError, match=r"\$PENSTOCK_URL: '.*' is not an address"):
        named_server({"PENSTOCK_URL": text})


def test_top_obeys_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "http://gpu7:9000")
    options = read_options([])
    assert (options.metrics, options.http) == (Address("gpu7", 8002), Address("gpu7", 9000))


def test_an_option_of_top_counts_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "http://gpu7:9000")
    options = read_options(["-u", "gpu8"])
    assert (options.metrics, options.http) == (Address("gpu8", 8002), Address("gpu8", 8000))


def test_top_refuses_a_wrong_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "ftp://gpu7")
    with pytest.raises(SystemExit):
        read_options([])
    assert "$PENSTOCK_URL: 'ftp://gpu7' is not an address" in capsys.readouterr().err
