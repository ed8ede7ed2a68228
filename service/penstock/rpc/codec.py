"""Between protobuf messages and core values; texts are those of the real server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from penstock.core.errors import InternalError, InvalidRequestError, UnsupportedError
from penstock.core.request import InferenceRequest, InferenceResponse, ParameterValue
from penstock.core.tensor import Buffer, DataType, Tensor, encode_elements
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.parameters import CLASSIFICATION, FINAL, class_count, split_parameters

_DATATYPES = {datatype.value: datatype for datatype in DataType if datatype is not DataType.INVALID}

_NARROW = {
    "int_contents": (DataType.INT32, (DataType.INT8, DataType.INT16)),
    "uint_contents": (DataType.UINT32, (DataType.UINT8, DataType.UINT16)),
}
_TYPED = {
    "bool_contents": DataType.BOOL,
    "int_contents": DataType.INT32,
    "int64_contents": DataType.INT64,
    "uint_contents": DataType.UINT32,
    "uint64_contents": DataType.UINT64,
    "fp32_contents": DataType.FP32,
    "fp64_contents": DataType.FP64,
    "bytes_contents": DataType.BYTES,
}
"""Fields of typed contents in the order in which they are looked at, and what they hold (G-27)."""


_PARAMETER_FIELDS = (
    (bool, "bool_param"),
    (int, "int64_param"),
    (float, "double_param"),
    (str, "string_param"),
)


def decode_request(
    message: pb.ModelInferRequest, deadline: float | None = None
) -> InferenceRequest:
    """The request of a message; raises `InvalidRequestError` for what no model would take."""
    fields, custom = split_parameters(message.parameters)
    outputs, classes = _decode_outputs(message.outputs)
    return InferenceRequest(
        model_name=message.model_name,
        model_version=message.model_version,
        id=message.id,
        inputs=_decode_inputs(message),
        requested_outputs=outputs,
        parameters=custom,
        deadline=deadline,
        classes=classes,
        **fields,
    )


def encode_response(
    request: InferenceRequest, version: str, response: InferenceResponse
) -> pb.ModelInferResponse:
    """The message of a response; always raw contents, one entry an output (G-25)."""
    message = pb.ModelInferResponse(
        model_name=request.model_name, model_version=version, id=request.id
    )
    _encode_parameters(message, response.parameters)
    wanted = request.requested_outputs
    for name, tensor in response.outputs.items():
        if wanted and name not in wanted:
            continue
        message.outputs.add(name=name, datatype=tensor.datatype.value, shape=tensor.shape)
        message.raw_output_contents.append(bytes(tensor.buffer))
    return message


def mark_final(message: pb.ModelInferResponse, final: bool) -> None:
    """Say whether this is the last response of its request (GP-06)."""
    message.parameters[FINAL].bool_param = final


def _encode_parameters(
    message: pb.ModelInferResponse, parameters: Mapping[str, ParameterValue]
) -> None:
    for key, value in parameters.items():
        field = next((name for kind, name in _PARAMETER_FIELDS if isinstance(value, kind)), "")
        try:
            setattr(message.parameters[key], field, value)
        except (AttributeError, ValueError) as error:  # what a backend answers may be anything
            raise InternalError(
                f"response parameter '{key}' is no boolean, 64-bit integer, float or string"
            ) from error


def _decode_outputs(
    outputs: Sequence[pb.ModelInferRequest.InferRequestedOutputTensor],
) -> tuple[tuple[str, ...], Mapping[str, int]]:
    """The names of the outputs, and how many classes are wanted of which (GP-10)."""
    classes: dict[str, int] = {}
    for output in outputs:
        if not output.parameters:
            continue
        if CLASSIFICATION in output.parameters:
            classes.setdefault(output.name, class_count(output.parameters[CLASSIFICATION]))
        if "shared_memory_region" in output.parameters:
            if CLASSIFICATION in output.parameters:
                raise InvalidRequestError(
                    "output can't set both 'shared_memory_region' and 'classification'"
                )
            raise UnsupportedError(
                f"parameter 'shared_memory_region' of output '{output.name}' is not supported yet"
            )
    return tuple(output.name for output in outputs), classes


def _decode_inputs(message: pb.ModelInferRequest) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    raw = iter(message.raw_input_contents)
    for tensor in message.inputs:
        if tensor.name in tensors:
            raise InvalidRequestError(
                f"[request id: {message.id or '<id_unknown>'}] input '{tensor.name}'"
                " already exists in request"
            )
        if "shared_memory_region" in tensor.parameters:
            raise UnsupportedError(
                f"parameter 'shared_memory_region' of input '{tensor.name}' is not supported yet"
            )
        tensors[tensor.name] = _decode_input(message, tensor, raw)
    if extra := sum(1 for _ in raw):
        raise InvalidRequestError(
            f"unexpected additional raw_input_contents for model '{message.model_name}':"
            f" {extra} more than inputs"
        )
    return tensors


def _decode_input(
    message: pb.ModelInferRequest,
    tensor: pb.ModelInferRequest.InferInputTensor,
    raw: Iterator[bytes],
) -> Tensor:
    datatype = _DATATYPES.get(tensor.datatype, DataType.INVALID)
    where = f"'{tensor.name}' for model '{message.model_name}'"
    buffer: Buffer | None
    if tensor.HasField("contents"):
        if message.raw_input_contents:
            raise InvalidRequestError(
                f"contents field must not be specified when using raw_input_contents for {where}"
            )
        buffer = _decode_contents(tensor.contents, datatype, where)
    else:
        buffer = next(raw, None)
    if buffer is None:
        raise InvalidRequestError(f"unable to find data for input tensor {where} in request.")
    return Tensor(datatype, tensor.shape, buffer)


def _decode_contents(contents: pb.InferTensorContents, datatype: DataType, where: str) -> Buffer:
    """The bytes of typed contents, of which just the field of the datatype may be set."""
    refused = f"unexpected explicit tensor data for input tensor {where}"
    buffer: Buffer = b""
    for field, holds in _TYPED.items():
        values = getattr(contents, field)
        if not values:
            continue
        wide, narrow = _NARROW.get(field, (holds, ()))
        if buffer:
            raise InvalidRequestError(f"{refused}, binary data was already supplied.")
        if datatype is not wide and datatype not in narrow:
            raise InvalidRequestError(
                f"{refused} of type '{wide.value}', expected datatype '{datatype.value}'"
            )
        buffer = _encode_values(values, wide, datatype)
    return buffer


def _encode_values(values: Sequence[bytes], wide: DataType, datatype: DataType) -> bytes:
    if datatype is DataType.BYTES:
        return encode_elements(values)
    # Values of a wide field are cut to the narrow datatype, as a C cast does.
    return np.array(values, dtype=wide.numpy).astype(datatype.numpy).tobytes()
