"""The lines that say how a model is called, as they are made of its configuration."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest

from penstock.app.first_calls import _calls, _Places
from penstock.core.config import Input, ModelConfig, TransactionPolicy
from penstock.core.tensor import DataType

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


def test_what_a_message_has_no_field_for_is_for_http() -> None:
    (line,) = _lines(Input("x", DataType.FP16, dims=(2,)))
    assert line.startswith("curl ")


@pytest.mark.parametrize("count", [1, 2])
def test_a_stream_is_asked_by_its_only_text(count: int) -> None:
    texts = [Input(f"t{at}", DataType.BYTES, dims=(1,)) for at in range(count)]
    policy = TransactionPolicy(decoupled=True)
    lines = _lines(*texts, model_transaction_policy=policy)
    assert [line.split()[2].rpartition("/")[2] for line in lines] == ["generate_stream"] * (
        count == 1
    )
