"""Raw binary requests."""

from __future__ import annotations

import pytest

from penstock.core.config import ModelConfig, ModelInput
from penstock.core.errors import InvalidRequestError
from penstock.core.tensor import DataType
from penstock.gateway.inference.infer import decode_raw_request


def _config(*dims: int, datatype: DataType = DataType.INT16, batch: int = 0) -> ModelConfig:
    known = ModelInput(name="IN", data_type=datatype, dims=dims)
    return ModelConfig(name="m", max_batch_size=batch, input=(known,))


@pytest.mark.contract("HI-14")
@pytest.mark.parametrize(
    ("config", "body", "shape"),
    [
        (_config(-1), bytes(6), (3,)),
        (_config(2, -1, 3), bytes(24), (2, 2, 3)),
        (_config(2, 2), bytes(8), (2, 2)),
        (_config(-1, batch=8), bytes(6), (1, 3)),
        (_config(-1), b"", (0,)),
    ],
)
def test_shape_follows_from_the_data(
    config: ModelConfig, body: bytes, shape: tuple[int, ...]
) -> None:
    request = decode_raw_request("m", "", body, config)
    assert request.inputs["IN"].shape == shape
    assert request.inputs["IN"].buffer == body


@pytest.mark.contract("HI-14")
def test_string_input_gets_the_body_as_one_element() -> None:
    config = _config(1, datatype=DataType.BYTES, batch=4)
    tensor = decode_raw_request("m", "", b"a\0b", config).inputs["IN"]
    assert (tensor.shape, tensor.elements()) == ((1, 1), [b"a\0b"])


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (_config(-1, -1), "more than one variable-sized dimension"),
        (_config(-1, datatype=DataType.BYTES), r"must have input shape \[1\]"),
        (_config(2, datatype=DataType.BYTES), r"must have input shape \[1\]"),
        (ModelConfig(name="m"), r"but got 0 inputs in 'm' model configuration"),
    ],
)
def test_model_that_leaves_room_for_doubt_is_refused(config: ModelConfig, text: str) -> None:
    with pytest.raises(InvalidRequestError, match=text):
        decode_raw_request("m", "", bytes(8), config)
