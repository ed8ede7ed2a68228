"""The lines that say how a model is called, as they are made of its configuration."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import Any

import pytest
from google.protobuf.json_format import Parse

from penstock.app.first_calls import _calls, _Places
from penstock.core.config import Input, ModelConfig, Output, TransactionPolicy
from penstock.core.tensor import DataType
from penstock.protocol.grpc_service_pb2 import ModelInferRequest
from penstock.settings import RepositorySettings, Settings
from penstock.settings.endpoints import (
    GrpcSettings,
    HttpSettings,
    OpenAiSettings,
    TlsSettings,
)

PLACES = _Places("http://localhost:8000", "localhost:8001", "")


def _lines(*inputs: Input, **fields: object) -> list[str]:
    config = ModelConfig(name="m", input=inputs, **fields)  # type: ignore[arg-type]
    return [*_calls(config, PLACES)]


def test_a_small_input_is_written_out() -> None:
    web, grpc = _lines(Input("x", DataType.FP32, dims=(-1, 2)), max_batch_size=4)
    body = json.loads(shlex.split(web)[4])
    assert body["inputs"] == [
        {"name": "x", "shape": [1, 1, 2], "datatype": "FP32", "data": [1.0, 1.0]}
    ]
    assert shlex.split(grpc)[:3] == ["grpcurl", "-plaintext", "-d"]


def test_a_large_input_is_a_program_and_its_name_no_code() -> None:
    hostile = "<__import__('os').system('echo hacked')>"
    large = Input("images", DataType.UINT8, dims=(3, 50, 50))
    (line,) = _lines(large, Input(hostile, DataType.BOOL, dims=(1,)))
    program = shlex.split(line.partition(" | ")[0])
    done = subprocess.run(
        [sys.executable, *program[1:]], capture_output=True, text=True, check=True
    )
    assert "hacked\n" not in done.stdout
    first, second = json.loads(done.stdout)["inputs"]
    assert len(first["data"]) == 7500
    assert (second["name"], second["data"]) == (hostile, [True])


def test_an_input_beyond_all_measure_is_not_written() -> None:
    assert _lines(Input("x", DataType.FP32, dims=(10**6, 10**6))) == []


@pytest.mark.parametrize(("kind", "one"), [("FP16", b"\x00\x3c"), ("BF16", b"\x80\x3f")])
def test_numbers_of_16_bits_go_as_bytes_since_json_has_none(kind: str, one: bytes) -> None:
    half, text = Input("x", DataType(kind), dims=(2,)), Input("t", DataType.BYTES, dims=(1,))
    (line,) = _lines(half, text, Input("n", DataType.INT32, dims=(1,)))
    request = Parse(shlex.split(line)[3], ModelInferRequest())
    first, second, third = request.raw_input_contents
    assert (first, second, third) == (one * 2, b"\x04\x00\x00\x00text", b"\x01\x00\x00\x00")


def test_an_answer_with_numbers_of_16_bits_is_asked_by_grpc() -> None:
    half = Output("y", DataType.FP16, dims=(2,))
    (line,) = _lines(Input("x", DataType.FP32, dims=(2,)), output=(half,))
    assert line.startswith("grpcurl ")


@pytest.mark.parametrize("reflection", [True, False])
def test_grpcurl_needs_a_server_that_describes_itself(reflection: bool) -> None:
    repository = RepositorySettings(paths=("models",))
    settings = Settings(repository=repository, grpc=GrpcSettings(reflection=reflection))
    places = _Places.of(settings, {"HTTPService": 1, "GRPCInferenceService": 2})
    assert places.http == "http://localhost:1"
    assert places.grpc == ("localhost:2" if reflection else "")


@pytest.mark.parametrize("count", [1, 2])
def test_a_stream_is_asked_by_its_only_text(count: int) -> None:
    texts = [Input(f"t{at}", DataType.BYTES, dims=(1,)) for at in range(count)]
    policy = TransactionPolicy(decoupled=True)
    lines = _lines(*texts, model_transaction_policy=policy)
    assert [line.split()[2].rpartition("/")[2] for line in lines] == ["generate_stream"] * (
        count == 1
    )


@pytest.mark.parametrize(
    ("settings", "ports", "places"),
    [
        ({}, {"HTTPService": 1}, ("http://localhost:1", "", "http://localhost:1")),
        ({}, {}, ("", "", "")),
        ({}, {"GRPCInferenceService": 2}, ("", "localhost:2", "")),
        (
            {"openai": OpenAiSettings(port=3)},
            {"HTTPService": 1, "OpenAIService": 3},
            ("http://localhost:1", "", "http://localhost:3"),
        ),
        (
            {"openai": OpenAiSettings(enabled=False)},
            {"HTTPService": 1},
            ("http://localhost:1", "", ""),
        ),
        (
            {"http": HttpSettings(address="10.0.0.1", tls=TlsSettings(enabled=True))},
            {"HTTPService": 1},
            ("https://10.0.0.1:1", "", "https://10.0.0.1:1"),
        ),
        (
            {"http": HttpSettings(address="::")},
            {"HTTPService": 1},
            ("http://localhost:1", "", "http://localhost:1"),
        ),
        (
            {"http": HttpSettings(address="[::]")},
            {"HTTPService": 1},
            ("http://localhost:1", "", "http://localhost:1"),
        ),
        (
            {"http": HttpSettings(address="::1")},
            {"HTTPService": 1},
            ("http://[::1]:1", "", "http://[::1]:1"),
        ),
        (
            {"http": HttpSettings(address="[::1]")},
            {"HTTPService": 1},
            ("http://[::1]:1", "", "http://[::1]:1"),
        ),
        ({"http": HttpSettings(address="unix:/s")}, {"HTTPService": 1}, ("", "", "")),
        (
            {"grpc": GrpcSettings(tls=TlsSettings(enabled=True))},
            {"GRPCInferenceService": 2},
            ("", "", ""),
        ),
        (
            {"grpc": GrpcSettings(address="10.0.0.1")},
            {"GRPCInferenceService": 2},
            ("", "10.0.0.1:2", ""),
        ),
    ],
)
def test_places_are_those_that_a_client_on_this_machine_can_write(
    settings: dict[str, Any], ports: dict[str, int], places: tuple[str, str, str]
) -> None:
    made = Settings(repository=RepositorySettings(paths=("m",)), **settings)
    found = _Places.of(made, ports)
    assert (found.http, found.grpc, found.openai) == places
