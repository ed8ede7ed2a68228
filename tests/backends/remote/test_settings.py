"""The parameters of a remote model."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.remote.far_server import entry
from penstock.core.errors import ConfigError
from penstock_backends.remote.settings import read_settings


def test_addresses_have_ports_and_schemes() -> None:
    read = read_settings(entry("m", "one:9, grpc://two ,[::1]:8001"))
    assert [str(one) for one in read.addresses] == [
        "grpc://one:9",
        "grpc://two:8001",
        "grpc://[::1]:8001",
    ]
    assert (read.model, read.protocol) == ("m", "kserve")


def test_address_of_openai_has_a_path() -> None:
    read = read_settings(entry("m", "http://one:9000"))
    assert str(read.addresses[0]) == "http://one:9000/v1"
    assert read.protocol == "openai"


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"address": ""}, "needs the parameter 'address'"),
        ({"address": "ftp://x"}, "has the scheme 'ftp', not one of grpc"),
        ({"address": "grpc://x:99999"}, "'address': 'grpc://x:99999'"),
        ({"address": "grpc://x/path"}, "gRPC has no path"),
        ({"address": "grpc://me:secret@x"}, "is not SCHEME://HOST:PORT"),
        ({"address": "grpc://x,http://y"}, "have one scheme"),
        ({"address": "x", "adress": "y"}, r"no parameter 'adress'.*address"),
        ({"address": "x", "retries": "many"}, "'retries' must be a number from 0 to 100"),
        ({"address": "x", "silence_ms": "nan"}, "'silence_ms' must be a number"),
        ({"address": "x", "header.A B": "y"}, "'header.A B' is not a header"),
        ({"address": "x", "header.a": "y\n"}, "is not a header with a printable value"),
        ({"address": "x", "ca_file": "/none"}, "'ca_file': there is no file"),
        ({"address": "x", "api_key_file": "/none"}, "'api_key_file' cannot be read"),
        ({"address": "x", "api_key_env": "NOT_SET_HERE"}, "'NOT_SET_HERE'.* holds no key"),
        ({"address": "x", "api_key_env": "A", "api_key_file": "B"}, "exclude each other"),
        ({"address": "x", "chat": "maybe"}, "'chat' must be true or false"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_settings(entry("m", **parameters))


def test_key_is_a_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("abc\n")
    read = read_settings(entry("m", "x", api_key_file=str(tmp_path / "key"), **{"header.a": "b"}))
    assert read.headers == (("a", "b"), ("authorization", "Bearer abc"))
    monkeypatch.setenv("THE_KEY", "def")
    read = read_settings(entry("m", "x", api_key_env="THE_KEY"))
    assert read.headers == (("authorization", "Bearer def"),)
