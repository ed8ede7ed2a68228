"""What front and model process say to each other, and how requests and responses are packed.

Headers are plain tuples. Tensors are `(name, datatype, shape, size)` in the header; their bytes
follow as the payload, in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from penstock.core.errors import error_from_code
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import Buffer, DataType, Tensor

Packed = tuple[Any, list[Buffer]]


class Kind(IntEnum):
    """Kinds of messages; the comment gives the header."""

    # front to model process
    INITIALIZE = 1  # dict: target, name, config, version, version_path, kind, device_id, settings
    EXECUTE = 2  # (batch id, [request, ...])
    TAKEN = 3  # (request id, responses taken by the reader)
    CANCEL = 4  # request id
    PROBE = 5  # None: is the backend healthy?
    FINALIZE = 6  # None

    # model process to front
    READY = 11  # None
    FAILED = 12  # (error code, message): could not be initialized
    RESPONSE = 13  # (request id, response)
    END = 14  # request id: no more responses
    ERROR = 15  # (request id, error code, message)
    DONE = 16  # (batch id, compute start, input end, output start): the next batch may come
    HEALTH = 17  # bool
    METRICS = 18  # {name: value}
    UNHEALTHY = 19  # message: the backend is beyond repair, the process ends
    LOG = 20  # (level, logger name, message)


WINDOW = 16
"""Responses of one request that a model process may send before the reader has taken some."""


_DATATYPES = {datatype.value: datatype for datatype in DataType}


def pack_request(number: int, request: InferenceRequest) -> Packed:
    """A request as header and payload; `number` names it on the link."""
    tensors, payload = _pack_tensors(request.inputs)
    header = (
        number,
        request.model_name,
        request.model_version,
        request.id,
        tensors,
        request.requested_outputs,
        dict(request.parameters),
        request.priority,
        request.timeout,
        request.correlation_id,
        request.sequence_start,
        request.sequence_end,
        request.deadline,
    )
    return header, payload


def unpack_request(header: Any, payload: memoryview, at: int) -> tuple[int, InferenceRequest, int]:
    """Number, request, and where the next request's tensors begin in the payload."""
    inputs, at = _unpack_tensors(header[4], payload, at)
    request = InferenceRequest(*header[1:4], inputs, *header[5:])
    return header[0], request, at


def pack_response(response: InferenceResponse) -> Packed:
    """A response as header and payload."""
    tensors, payload = _pack_tensors(response.outputs)
    error = response.error and (response.error.code, response.error.message)
    return (tensors, dict(response.parameters), response.final, error), payload


def unpack_response(header: Any, payload: memoryview) -> InferenceResponse:
    """The response that `pack_response` packed."""
    tensors, parameters, final, error = header
    outputs, _ = _unpack_tensors(tensors, payload, 0)
    return InferenceResponse(outputs, parameters, final, error and error_from_code(*error))


def _pack_tensors(tensors: Mapping[str, Tensor]) -> Packed:
    specs = []
    payload: list[Buffer] = []
    for name, tensor in tensors.items():
        buffer = tensor.buffer
        specs.append((name, tensor.datatype.value, tensor.shape, len(buffer)))
        payload.append(buffer)
    return specs, payload


def _unpack_tensors(specs: Any, payload: memoryview, at: int) -> tuple[dict[str, Tensor], int]:
    tensors: dict[str, Tensor] = {}
    for name, datatype, shape, size in specs:
        tensors[name] = Tensor(_DATATYPES[datatype], shape, payload[at : at + size])
        at += size
    return tensors, at
