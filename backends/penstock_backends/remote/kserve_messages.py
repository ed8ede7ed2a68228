"""Requests and responses of KServe v2, from core values to protobuf and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from penstock.backend import (
    DataType,
    InferenceError,
    InferenceRequest,
    InferenceResponse,
    InternalError,
    InvalidRequestError,
    ParameterValue,
    Tensor,
    decode_elements,
)
from penstock.protocol import grpc_service_pb2 as pb
from penstock_backends.remote.grpc_connection import Buffer, Message, Received

_FINAL: Final = "triton_final_response"
_EMPTY_FINAL: Final = "triton_enable_empty_final_response"
_CONTENTS = {
    DataType.INT8: "int_contents",
    DataType.INT16: "int_contents",
    DataType.INT32: "int_contents",
    DataType.UINT8: "uint_contents",
    DataType.UINT16: "uint_contents",
    DataType.UINT32: "uint_contents",
    DataType.FP32: "fp32_contents",
    DataType.FP64: "fp64_contents",
    DataType.INT64: "int64_contents",
    DataType.UINT64: "uint64_contents",
    DataType.BOOL: "bool_contents",
    DataType.BYTES: "bytes_contents",
}
_DATATYPES = {one.value: one for one in DataType if one is not DataType.INVALID}
_LARGE = 64 << 10
"""Bytes from which contents are not copied into protobuf's messages, and out of them."""
_RAW_INPUT = b"\x3a"  # the keys of fields: 7 of a request, 6 of a response, 2 of a streamed one
_RAW_OUTPUT, _INFER_RESPONSE = 0x32, 0x12
_DELIMITED = 2
_NOWHERE: Mapping[str, tuple[int, int]] = {}
_COUNTED = 64 << 10
"""Bytes of strings that are counted before they are handed on."""


def encode_request(
    request: InferenceRequest,
    model: str,
    version: str,
    *,
    streamed: bool,
    region: str = "",
    places: Mapping[str, tuple[int, int]] = _NOWHERE,
) -> Message:
    """A request for the remote's model, all contents raw, which are not copied in a large one.

    Inputs with `places` are in a `region` of shared memory: where each begins, and its bytes.
    Outputs are asked for whole: classes, and places in a client's memory, are made here.
    """
    message = pb.ModelInferRequest(model_name=model, model_version=version, id=request.id)
    tensors = request.inputs
    for name, tensor in tensors.items():
        added = message.inputs.add(name=name, datatype=tensor.datatype.value, shape=tensor.shape)
        if name in places:
            _set_place(added.parameters, region, *places[name])
    for name in request.requested_outputs:
        message.outputs.add(name=name)
    if request.parameters:
        _set_parameters(message.parameters, request.parameters)
    if request.correlation_id or request.priority or request.timeout:
        _set_fields(message.parameters, request)
    if streamed:
        message.parameters[_EMPTY_FINAL].bool_param = True
    return _with_contents(message, [one for name, one in tensors.items() if name not in places])


def _with_contents(message: Any, sent: Sequence[Tensor]) -> Message:
    """The message with the contents of these, which are not copied in a large one."""
    if sum([tensor.nbytes for tensor in sent]) < _LARGE:
        message.raw_input_contents.extend([bytes(one.buffer) for one in sent])
        return bytes(message.SerializeToString())
    parts: list[Buffer] = [message.SerializeToString()]
    for tensor in sent:
        parts += (_RAW_INPUT + _written(tensor.nbytes), tensor.buffer)
    return tuple(parts)


def _set_place(target: Any, region: str, at: int, size: int) -> None:
    target["shared_memory_region"].string_param = region
    target["shared_memory_offset"].int64_param = at
    target["shared_memory_byte_size"].int64_param = size


def _set_fields(target: Any, request: InferenceRequest) -> None:
    if request.correlation_id:
        if isinstance(request.correlation_id, int):
            target["sequence_id"].int64_param = request.correlation_id
        else:
            target["sequence_id"].string_param = request.correlation_id
        target["sequence_start"].bool_param = request.sequence_start
        target["sequence_end"].bool_param = request.sequence_end
    if request.priority:
        target["priority"].int64_param = request.priority
    if request.timeout:
        target["timeout"].int64_param = request.timeout


def _set_parameters(target: Any, parameters: Mapping[str, ParameterValue]) -> None:
    for name, value in parameters.items():
        if isinstance(value, bool):
            target[name].bool_param = value
        elif isinstance(value, int):
            target[name].int64_param = value
        elif isinstance(value, float):
            target[name].double_param = value
        else:
            target[name].string_param = value


def decode_streamed(data: Received) -> InferenceResponse:
    """A response of a stream; raises the error that it is, and else as `decode_response`."""
    if len(data) >= _LARGE and data[0] == _INFER_RESPONSE:
        size, at = _varint(memoryview(data), 1)
        if at + size == len(data):
            return decode_response(memoryview(data)[at:])
    answer = pb.ModelStreamInferResponse.FromString(bytes(data))
    if answer.error_message:
        raise InferenceError(answer.error_message)
    return _decode(answer.infer_response, answer.infer_response.raw_output_contents)


def decode_response(data: Received) -> InferenceResponse:
    """A response; raises `InternalError` for one whose tensors are not what they are said to be.

    Raises protobuf's `DecodeError` for what is no message. Tensors of a large one are views of it.
    """
    if len(data) < _LARGE:
        message = pb.ModelInferResponse.FromString(bytes(data))
        return _decode(message, message.raw_output_contents)
    head, raw = _split(memoryview(data).toreadonly())
    return _decode(pb.ModelInferResponse.FromString(head), raw)


def _split(view: memoryview) -> tuple[bytes, list[memoryview]]:
    """A response without its raw contents, and these."""
    head: list[memoryview] = []
    raw: list[memoryview] = []
    at = 0
    while at < len(view):
        begin = at
        key, at = _varint(view, at)
        if key & 7 != _DELIMITED:  # there is no other kind of field in it
            raise DecodeError("a field of another kind")
        size, at = _varint(view, at)
        end = at + size
        if end > len(view):
            raise DecodeError("a field is cut short")
        if key == _RAW_OUTPUT:
            raw.append(view[at:end])
        else:
            head.append(view[begin:end])
        at = end
    return b"".join(head), raw


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(view):
            raise DecodeError("a number is cut short")
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise DecodeError("a number is too long")


def _written(value: int) -> bytes:
    """A number as protobuf writes it."""
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _decode(message: pb.ModelInferResponse, raw: Sequence[Received]) -> InferenceResponse:
    outputs: dict[str, Tensor] = {}
    count = len(raw)
    if count and count != len(message.outputs):
        raise InternalError(
            f"the remote answered with {count} raw contents for {len(message.outputs)} outputs"
        )
    for index, output in enumerate(message.outputs):
        datatype = _DATATYPES.get(output.datatype)
        if datatype is None:
            raise InternalError(
                f"output '{output.name}' of the remote has the unknown datatype"
                f" '{output.datatype[:50]}'"
            )
        data = raw[index] if count else _typed_contents(output, datatype)
        shape = tuple(output.shape)
        _check_size(output.name, datatype, shape, data)
        outputs[output.name] = Tensor(datatype, shape, data)
    final = False
    parameters: dict[str, ParameterValue] = {}
    if message.parameters:
        for name, value in message.parameters.items():
            if name == _FINAL:
                final = value.bool_param
            else:
                parameters[name] = _parameter(value)
    return InferenceResponse(outputs, parameters, final)


def _parameter(value: Any) -> ParameterValue:
    chosen = value.WhichOneof("parameter_choice")
    found: ParameterValue = getattr(value, chosen) if chosen else ""
    return found


def _check_size(name: str, datatype: DataType, shape: tuple[int, ...], data: Received) -> None:
    elements = 1
    for dimension in shape:
        if dimension < 0:
            raise InternalError(f"output '{name}' of the remote has the shape {list(shape)}")
        elements *= dimension
    if datatype is not DataType.BYTES:
        if elements * datatype.itemsize != len(data):
            raise _wrong_size(name, datatype, shape, f"{len(data)} bytes")
    elif len(data) <= _COUNTED:
        try:
            found = len(decode_elements(data, f" for output '{name}' of the remote"))
        except InvalidRequestError as error:
            raise InternalError(error.message) from error
        if found != elements:
            raise _wrong_size(name, datatype, shape, f"{found} strings")


def _wrong_size(name: str, datatype: DataType, shape: tuple[int, ...], found: str) -> InternalError:
    return InternalError(
        f"output '{name}' of the remote is {datatype.value} of shape {list(shape)}, but holds"
        f" {found}"
    )


def _typed_contents(output: Any, datatype: DataType) -> bytes:
    """An output in the protocol's typed fields, which some servers use."""
    field = _CONTENTS.get(datatype)
    if field is None:
        raise InternalError(f"output '{output.name}' of the remote has no raw contents")
    values = getattr(output.contents, field)
    if datatype is DataType.BYTES:
        return bytes(Tensor.from_strings(values).buffer)
    try:
        return np.array(values, datatype.numpy).tobytes()
    except (OverflowError, ValueError) as error:
        raise InternalError(f"output '{output.name}' of the remote: {error}") from error
