"""Encoder and decoder of the protocol's protobuf messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from google.protobuf import json_format

from penstock.core.tensor import DataType, Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock_client.client.errors import InvalidArgumentError
from penstock_client.client.request import InferRequest, Parameter, Result
from penstock_client.client.shared_memory import SharedTensor
from penstock_client.reading.views import ModelMetadata, ModelStatistics, TensorMetadata

FINAL = "triton_final_response"
_WANTS_FINAL = "triton_enable_empty_final_response"
_CONTENTS = {
    **dict.fromkeys((DataType.INT8, DataType.INT16, DataType.INT32), "int_contents"),
    **dict.fromkeys((DataType.UINT8, DataType.UINT16, DataType.UINT32), "uint_contents"),
}
"""Fields of typed contents that several datatypes share; others have fields of their names."""


def encode(request: InferRequest, *, streamed: bool = False) -> pb.ModelInferRequest:
    """The message of a request; the end of a streamed one is told by an empty response."""
    message = pb.ModelInferRequest(
        model_name=request.model, model_version=request.version, id=request.id
    )
    _set_parameters(message.parameters, request.parameters)
    if streamed:
        message.parameters[_WANTS_FINAL].bool_param = True
    for name, tensor in request.inputs.items():
        added = message.inputs.add(name=name, datatype=tensor.datatype, shape=tensor.shape)
        if isinstance(tensor, SharedTensor):
            _set_parameters(added.parameters, place_parameters(tensor))
        else:
            message.raw_input_contents.append(bytes(tensor.buffer))
    for name, place in request.outputs.items():
        wanted = message.outputs.add(name=name)
        if place is not None:
            _set_parameters(wanted.parameters, place_parameters(place))
    return message


def place_parameters(place: SharedTensor) -> dict[str, Parameter]:
    """The parameters of a tensor that is in shared memory."""
    return {
        "shared_memory_region": place.memory.name,
        "shared_memory_byte_size": place.size,
        "shared_memory_offset": place.offset,
    }


def decode(message: pb.ModelInferResponse, request: InferRequest) -> Result:
    """The result in a message; outputs in shared memory are looked at there."""
    outputs: dict[str, Tensor] = {}
    for index, output in enumerate(message.outputs):
        place = request.outputs.get(output.name)
        if place is not None:
            outputs[output.name] = place.holding(output.datatype, output.shape)
        else:
            raw = message.raw_output_contents
            data = raw[index] if raw else _typed_contents(output)
            outputs[output.name] = Tensor(DataType(output.datatype), output.shape, data)
    return Result(
        message.model_name,
        message.model_version,
        message.id,
        {name: _parameter(value) for name, value in message.parameters.items()},
        outputs,
    )


def _typed_contents(output: Any) -> bytes:
    """The bytes of an output in the protocol's typed fields, which Triton's servers do not use."""
    datatype = DataType(output.datatype)
    values = getattr(output.contents, _CONTENTS.get(datatype, f"{datatype.lower()}_contents"))
    if datatype is DataType.BYTES:
        return bytes(Tensor.from_strings(values).buffer)
    return np.array(values, datatype.numpy).tobytes()


def is_final(message: pb.ModelInferResponse) -> bool:
    """Whether this is the last response of its request."""
    return bool(message.parameters[FINAL].bool_param) if FINAL in message.parameters else False


def metadata_of(message: pb.ModelMetadataResponse) -> ModelMetadata:
    """The metadata of a model."""
    return ModelMetadata(
        message.name,
        tuple(message.versions),
        message.platform,
        tuple(_tensors(message.inputs)),
        tuple(_tensors(message.outputs)),
    )


def statistics_of(model: Any) -> ModelStatistics:
    """The counters of a model version."""
    one = model.inference_stats
    return ModelStatistics(
        name=model.name,
        version=model.version,
        inferences=model.inference_count,
        executions=model.execution_count,
        succeeded=one.success.count,
        failed=one.fail.count,
        request_ns=one.success.ns,
        queue_ns=one.queue.ns,
        input_ns=one.compute_input.ns,
        infer_ns=one.compute_infer.ns,
        output_ns=one.compute_output.ns,
        cache_hits=one.cache_hit.count,
        cache_misses=one.cache_miss.count,
        last_inference_ms=model.last_inference,
    )


def as_dict(message: Any) -> dict[str, Any]:
    """The fields of a message that are set, by their names; enumerations are names too.

    Unlike protobuf's own JSON form, 64-bit integers are numbers.
    """
    return {field.name: _plain(field, value) for field, value in message.ListFields()}


def alias_of(message: Any) -> dict[str, Any]:
    """An alias as HTTP shows it, where its definition is not apart."""
    told = as_dict(message)
    return {**told, **told.pop("definition", {})}


def define(message: Any, definition: Mapping[str, Any]) -> None:
    """Write a definition into a message; raises `InvalidArgumentError` for what does not fit."""
    try:
        json_format.ParseDict(dict(definition), message)
    except (json_format.ParseError, TypeError) as error:
        raise InvalidArgumentError(f"this is no definition of an alias: {error}") from None


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {str(key): _one(inner, value[key]) for key in value}
    if isinstance(value, str | bytes | bool | int | float) or hasattr(value, "ListFields"):
        return _one(field, value)
    return [_one(field, each) for each in value]


def _one(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return as_dict(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return value


def _tensors(tensors: Iterable[Any]) -> Iterable[TensorMetadata]:
    return (TensorMetadata(t.name, t.datatype, tuple(t.shape)) for t in tensors)


def _set_parameters(target: Any, parameters: Mapping[str, Parameter]) -> None:
    for name, value in parameters.items():
        if isinstance(value, bool):
            target[name].bool_param = value
        elif isinstance(value, int):
            target[name].int64_param = value
        elif isinstance(value, float):
            target[name].double_param = value
        else:
            target[name].string_param = value


def _parameter(message: Any) -> Parameter:
    chosen = message.WhichOneof("parameter_choice")
    value: Parameter = getattr(message, chosen) if chosen else ""
    return value
