"""The parameters of a remote model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from backends.remote.far_server import add_model, entry, entry_text
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
        ({"address": "x", "chat": "maybe"}, "'chat' must be true or false"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_settings(entry("m", **parameters))


def test_headers_of_all_calls_and_the_key_of_an_address(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("grpc://x:8001 abc\n")
    given = entry("m", "x, y", **{"header.a": "b"})
    read = read_settings(given, {"keys": str(tmp_path / "keys")})
    one, two = read.addresses
    assert read.fields(one) == [(b"a", b"b"), (b"authorization", b"Bearer abc")]
    assert read.fields(two) == [(b"a", b"b")]


def test_check_knows_what_will_load(tmp_path: Path) -> None:
    add_model(tmp_path, "chat", entry_text("http://elsewhere:1/v1"))
    add_model(tmp_path, "tensors", entry_text("grpc://elsewhere:1"))
    add_model(tmp_path, "wrong", entry_text("ftp://elsewhere:1"))
    command = [sys.executable, "-m", "penstock", "check", str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    assert "chat: will load" in told
    assert "tensors: will load, as far as can be known" in told
    assert "'ftp://elsewhere:1' has the scheme 'ftp'" in told
