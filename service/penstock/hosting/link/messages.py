"""What front and model process say to each other, and how requests and responses are packed.

Headers are plain tuples; an `Exchange` describes tensors in them, and says which bytes follow as
the payload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum, unique
from typing import Any

import numpy as np

from penstock.core.buffer import Buffer
from penstock.core.errors import InternalError, error_from_code
from penstock.core.request import (
    InferenceRequest,
    InferenceResponse,
    ParameterValue,
)
from penstock.hosting.link.tensor_codec import INLINE, NO_PLACES, Exchange, Places

Packed = tuple[Any, list[Buffer]]


@unique
class Kind(IntEnum):
    """Kinds of messages; the comment gives the header."""

    # front to model process
    INITIALIZE = 1  # dict: target, serial, and what an instance is told about itself
    EXECUTE = 2  # (batch id, [request, ...])
    TAKEN = 3  # [(request id, responses taken by the reader), ...]
    CANCEL = 4  # request id
    PROBE = 5  # None: is the backend healthy?
    FINALIZE = 6  # None
    FREE = 7  # [offset or (region number, offset), ...]: blocks that nobody looks at any more
    CALLED = 8  # (call id, response): of a request that a model made
    CALL_END = 9  # call id: no more responses
    CALL_ERROR = 10  # (call id, error code, message)
    CONTROLLED = 30  # (call id, value, problem or None)
    REGION = 32  # (number, path, offset, bytes): memory that may be mapped
    REGION_GONE = 33  # number

    # model process to front
    READY = 11  # None
    FAILED = 12  # (error code, message): could not be initialized
    RESPONSE = 13  # (request id, response)
    RESPONSES = 31  # [(request id, response), ...]
    END = 14  # request id: no more responses
    ERROR = 15  # (request id, error code, message)
    DONE = 16  # (batch id, compute start, input end, output start[, waited]): the next may come
    HEALTH = 17  # bool
    METRICS = 18  # {name: value}
    UNHEALTHY = 19  # message: the backend is beyond repair, the process ends
    LOG = 20  # (level, logger name, path, line, message)
    CALL = 21  # (decoupled, holds, request): a model makes one, and may do nothing until its answer
    CALL_TAKEN = 22  # (call id, responses taken)
    CALL_CANCEL = 23  # call id
    CONTROL = 24  # (call id, verb, arguments): load, unload or ask for a model
    METRIC = 25  # (call id or 0, operation, arguments) on a metric of the model's own
    REGION_MAPPED = 27  # number
    EXECUTED = 26  # DONE's five values, then [(request id, response), ...]: both in one
    RESCHEDULE = 28  # request id: not done with; it shall come again under the same id


def pack_request(number: int, request: InferenceRequest, exchange: Exchange = INLINE) -> Packed:
    """A request as header and payload; `number` names it on the link."""
    payload: list[Buffer] = []
    parameters = _plain(request.parameters)  # first: what is in the arena must be sent
    header = (
        number,
        request.model_name,
        request.model_version,
        request.id,
        exchange.pack(request.inputs, payload),
        request.requested_outputs,
        parameters,
        request.priority,
        request.timeout,
        request.correlation_id,
        request.sequence_start,
        request.sequence_end,
        request.deadline,
        exchange.pack_places(request.output_places),
    )
    return header, payload


def unpack_request(
    header: Any, payload: memoryview, at: int, exchange: Exchange = INLINE
) -> tuple[int, InferenceRequest, int]:
    """Number, request, and where the next request's tensors begin in the payload."""
    number, model_name, model_version, request_id, specs, *others, places = header
    inputs, at = exchange.unpack(specs, payload, at)
    request = InferenceRequest(model_name, model_version, request_id, inputs, *others)
    if places:
        request = replace(request, output_places=exchange.unpack_places(places))
    return number, request, at


def pack_response(
    response: InferenceResponse, exchange: Exchange = INLINE, places: Places = NO_PLACES
) -> Packed:
    """A response as header and payload; `places` are where its request wants outputs."""
    payload: list[Buffer] = []
    return pack_next_response(response, payload, exchange, places), payload


def pack_next_response(
    response: InferenceResponse,
    payload: list[Buffer],
    exchange: Exchange = INLINE,
    places: Places = NO_PLACES,
) -> Any:
    """The header of one of several responses; its tensors' bytes are added to `payload`."""
    parameters = _plain(response.parameters)  # first: what is in the arena must be sent
    specs = exchange.pack(response.outputs, payload, places)
    error = response.error and (response.error.code, response.error.message)
    return specs, parameters, response.final, error


def unpack_response(
    header: Any, payload: memoryview, exchange: Exchange = INLINE, places: Places = NO_PLACES
) -> InferenceResponse:
    """The response that `pack_response` packed."""
    return unpack_next_response(header, payload, 0, exchange, places)[0]


def unpack_next_response(
    header: Any,
    payload: memoryview,
    at: int,
    exchange: Exchange = INLINE,
    places: Places = NO_PLACES,
) -> tuple[InferenceResponse, int]:
    """One of several responses, and where the next one's tensors begin in the payload."""
    specs, parameters, final, error = header
    outputs, at = exchange.unpack(specs, payload, at, places)
    error = error and error_from_code(*error)
    return InferenceResponse(outputs, parameters, final, error), at


_VALUES = (bool, int, float, str)


def _plain(parameters: Mapping[str, Any]) -> dict[str, ParameterValue]:
    """The parameters without numpy's scalars and other subclasses, which would arrive as bytes."""
    if not parameters:
        return {}
    return {
        key: value if type(value) in _VALUES else _plain_value(key, value)
        for key, value in parameters.items()
    }


def _plain_value(key: str, value: Any) -> ParameterValue:
    if isinstance(value, np.generic):
        value = value.item()
    for kind in _VALUES:
        if isinstance(value, kind):
            return kind(value)
    raise InternalError(
        f"parameter '{key}' must be a boolean, a number or a string, not {type(value).__name__}"
    )
