"""Requests and responses of KServe v2, from core values to protobuf and back."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import prod
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
# The keys of fields: 3 and 7 of a request, 6 of a response, 2 of a streamed one.
_ID, _RAW_INPUT, _RAW_OUTPUT, _INFER_RESPONSE = b"\x1a", b"\x3a", b"\x32", b"\x12"
_DELIMITED = 2
_NOWHERE: Mapping[str, tuple[int, int]] = {}
_REMEMBERED, _LENGTHS, _LONGEST = 256, 8, 1024
"""Beginnings of messages that are kept, their different lengths, and bytes of the longest."""
_COUNTED = 64 << 10
"""Bytes of strings that are counted before they are handed on."""


class RequestEncoder:
    """Serializes requests for the remote's model, all contents raw.

    Contents of a large one are not copied. What stands before them is cached, since clients send
    the same request again and again with other tensors.
    """

    def __init__(self, model: str, version: str, *, streamed: bool) -> None:
        self._model = model
        self._version = version
        self._streamed = streamed
        self._heads: dict[Hashable, bytes] = {}

    def encode(self, request: InferenceRequest) -> Message:
        """The message of a request. Its outputs are asked for whole: classes, and places in a
        client's memory, are made here.
        """
        inputs = request.inputs
        if request.parameters or request.correlation_id or request.priority or request.timeout:
            return _with_contents(self._head(request, request.id), inputs.values())
        key = request.requested_outputs, *[(n, t.datatype, t.shape) for n, t in inputs.items()]
        head = self._heads.get(key)
        if head is None:
            head = self._head(request, "")
            if len(self._heads) >= _REMEMBERED:
                self._heads.clear()
            if len(head) <= _LONGEST:
                self._heads[key] = head
        if request.id:
            text = request.id.encode()
            head += _ID + _written(len(text)) + text
        return _with_contents(head, inputs.values())

    def encode_lent(
        self, request: InferenceRequest, region: str, places: Mapping[str, tuple[int, int]]
    ) -> Message:
        """The same where inputs with `places` are in a `region` of shared memory: where each
        begins, and its bytes.
        """
        sent = [tensor for name, tensor in request.inputs.items() if name not in places]
        return _with_contents(self._head(request, request.id, region, places), sent)

    def _head(
        self,
        request: InferenceRequest,
        id: str,
        region: str = "",
        places: Mapping[str, tuple[int, int]] = _NOWHERE,
    ) -> bytes:
        """All but the contents."""
        message = pb.ModelInferRequest(model_name=self._model, model_version=self._version, id=id)
        for name, tensor in request.inputs.items():
            added = message.inputs.add(
                name=name, datatype=tensor.datatype.value, shape=tensor.shape
            )
            if name in places:
                _set_place(added.parameters, region, *places[name])
        for name in request.requested_outputs:
            message.outputs.add(name=name)
        _set_parameters(message.parameters, request.parameters)
        _set_fields(message.parameters, request)
        if self._streamed:
            message.parameters[_EMPTY_FINAL].bool_param = True
        return bytes(message.SerializeToString())


def _with_contents(head: bytes, sent: Iterable[Tensor]) -> Message:
    """The message with the contents of these, which are not copied in a large one."""
    parts: list[Buffer] = [head]
    whole = 0
    for tensor in sent:
        buffer, size = tensor.buffer, tensor.nbytes
        whole += size
        parts += (_RAW_INPUT + _written(size), buffer)
    return b"".join(parts) if whole < _LARGE else tuple(parts)


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


class ResponseDecoder:
    """Reads responses; one that begins as another did is only compared with that.

    Responses of a model differ, as a rule, in the contents of their tensors alone, which stand at
    the end. Those to a request with an id repeat it, so that each such request has a decoder `of`
    its own. Tensors of a large response are views of it.
    """

    def __init__(self, *, streamed: bool) -> None:
        self._streamed = streamed
        self._known: dict[int, dict[bytes, _Beginning]] = {}  # by their lengths
        self._count = self._misses = 0

    def of(self, request_id: str) -> ResponseDecoder:
        """The decoder of a request's responses."""
        return ResponseDecoder(streamed=self._streamed) if request_id else self

    def decode(self, data: Received) -> InferenceResponse:
        """A response, final where it is no stream's; raises the error that it is.

        Raises `InternalError` for one whose tensors are not what they are said to be, and
        protobuf's `DecodeError` for what is no message.
        """
        if len(data) >= _LARGE:
            return self._decode_large(memoryview(data).toreadonly())
        data = bytes(data)
        at = 0
        if self._streamed:
            at = _response_at(data)
            if not at:
                return _decode_single(data)
        for length, alike in self._known.items():
            beginning = alike.get(data[at : at + length])
            if beginning is not None:
                raw = _raw_from(data, at + length, len(beginning.outputs))
                if raw is not None:
                    return beginning.response(raw)
        return self._decode_anew(data[at:])

    def _decode_large(self, view: memoryview) -> InferenceResponse:
        if self._streamed:
            at = _response_at(view)
            if not at:
                return _decode_single(bytes(view))
            view = view[at:]
        head, raw = _split(view)
        message = pb.ModelInferResponse.FromString(head)
        return _decode(message, raw, final=not self._streamed)

    def _decode_anew(self, data: bytes) -> InferenceResponse:
        """Parse a response; the beginning of the second one that is not known is kept."""
        message = pb.ModelInferResponse.FromString(data)
        raw = message.raw_output_contents
        response = _decode(message, raw, final=not self._streamed)
        self._misses += 1
        length = len(data) - sum([1 + len(_written(len(one))) + len(one) for one in raw])
        repeated = self._misses > 1 and raw and length <= _LONGEST
        if repeated and _raw_from(data, length, len(raw)) == raw:
            self._keep(data[:length], _Beginning(message, final=not self._streamed))
        return response

    def _keep(self, data: bytes, beginning: _Beginning) -> None:
        full = self._count >= _REMEMBERED
        if full or (len(self._known) >= _LENGTHS and len(data) not in self._known):
            self._known.clear()
            self._count = 0
        self._count += 1
        self._known.setdefault(len(data), {})[data] = beginning


def _response_at(data: Received) -> int:
    """Where the response begins in a message of a stream; 0 if there is anything besides it."""
    if data[:1] != _INFER_RESPONSE:
        return 0
    size, at = _varint(data, 1)
    return at if at + size == len(data) else 0


def _decode_single(data: bytes) -> InferenceResponse:
    """The response in a message of a stream; raises the error that it is."""
    answer = pb.ModelStreamInferResponse.FromString(data)
    if answer.error_message:
        raise InferenceError(answer.error_message)
    message = answer.infer_response
    return _decode(message, message.raw_output_contents, final=False)


def _raw_from(data: bytes, at: int, count: int) -> list[bytes] | None:
    """The contents of so many outputs, from a place to the end; `None` if it is anything else."""
    raw = []
    for _ in range(count):
        if data[at : at + 1] != _RAW_OUTPUT:
            return None
        size, at = _varint(data, at + 1)
        raw.append(data[at : at + size])
        at += size
    return raw if at == len(data) else None


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
        if key == _RAW_OUTPUT[0]:
            raw.append(view[at:end])
        else:
            head.append(view[begin:end])
        at = end
    return b"".join(head), raw


def _varint(view: Received, at: int) -> tuple[int, int]:
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


class _Beginning:
    """A response without the contents of its outputs."""

    __slots__ = ("_final", "_parameters", "outputs")

    def __init__(self, message: pb.ModelInferResponse, *, final: bool) -> None:
        self.outputs = [_Output(one) for one in message.outputs]
        given = message.parameters
        self._final = final or (_FINAL in given and given[_FINAL].bool_param)
        self._parameters = {name: _parameter(one) for name, one in given.items() if name != _FINAL}

    def response(self, raw: Sequence[Received]) -> InferenceResponse:
        """The response with these contents."""
        tensors = {
            output.name: output.tensor(data) for output, data in zip(self.outputs, raw, strict=True)
        }
        return InferenceResponse(tensors, self._parameters, self._final)


class _Output:
    """An output without its contents."""

    __slots__ = ("_datatype", "_elements", "_shape", "_size", "name")

    def __init__(self, given: Any) -> None:
        datatype = _DATATYPES.get(given.datatype)
        if datatype is None:
            raise InternalError(
                f"output '{given.name}' of the remote has the unknown datatype"
                f" '{given.datatype[:50]}'"
            )
        self.name = given.name
        self._datatype = datatype
        self._shape = tuple(given.shape)
        if any(dimension < 0 for dimension in self._shape):
            raise InternalError(
                f"output '{self.name}' of the remote has the shape {list(self._shape)}"
            )
        self._elements = prod(self._shape)
        self._size = -1 if datatype is DataType.BYTES else self._elements * datatype.itemsize

    def tensor(self, data: Received) -> Tensor:
        """The output with these contents; raises `InternalError` if they do not fit."""
        if self._size != len(data):
            self._check(data)
        return Tensor(self._datatype, self._shape, data)

    def _check(self, data: Received) -> None:
        if self._datatype is not DataType.BYTES:
            raise self._wrong_size(f"{len(data)} bytes")
        if len(data) <= _COUNTED:
            try:
                found = len(decode_elements(data, f" for output '{self.name}' of the remote"))
            except InvalidRequestError as error:
                raise InternalError(error.message) from error
            if found != self._elements:
                raise self._wrong_size(f"{found} strings")

    def _wrong_size(self, found: str) -> InternalError:
        return InternalError(
            f"output '{self.name}' of the remote is {self._datatype.value} of shape"
            f" {list(self._shape)}, but holds {found}"
        )


def _decode(
    message: pb.ModelInferResponse, raw: Sequence[Received], *, final: bool
) -> InferenceResponse:
    outputs = message.outputs
    if raw and len(raw) != len(outputs):
        raise InternalError(
            f"the remote answered with {len(raw)} raw contents for {len(outputs)} outputs"
        )
    beginning = _Beginning(message, final=final)
    return beginning.response(raw or [_typed_contents(one) for one in outputs])


def _parameter(value: Any) -> ParameterValue:
    chosen = value.WhichOneof("parameter_choice")
    found: ParameterValue = getattr(value, chosen) if chosen else ""
    return found


def _typed_contents(output: Any) -> bytes:
    """An output in the protocol's typed fields, which some servers use."""
    datatype = _DATATYPES[output.datatype]
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
