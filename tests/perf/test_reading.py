"""The command line: which server and which model."""

from __future__ import annotations

import pytest

from penstock_client.perf.options import GRPC, HTTP, OPENAI, Options
from penstock_client.perf.reading import read_options


def _read(*words: str, url: str = "") -> Options:
    return read_options(words, {"PENSTOCK_URL": url})


def _server(options: Options) -> str:
    (target,) = options.targets
    return f"{target.endpoint.authority}{target.prefix}"


def test_the_model_is_an_argument() -> None:
    assert _read("simple", "-c", "4").request.model == "simple"
    assert _read("-c", "4", "simple").request.model == "simple"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "name a model"),
        (("simple", "-m", "other"), "named twice: 'simple' and --model 'other'"),
    ],
)
def test_one_model_is_named(
    words: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        _read(*words)
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "words", "wire", "server"),
    [
        ("", (), GRPC, "localhost:8001"),
        ("gpu7", (), GRPC, "gpu7:8001"),
        ("http://gpu7", (), HTTP, "gpu7:8000"),
        ("http://gpu7:9000", ("-i", "grpc"), GRPC, "gpu7:8001"),
        ("gpu7:9001", ("-i", "openai"), OPENAI, "gpu7:8000"),
        ("http://gpu7:9000/v1", ("-i", "openai"), OPENAI, "gpu7:9000/v1"),
        ("http://gpu7", ("-u", "gpu8"), GRPC, "gpu8:8001"),
        ("", ("-u", "http://gpu8"), HTTP, "gpu8:8000"),
        ("", ("-u", "https://gpu8"), GRPC, "gpu8:8001"),
    ],
)
def test_the_environment_names_the_server(
    url: str, words: tuple[str, ...], wire: str, server: str
) -> None:
    options = _read("simple", *words, url=url)
    assert (options.request.wire, _server(options)) == (wire, server)


def test_servers_to_compare_count_before_the_environment() -> None:
    options = _read("simple", "--compare", "a:1", "b:1", url="gpu7")
    assert [each.endpoint.authority for each in options.targets] == ["a:1", "b:1"]


def test_a_wrong_variable_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _read("simple", url="a:b:c")
    assert "$PENSTOCK_URL: 'a:b:c' is not an address" in capsys.readouterr().err
