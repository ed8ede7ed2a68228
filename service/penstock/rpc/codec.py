"""Codec of inference messages: protobuf to core values and back; error texts are Triton's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from penstock.core.buffer import Buffer
from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    request_prefix,
    shortened,
)
from penstock.core.region import RegionSlice
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.request_limits import (
    check_dimensions,
    check_inputs,
    check_outputs,
    check_parameters,
    repeated_output,
)
from penstock.core.tensor import DataType, Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.infer_message import DATATYPES, InferMessage, input_name
from penstock.rpc.parameters import CLASSIFICATION, FINAL, class_count, split_parameters
from penstock.rpc.shared_memory import REGION, shared_slice
from penstock.rpc.typed_contents import decode_contents
from penstock.shared_memory.registry import NO_REGIONS, Regions
from penstock.shared_memory.tensors import put, tensor_in

_PARAMETER_FIELDS = (
    (bool, "bool_param"),
    (int, "int64_param"),
    (float, "double_param"),
    (str, "string_param"),
)


def decode_request(
    received: InferMessage,
    deadline: float | None = None,
    regions: Regions = NO_REGIONS,
    forwarded: Mapping[str, str] | None = None,
) -> InferenceRequest:
    """Decode a request message; raises `InvalidRequestError` for one that no model would accept.

    `deadline` is in seconds on the event loop's clock. `regions` are the clients' shared memory,
    where tensors may lie; `forwarded` are headers of the call that become parameters.
    """
    message = received.head
    if received.template is not None and not forwarded:
        return received.template.request(received.raw, deadline, received.places)
    if received.refusal is not None:
        raise received.refusal
    check_parameters(message.parameters)
    check_inputs(message.inputs)
    check_outputs(message.outputs)
    fields, custom = split_parameters(message.parameters)
    if forwarded:
        custom |= forwarded
    outputs, classes = _decode_outputs(message.outputs)
    return InferenceRequest(
        model_name=message.model_name,
        model_version=message.model_version,
        id=message.id,
        inputs=_decode_inputs(received, regions),
        requested_outputs=outputs,
        parameters=custom,
        deadline=deadline,
        classes=classes,
        output_places=_output_places(message.outputs, regions),
        **fields,
    )


def encode_response(
    request: InferenceRequest, version: str, response: InferenceResponse
) -> pb.ModelInferResponse:
    """Encode a response, always with raw contents, one entry per output (G-25)."""
    message = pb.ModelInferResponse(
        model_name=request.model_name, model_version=version, id=request.id
    )
    _encode_parameters(message, response.parameters)
    wanted = request.requested_outputs
    for name, tensor in response.outputs.items():
        if wanted and name not in wanted:
            continue
        message.outputs.add(name=name, datatype=tensor.datatype.value, shape=tensor.shape)
        place = request.output_places.get(name)
        if place is None:
            message.raw_output_contents.append(bytes(tensor.buffer))
        else:
            put(name, tensor, place)
            message.raw_output_contents.append(b"")
    return message


def mark_final(message: pb.ModelInferResponse, final: bool) -> None:
    """Set the parameter for the last response of a request (GP-06)."""
    message.parameters[FINAL].bool_param = final


def _encode_parameters(message: pb.ModelInferResponse, parameters: Mapping[str, object]) -> None:
    for key, value in parameters.items():
        field = next((name for kind, name in _PARAMETER_FIELDS if isinstance(value, kind)), "")
        try:
            setattr(message.parameters[key], field, value)
        except (AttributeError, ValueError) as error:  # a backend may return any value
            raise InternalError(
                f"response parameter '{key}' is not a boolean, 64-bit integer, float or string"
            ) from error


def _decode_outputs(
    outputs: Sequence[pb.ModelInferRequest.InferRequestedOutputTensor],
) -> tuple[tuple[str, ...], Mapping[str, int]]:
    """The names of the outputs, and the number of classes for those to be classified (GP-10)."""
    classes: dict[str, int] = {}
    names: set[str] = set()
    for output in outputs:
        if output.name in names:
            raise repeated_output(output.name)
        names.add(output.name)
        if not output.parameters:
            continue
        if CLASSIFICATION in output.parameters:
            classes[output.name] = class_count(output.parameters[CLASSIFICATION])
            if REGION in output.parameters:
                raise InvalidRequestError(
                    "output can't set both 'shared_memory_region' and 'classification'"
                )
    return tuple(output.name for output in outputs), classes


def _output_places(
    outputs: Sequence[pb.ModelInferRequest.InferRequestedOutputTensor], regions: Regions
) -> dict[str, RegionSlice]:
    """The slices of shared memory for outputs that the client requests there."""
    if not outputs:
        return {}
    places: dict[str, RegionSlice] = {}
    for output in outputs:
        given = output.parameters
        place = shared_slice(output.name, given, regions) if given else None
        if place is not None:
            places[output.name] = place
    return places


def _decode_inputs(received: InferMessage, regions: Regions) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    message = received.head
    raw = zip_longest(received.raw, received.places)
    for number, tensor in enumerate(message.inputs):
        if tensor.name in tensors:
            raise InvalidRequestError(
                f"{request_prefix(message.id)}input '{shortened(tensor.name)}'"
                " already exists in request"
            )
        check_dimensions(tensor.name, tensor.shape)
        tensors[tensor.name] = _decode_input(received, number, tensor, raw, regions)
    return tensors


def _decode_input(
    received: InferMessage,
    number: int,
    tensor: pb.ModelInferRequest.InferInputTensor,
    raw: Iterator[tuple[Buffer, RegionSlice | None]],
    regions: Regions,
) -> Tensor:
    datatype = DATATYPES.get(tensor.datatype, DataType.INVALID)
    where = input_name(received.head, tensor)
    place = shared_slice(tensor.name, tensor.parameters, regions) if tensor.parameters else None
    if place is not None:
        _refuse_contents(tensor, where)
        return tensor_in(place, datatype, tensor.shape)
    buffer: Buffer | None
    if tensor.HasField("contents"):
        if received.raw:
            raise InvalidRequestError(
                f"contents field must not be specified when using raw_input_contents for {where}"
            )
        buffer = _typed_contents(received, number, tensor, datatype)
    else:
        buffer, place = next(raw, (None, None))
    if buffer is None:
        raise InvalidRequestError(f"unable to find data for input tensor {where} in request.")
    return Tensor(datatype, tensor.shape, buffer, place, None, received.counts.get(number))


def _typed_contents(
    received: InferMessage,
    number: int,
    tensor: pb.ModelInferRequest.InferInputTensor,
    datatype: DataType,
) -> Buffer:
    decoded = received.typed.get(number)
    if decoded is None:
        return decode_contents(tensor.contents, datatype, input_name(received.head, tensor))
    if isinstance(decoded, InferenceError):
        raise decoded
    return decoded


def _refuse_contents(tensor: pb.ModelInferRequest.InferInputTensor, where: str) -> None:
    if tensor.HasField("contents"):
        raise InvalidRequestError(
            f"unexpected 'content' provided when using shared memory for input tensor {where}"
        )
