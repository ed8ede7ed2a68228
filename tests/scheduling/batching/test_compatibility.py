"""Which requests may share a batch, as the configuration of their model decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes import model_config
from penstock.core.config import ModelConfig, ModelInput
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor
from penstock.scheduling.batching.forming import length, signature_for


def _input(name: str, *dims: int, **fields: Any) -> ModelInput:
    return ModelInput(name, DataType.INT32, dims=dims, **fields)


def _config(*inputs: ModelInput) -> ModelConfig:
    return model_config(input=inputs)


def _request(**values: list[object]) -> InferenceRequest:
    inputs = {n: Tensor.from_numpy(np.array(value, np.int32)) for n, value in values.items()}
    return InferenceRequest("m", inputs=inputs)


def _together(config: ModelConfig, *requests: InferenceRequest) -> bool:
    signature = signature_for(config)
    return len({signature(request) for request in requests}) == 1


@pytest.mark.contract("D-06")
def test_shapes_that_vary_must_be_equal_but_for_the_rows() -> None:
    config = _config(_input("A", -1), _input("B", 2))
    request = _request(A=[[1, 2]], B=[[1, 2]])
    assert _together(config, request, _request(A=[[3, 4], [5, 6]], B=[[1, 2], [3, 4]]))
    assert not _together(config, request, _request(A=[[1, 2, 3]], B=[[1, 2]]))


def test_several_shapes_that_vary_are_all_compared() -> None:
    config = _config(_input("A", -1), _input("B", -1))
    request = _request(A=[[1, 2]], B=[[1, 2]])
    assert _together(config, request, _request(B=[[3, 4]], A=[[3, 4]]))
    assert not _together(config, request, _request(A=[[1, 2]], B=[[1]]))


@pytest.mark.contract("C-12")
def test_ragged_shapes_may_differ() -> None:
    config = _config(_input("A", -1, allow_ragged_batch=True), _input("B", -1))
    request = _request(A=[[1, 2]], B=[[1]])
    assert _together(config, request, _request(A=[[1, 2, 3]], B=[[2]]))
    assert not _together(config, request, _request(A=[[1, 2]], B=[[1, 2]]))


@pytest.mark.contract("C-13")
def test_requests_with_other_optional_inputs_are_not_batched() -> None:
    config = _config(_input("A", 1), _input("B", 1, optional=True))
    assert not _together(config, _request(A=[[1]]), _request(A=[[1]], B=[[1]]))
    assert _together(config, _request(A=[[1]], B=[[2]]), _request(B=[[3]], A=[[4]]))


def test_an_optional_input_that_varies_is_compared_where_it_is_there() -> None:
    config = _config(_input("A", 1), _input("B", -1, optional=True))
    request = _request(A=[[1]], B=[[1, 2]])
    assert _together(config, request, _request(A=[[1]], B=[[3, 4]]))
    assert not _together(config, request, _request(A=[[1]], B=[[1]]))


@pytest.mark.contract("D-07")
@pytest.mark.parametrize("optional", [False, True])
def test_shape_tensors_must_have_equal_contents(optional: bool) -> None:
    shape = _input("S", 2, is_shape_tensor=True, optional=optional)
    config = _config(shape, _input("A", 1))
    request = _request(S=[[1, 2]], A=[[1]])
    assert _together(config, request, _request(S=[[1, 2]], A=[[5]]))
    assert _together(config, request, _request(S=[[1, 2], [1, 2]], A=[[5], [6]]))
    assert not _together(config, request, _request(S=[[1, 3]], A=[[1]]))


def test_the_length_is_that_of_the_longest_input_by_row() -> None:
    assert length(_request(A=[[1, 2, 3], [4, 5, 6]], B=[[1], [2]])) == 3
    assert length(_request()) == 0


def test_the_length_of_a_string_is_its_bytes() -> None:
    tensor = Tensor.from_strings(["abcd", "é"], shape=(2, 1))
    assert length(InferenceRequest("m", inputs={"T": tensor})) == 3
