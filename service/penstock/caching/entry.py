"""Serialization of responses for caches outside the server's memory."""

from __future__ import annotations

import json
import struct
from math import prod

from penstock.core.request import InferenceResponse
from penstock.core.tensor import DataType, Tensor

_MAGIC = b"PEN1"
_HEAD = struct.Struct("<4sI")
_NO_ENTRY = "these are not the bytes of a response"


def pack(response: InferenceResponse) -> bytes:
    """Serialize outputs and parameters: a header, a description in JSON, the elements."""
    tensors = response.outputs.items()
    about = {
        "outputs": [[name, t.datatype.value, t.shape, t.nbytes] for name, t in tensors],
        "parameters": dict(response.parameters),
    }
    description = json.dumps(about).encode()
    buffers = [bytes(tensor.buffer) for _, tensor in tensors]
    return b"".join([_HEAD.pack(_MAGIC, len(description)), description, *buffers])


def unpack(data: bytes) -> InferenceResponse:
    """Deserialize a packed response; raises `ValueError` for any other bytes."""
    if len(data) < _HEAD.size:
        raise ValueError(_NO_ENTRY)
    magic, length = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError(_NO_ENTRY)
    at = _HEAD.size + length
    try:
        about = json.loads(data[_HEAD.size : at])
        outputs: dict[str, Tensor] = {}
        for name, datatype, shape, size in about["outputs"]:
            outputs[name] = _tensor(DataType(datatype), shape, data[at : at + size], size)
            at += size
        parameters = dict(about["parameters"])
    except (TypeError, KeyError) as error:
        raise ValueError(_NO_ENTRY) from error
    if at != len(data):
        raise ValueError(_NO_ENTRY)
    return InferenceResponse(outputs, parameters, final=True)


def _tensor(datatype: DataType, shape: list[int], elements: bytes, size: int) -> Tensor:
    if len(elements) != size or (datatype.itemsize and size != prod(shape) * datatype.itemsize):
        raise ValueError(_NO_ENTRY)
    return Tensor(datatype, shape, elements)
