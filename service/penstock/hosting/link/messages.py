"""Messages on the link between server and model process: their kinds, headers and codecs.

Headers are plain tuples; their types stand beside their kinds, and those of what a model process
sends once more in `parent.answer_types`, which holds it to them. A tensor codec describes the
tensors in them, and says which bytes follow as the payload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum, unique
from typing import Any

import numpy as np

from penstock.core.buffer import Buffer
from penstock.core.errors import InferenceError, InternalError, error_from_code
from penstock.core.http_exchange import Headers, HttpExchange, HttpHead
from penstock.core.request import (
    ExchangePart,
    InferenceRequest,
    InferenceResponse,
    ParameterValue,
    RequestScope,
    Sender,
    TextResponse,
)
from penstock.core.timeline import received_timeline
from penstock.hosting.link.arena import SHARE_FROM
from penstock.hosting.link.tensor_codec import INLINE, NO_PLACES, Places, TensorCodec

TensorSpecs = Any
"""Tensors as the tensor codec describes them. Of a `TextResponse`, the size of its text."""
PackedRequest = tuple[
    int,  # number on the link
    str,  # model name
    str,  # model version
    str,  # request id
    TensorSpecs,
    tuple[str, ...],  # requested outputs
    dict[str, ParameterValue],
    int,  # priority
    int,  # timeout in microseconds
    int | str,  # correlation id
    bool,  # sequence start
    bool,  # sequence end
    float | None,  # deadline
    Any,  # places of outputs in shared memory
    str,  # label of the tenant, empty without tenants
    int,  # nanoseconds that it waited for its tenant's turn
    Any,  # `Timeline.reference` if it is traced
]
PackedError = tuple[str, str]
"""Error code and message."""
PackedResponse = tuple[TensorSpecs, dict[str, ParameterValue], bool, PackedError | None]
"""Outputs, parameters, whether it is final, and the error that it carries."""

# Headers, by kinds; that of INITIALIZE is `introduction.Introduction`.
Execute = tuple[int, list[PackedRequest]]
"""Number of the batch, its requests."""
Taken = list[tuple[int, int]]
"""Numbers of requests, and how many responses their readers have taken: flow control."""
NumberedResponse = tuple[int, PackedResponse]
Failed = PackedError
Cancel = tuple[int, int]
"""Number of the request, and when its reader left, in nanoseconds of `time.monotonic_ns`."""
Error = tuple[int, str, str]
"""Number of the request or call, error code, message."""
Done = tuple[int, int, int, int, int]
"""Number of the batch; compute start, input end, output start, and of these the time waited."""
Executed = tuple[int, int, int, int, int, list[NumberedResponse]]
Log = tuple[int, str, str, int, str, dict[str, str]]
"""Level, name of the logger, path, line, text, fields (`core.log_fields`)."""
LONGEST_TEXT = 1 << 20
"""Characters of the text of a LOG message, or of an error; longer ones are cut."""
Call = tuple[bool, bool, PackedRequest]
"""Whether any number of responses may come; whether the caller waits for the first; the request."""
Recorded = tuple[int, Any, Any, Any]
"""Number of a request, and what `Timeline.take_recorded` returned."""
Usage = tuple[int, int, int, int]
"""Number of a request; tokens of its prompt, of these from a cache, generated so far."""
Control = tuple[int, str, Sequence[Any]]
"""Number of the call, verb, arguments."""
RETIRE = "retire"
"""A verb of CONTROL: unload this model, whose engine is not healthy; its argument is the name."""
Controlled = tuple[int, Any, str | None]
"""Number of the call, value, and the error message if it failed."""
Command = tuple[int, str, str]
"""Number of the command, action, arguments as JSON."""
Commanded = tuple[int, str, PackedError | None]
"""Number of the command, what the backend returned as JSON, and the error if it failed."""

Exchange = tuple[PackedRequest, str, str, str, Headers]
"""A request without tensors; method, path, query and headers. The body is the payload."""
Part = tuple[int, tuple[int, Headers] | None, int, bool, PackedError | None]
"""Number of the request, head, bytes of the body in the payload, whether it is final, error."""


@unique
class Kind(IntEnum):
    """Kinds of messages; the comment gives the type of the header."""

    # within a model process
    PROBE = 5  # None: a readiness probe, which has come by the pulse

    # server to model process
    INITIALIZE = 1  # Introduction
    EXECUTE = 2  # Execute
    TAKEN = 3  # Taken
    CANCEL = 4  # Cancel: the reader of a request has left
    STOP = 34  # number of a request: its reader wants no more responses, and reads to the end
    FINALIZE = 6  # None
    FREE = 7  # [offset or (number of a region, offset), ...]: no views left; both ways
    CALLED = 8  # NumberedResponse: to a call that a model made
    CALL_END = 9  # number of a call that gets no more responses
    CALL_ERROR = 10  # Error
    CONTROLLED = 30  # Controlled
    REGION_GONE = 33  # number of a region; it was offered by the pulse
    EXCHANGE = 42  # Exchange; answered by PARTS, ended as any request
    SHRINK = 44  # None: free caches, as no request is there
    COMMAND = 40  # Command: `Controllable.control`; it is carried out to its end

    # model process to server
    READY = 11  # bool: whether readiness is probed also while it executes
    FAILED = 12  # Failed: could not be initialized
    RESPONSE = 13  # NumberedResponse
    RESPONSES = 31  # [NumberedResponse, ...]
    END = 14  # number of a request that gets no more responses
    ERROR = 15  # Error
    DONE = 16  # Done: the next batch may be sent
    METRICS = 18  # {name: value}
    HISTOGRAMS = 37  # {name: state of a histogram}
    UNHEALTHY = 19  # text: the backend is beyond repair, the process ends
    LOG = 20  # Log
    CALL = 21  # Call: a model calls another one
    CALL_TAKEN = 22  # (number of a call, responses taken)
    CALL_CANCEL = 23  # number of a call, as CANCEL; confirmed with CALL_END
    CALL_STOP = 35  # number of a call, as STOP
    CONTROL = 24  # Control: load, unload or ask for a model
    METRIC = 25  # Control, number 0 for no answer: on a metric of the model's own
    REGION_MAPPED = 27  # number of a region
    EXECUTED = 26  # Executed: DONE and RESPONSES in one
    RESCHEDULE = 28  # number of a request that is to be scheduled again
    RECORDED = 36  # Recorded: before the last response of a traced request, or after CANCEL
    COMMANDED = 41  # Commanded
    PARTS = 43  # [Part, ...]
    USAGE = 39  # Usage: only where the introduction wants it
    RECORDING = 38  # number of a traced request: RECORDED also comes after its last response


def pack_request(
    number: int, request: InferenceRequest, codec: TensorCodec = INLINE
) -> tuple[PackedRequest, list[Buffer]]:
    """A request as header and payload; `number` names it on the link."""
    payload: list[Buffer] = []
    scope = request.scope
    parameters = _plain(request.parameters)  # first: a block of the arena must not be left behind
    header = (
        number,
        request.model_name,
        request.model_version,
        request.id,
        codec.pack(request.inputs, payload),
        request.requested_outputs,
        parameters,
        request.priority,
        request.timeout,
        request.correlation_id,
        request.sequence_start,
        request.sequence_end,
        scope.deadline,
        codec.pack_places(request.output_places) if request.output_places else [],
        "" if scope.sender is None else scope.sender.label,
        scope.waited,
        None if scope.timeline is None else scope.timeline.reference(),
    )
    return header, payload


def unpack_request(
    header: PackedRequest, payload: memoryview, at: int, codec: TensorCodec = INLINE
) -> tuple[int, InferenceRequest, int]:
    """Number, request, and where the next request's tensors begin in the payload."""
    (
        number,
        model_name,
        model_version,
        request_id,
        specs,
        requested_outputs,
        parameters,
        priority,
        timeout,
        correlation_id,
        sequence_start,
        sequence_end,
        deadline,
        places,
        label,
        waited,
        reference,
    ) = header
    scope = RequestScope(deadline)
    if reference is not None and not isinstance(reference, int):
        scope.timeline = received_timeline(reference, number)
    if label:
        scope.sender, scope.waited = Sender(label, label=label), waited
    inputs, at = codec.unpack(specs, payload, at)
    request = InferenceRequest(
        model_name,
        model_version,
        request_id,
        inputs,
        requested_outputs,
        parameters,
        priority,
        timeout,
        correlation_id,
        sequence_start,
        sequence_end,
        output_places=codec.unpack_places(places) if places else {},
        scope=scope,
    )
    return number, request, at


def pack_error(error: InferenceError) -> PackedError:
    """Code and message of an error, which is cut if it is long."""
    return error.code, error.message[:LONGEST_TEXT]


def pack_response(
    response: InferenceResponse, codec: TensorCodec = INLINE, places: Places = NO_PLACES
) -> tuple[PackedResponse, list[Buffer]]:
    """A response as header and payload; `places` are where its request wants outputs."""
    payload: list[Buffer] = []
    return pack_next_response(response, payload, codec, places), payload


def pack_next_response(
    response: InferenceResponse,
    payload: list[Buffer],
    codec: TensorCodec = INLINE,
    places: Places = NO_PLACES,
) -> PackedResponse:
    """The header of one of several responses; its tensors' bytes are added to `payload`."""
    if type(response) is TextResponse and not places and len(response.text) < SHARE_FROM:
        payload.append(response.text)
        return len(response.text), {}, response.final, None
    parameters = _plain(response.parameters)  # first: what is in the arena must be sent
    specs = codec.pack(response.outputs, payload, places)
    problem = response.error
    error = None if problem is None else pack_error(problem)
    return specs, parameters, response.final, error


def unpack_response(
    header: PackedResponse,
    payload: memoryview,
    codec: TensorCodec = INLINE,
    places: Places = NO_PLACES,
) -> InferenceResponse:
    """The response that `pack_response` packed."""
    return unpack_next_response(header, payload, 0, codec, places)[0]


def unpack_next_response(
    header: PackedResponse,
    payload: memoryview,
    at: int,
    codec: TensorCodec = INLINE,
    places: Places = NO_PLACES,
) -> tuple[InferenceResponse, int]:
    """One of several responses, and where the next one's tensors begin in the payload."""
    specs, parameters, final, error = header
    if type(specs) is int:
        end = at + specs
        return TextResponse(bytes(payload[at:end]), final=final), end
    outputs, at = codec.unpack(specs, payload, at, places)
    problem = None if error is None else error_from_code(*error)
    return InferenceResponse(outputs, parameters, final, problem), at


def pack_exchange(number: int, request: InferenceRequest) -> tuple[Exchange, list[Buffer]]:
    """A request with an exchange as header and payload."""
    exchange = request.exchange
    assert exchange is not None
    header, _ = pack_request(number, request)
    message = header, exchange.method, exchange.path, exchange.query, exchange.headers
    return message, [exchange.body]


def unpack_exchange(header: Exchange, payload: memoryview) -> tuple[int, InferenceRequest]:
    """Number and request that `pack_exchange` packed."""
    packed, method, path, query, headers = header
    number, request, _ = unpack_request(packed, memoryview(b""), 0)
    exchange = HttpExchange(method, path, query, headers, bytes(payload))
    return number, request._replace(exchange=exchange)


def pack_part(number: int, part: ExchangePart) -> Part:
    """The header of one of several parts; its body belongs into the payload."""
    problem = part.error
    error = None if problem is None else pack_error(problem)
    head = None if part.head is None else (part.head.status, part.head.headers)
    return number, head, len(part.body), part.final, error


def unpack_part(header: Part, payload: memoryview, at: int) -> ExchangePart:
    """The part whose body begins at `at` in the payload."""
    _, head, size, final, problem = header
    error = None if problem is None else error_from_code(*problem)
    body = bytes(payload[at : at + size])
    known = None if head is None else HttpHead(*head)
    return ExchangePart(final=final, error=error, head=known, body=body)


_VALUES = (bool, int, float, str)
_SIMPLE = (bool, float, str)
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


def _plain(parameters: Mapping[str, Any]) -> dict[str, ParameterValue]:
    """The parameters without numpy's scalars and other subclasses, which would arrive as bytes."""
    if not parameters:
        return {}
    return {
        key: value if type(value) in _SIMPLE else _plain_value(key, value)
        for key, value in parameters.items()
    }


def _plain_value(key: str, value: Any) -> ParameterValue:
    if isinstance(value, np.generic):
        value = value.item()
    for kind in _VALUES:
        if isinstance(value, kind):
            if kind is int and not _LEAST <= int(value) <= _MOST:
                raise InternalError(f"parameter '{key}' must fit into 64 bits, got {value}")
            return kind(value)
    raise InternalError(
        f"parameter '{key}' must be a boolean, a number or a string, not {type(value).__name__}"
    )
