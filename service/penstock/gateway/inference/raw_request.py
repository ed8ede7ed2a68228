"""Decoder of raw binary requests: the body is the data of the model's only input (HI-14)."""

from __future__ import annotations

from math import prod

from penstock.core.buffer import Buffer
from penstock.core.config import ModelConfig, ModelInput
from penstock.core.errors import InvalidRequestError, request_prefix
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor, encode_elements


def decode_raw_request(
    model: str, version: str, body: Buffer, config: ModelConfig
) -> InferenceRequest:
    """Decode a body without JSON; name, datatype and shape come from the model's configuration."""
    if len(config.input) != 1:
        raise _refused(
            "Raw request must only have 1 input (found 1) to be deduced but got"
            f" {len(config.input)} inputs in '{config.name}' model configuration"
        )
    known = config.input[0]
    tensor = _string(known, body) if known.data_type is DataType.BYTES else _numbers(known, body)
    if config.max_batch_size:
        tensor = Tensor(tensor.datatype, (1, *tensor.shape), tensor.buffer)
    return InferenceRequest(model, version, inputs={known.name: tensor})


def _string(known: ModelInput, body: Buffer) -> Tensor:
    """The body as a tensor of one string element."""
    if -1 in known.dims or prod(known.dims) != 1:
        raise _refused(
            f"For BYTE datatype raw input '{known.name}', the model must have input shape [1]"
        )
    return Tensor(DataType.BYTES, known.dims, encode_elements([bytes(body)]))


def _numbers(known: ModelInput, body: Buffer) -> Tensor:
    """The body as numbers; a variable dimension follows from the size of the data."""
    assert known.data_type is not None
    shape = list(known.dims)
    if shape.count(-1) > 1:
        raise _refused(
            f"The shape of the raw input '{known.name}' can not be deduced because there are"
            " more than one variable-sized dimension"
        )
    if -1 in shape:
        row = -prod(shape) * known.data_type.itemsize
        shape[shape.index(-1)] = len(body) // row
    return Tensor(known.data_type, shape, body)


def _refused(text: str) -> InvalidRequestError:
    return InvalidRequestError(request_prefix("") + text)
