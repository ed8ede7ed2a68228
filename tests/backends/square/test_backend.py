"""The square backend, served to clients of an in-process server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import penstock.in_process as tritonserver

CONFIG: dict[str, Any] = {
    "backend": "square",
    "model_transaction_policy": {"decoupled": True},
    "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tritonserver.Server]:
    """A server that loads `m` with any configuration."""
    repository = tmp_path_factory.mktemp("square")
    (repository / "m" / "1").mkdir(parents=True)
    options = tritonserver.Options(
        model_repository=str(repository),
        model_control_mode=tritonserver.ModelControlMode.EXPLICIT,
    )
    with tritonserver.Server(options) as server:
        yield server


def _load(server: tritonserver.Server, **fields: Any) -> tritonserver.Model:
    return server.load("m", {"config": json.dumps(CONFIG | fields)})


def _answers(model: tritonserver.Model, number: Any) -> list[Any]:
    inputs = {"IN": np.array(number, np.int32)}
    return [
        np.from_dlpack(response.outputs["OUT"]).tolist()
        for response in model.infer(inputs=inputs)
        if response.outputs
    ]


@pytest.mark.contract("B-18", "C-04")
@pytest.mark.parametrize("number", [-1, 0, 1, 4])
def test_a_number_comes_as_often_as_it_says(server: tritonserver.Server, number: int) -> None:
    assert _answers(_load(server), [number]) == [[number]] * number


@pytest.mark.contract("B-18")
def test_responses_of_a_model_that_batches_have_a_row(server: tritonserver.Server) -> None:
    assert _answers(_load(server, max_batch_size=4), [[2]]) == [[[2]], [[2]]]


def test_a_batch_of_requests_in_one_is_refused(server: tritonserver.Server) -> None:
    model = _load(server, max_batch_size=4)
    with pytest.raises(tritonserver.InvalidArgumentError, match="unexpected shape for IN input"):
        _answers(model, [[1], [1]])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"model_transaction_policy": {"decoupled": False}}, "decoupled: true"),
        ({"input": []}, r"one input, IN TYPE_INT32 \[ 1 \]"),
        ({"output": CONFIG["input"]}, r"one output, OUT TYPE_INT32 \[ 1 \]"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(
    server: tritonserver.Server, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(tritonserver.InvalidArgumentError, match=text):
        _load(server, **fields)


@pytest.mark.contract("C-04")
@pytest.mark.parametrize(
    ("backend", "platform"),
    [
        ("hugectr", "hugectr"),
        ("dali", ""),
        ("own", ""),
    ],
)
def test_a_backend_that_is_not_here_is_refused_by_its_name(
    server: tritonserver.Server, backend: str, platform: str
) -> None:
    with pytest.raises(tritonserver.InvalidArgumentError, match=f"find backend '{backend}'"):
        _load(server, backend=backend, platform=platform)
