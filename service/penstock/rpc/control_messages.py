"""Messages of the control RPCs: settings of traces and logs (contract G-20, G-21), statistics, and
request parameters, those of the server itself and those for the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from typing import Any

from penstock.core.buffer import Buffer
from penstock.core.errors import InvalidRequestError, shortened
from penstock.core.request import ParameterValue, text_correlation_id
from penstock.header_forward import HeaderForward
from penstock.inflight.statistics import BatchStatistics, Duration, ResponseStatistics
from penstock.models.repository.override import CONFIG, FILE, VERSIONS, parse_versions
from penstock.models.serving.answers import ModelStatistics
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import RpcContext
from penstock.rpc.infer_layout import Span, fields_of
from penstock.server.log_control import LogValues
from penstock.tracing.settings import Texts

_KINDS = {
    "log_file": ("string_param", "string"),
    "log_info": ("bool_param", "boolean"),
    "log_warning": ("bool_param", "boolean"),
    "log_error": ("bool_param", "boolean"),
    "log_verbose_level": ("uint32_param", "int32"),
    "log_format": ("string_param", "string"),
}
"""By setting: its protobuf field, and the name of its type in error texts."""

_MOST = 256
"""The most settings of a request; there are ten."""


def decode_trace(message: pb.TraceSettingRequest) -> Texts:
    """The settings that a message changes; an empty list clears a setting."""
    _check_count(message.settings)
    return {name: list(setting.value) for name, setting in message.settings.items()}


def encode_trace(texts: Texts) -> pb.TraceSettingResponse:
    """The message with all settings."""
    message = pb.TraceSettingResponse()
    for name, values in texts.items():
        message.settings[name].value.extend(values)
    return message


def decode_log(settings: Mapping[str, pb.LogSettingsRequest.SettingValue]) -> LogValues:
    """The settings that a message changes; unknown ones are ignored."""
    _check_count(settings)
    values: dict[str, bool | int | str] = {}
    for name, (field, kind) in _KINDS.items():
        if name not in settings:
            continue
        if settings[name].WhichOneof("parameter_choice") != field and name != "log_file":
            raise InvalidRequestError(f"expect {kind} for '{name}'")
        values[name] = getattr(settings[name], field)
    return values


def _check_count(settings: Sized) -> None:
    if len(settings) > _MOST:
        raise InvalidRequestError(
            f"request has {len(settings)} settings, which exceeds the maximum allowed value of"
            f" {_MOST}"
        )


def encode_log(values: LogValues) -> pb.LogSettingsResponse:
    """The message with all settings."""
    message = pb.LogSettingsResponse()
    for name, value in values.items():
        setattr(message.settings[name], _KINDS[name][0], value)
    return message


def encode_statistics(model: ModelStatistics) -> pb.ModelStatistics:
    """The message of one model version."""
    counted = model.statistics
    return pb.ModelStatistics(
        name=model.name,
        version=model.version,
        last_inference=counted.last_inference,
        inference_count=counted.inference_count,
        execution_count=counted.execution_count,
        inference_stats=pb.InferStatistics(
            success=_duration(counted.success),
            fail=_duration(counted.fail),
            queue=_duration(counted.queue),
            compute_input=_duration(counted.compute_input),
            compute_infer=_duration(counted.compute_infer),
            compute_output=_duration(counted.compute_output),
            cache_hit=_duration(counted.cache_hit),
            cache_miss=_duration(counted.cache_miss),
        ),
        batch_stats=[_batch(size, batch) for size, batch in sorted(counted.batches.items())],
        response_stats={
            str(index): _response(response) for index, response in counted.responses.items()
        },
    )


def _batch(size: int, batch: BatchStatistics) -> pb.InferBatchStatistics:
    return pb.InferBatchStatistics(
        batch_size=size,
        compute_input=_duration(batch.compute_input),
        compute_infer=_duration(batch.compute_infer),
        compute_output=_duration(batch.compute_output),
    )


def _response(response: ResponseStatistics) -> pb.InferResponseStatistics:
    return pb.InferResponseStatistics(
        compute_infer=_duration(response.compute_infer),
        compute_output=_duration(response.compute_output),
        success=_duration(response.success),
        fail=_duration(response.fail),
        empty_response=_duration(response.empty_response),
        cancel=_duration(response.cancel),
    )


def _duration(duration: Duration) -> pb.StatisticDuration:
    return pb.StatisticDuration(count=duration.count, ns=duration.ns)


EMPTY_FINAL = "triton_enable_empty_final_response"
FINAL = "triton_final_response"
CLASSIFICATION = "classification"

_SMALL_LOAD = 64 << 10
"""Bytes of a load request that may hold anything."""
_MOST_LOAD_FIELDS = 8192
_LOAD_LEVELS = (0x1A, 0x12, 0)
"""The fields to descend into: parameters of the message, their values, and none of these."""

_CUSTOM_KINDS = ("bool_param", "int64_param", "string_param", "double_param")


def split_parameters(
    parameters: Mapping[str, pb.InferParameter],
) -> tuple[dict[str, Any], dict[str, ParameterValue]]:
    """Split parameters into fields of `InferenceRequest`, and those for the model."""
    fields: dict[str, Any] = {}
    custom: dict[str, ParameterValue] = {}
    for key, parameter in parameters.items():
        if read := _OWN.get(key):
            field, value = read(key, parameter)
            fields[field] = value
        elif key.startswith("triton_"):
            _check_reserved(key, parameter)
        else:
            custom[key] = _custom(key, parameter)
    return fields, custom


def wants_empty_final(parameters: Mapping[str, pb.InferParameter]) -> bool:
    """Whether the client wants an empty message for a final flag without data (GP-05)."""
    return EMPTY_FINAL in parameters and parameters[EMPTY_FINAL].bool_param


def class_count(parameter: pb.InferParameter) -> int:
    """The number of classes that an output's parameter requests (GP-10)."""
    if parameter.WhichOneof("parameter_choice") != "int64_param":
        raise _wrong_type(CLASSIFICATION, "int64_param")
    if parameter.int64_param <= 0:
        raise InvalidRequestError(f"invalid value for '{CLASSIFICATION}' parameter, expected >= 0")
    return parameter.int64_param


def parse_load(data: Buffer) -> pb.RepositoryModelLoadRequest:
    """Parse a load request, whose files may be large; other fields are few.

    Raises `InvalidRequestError` for more of these than one needs, and `DecodeError`.
    """
    if len(data) > _SMALL_LOAD:
        view = memoryview(data)
        spans, found = [(0, len(view))], 0
        for inner in _LOAD_LEVELS:
            deeper: list[Span] = []
            for span in spans:
                for tag, _, begin, end in fields_of(view, *span):
                    found += 1
                    if found > _MOST_LOAD_FIELDS:
                        raise InvalidRequestError(
                            f"load request has more than {_MOST_LOAD_FIELDS} fields"
                        )
                    if tag == inner:
                        deeper.append((begin, end))
            spans = deeper
    message: pb.RepositoryModelLoadRequest = pb.RepositoryModelLoadRequest.FromString(data)
    return message


def load_parameters(
    parameters: Mapping[str, pb.ModelRepositoryParameter],
) -> dict[str, str | bytes]:
    """Parameters of a load request: a configuration and files that override the repository's."""
    read: dict[str, str | bytes] = {}
    for key, parameter in parameters.items():
        if key not in (CONFIG, VERSIONS) and not key.startswith(FILE):
            raise InvalidRequestError(f"unrecognized load parameter '{key}'.")
        field = "bytes_param" if key.startswith(FILE) else "string_param"
        if parameter.WhichOneof("parameter_choice") != field:
            raise InvalidRequestError(
                f"invalid value type for load parameter '{key}', expected {field}."
            )
        read[key] = getattr(parameter, field)
    return read


def unload_versions(parameters: Mapping[str, pb.ModelRepositoryParameter]) -> frozenset[int]:
    """The versions to unload, Penstock's own; empty for all."""
    if VERSIONS not in parameters:
        return frozenset()
    if parameters[VERSIONS].WhichOneof("parameter_choice") != "string_param":
        raise _wrong_type(VERSIONS, "string_param.")
    return parse_versions(parameters[VERSIONS].string_param)


def unload_dependents(parameters: Mapping[str, pb.ModelRepositoryParameter]) -> bool:
    """Whether to unload the models that a model depends on too; other keys are ignored."""
    key = "unload_dependents"
    if key not in parameters:
        return False
    if parameters[key].WhichOneof("parameter_choice") != "bool_param":
        raise _wrong_type(key, "bool_param.")
    return parameters[key].bool_param


def _check_reserved(key: str, parameter: pb.InferParameter) -> None:
    if key != EMPTY_FINAL:
        raise InvalidRequestError(
            "parameter keys starting with 'triton_' are reserved for Triton usage. Only the"
            f" following keys starting with 'triton_' are allowed: {EMPTY_FINAL}"
        )
    _bool(key, parameter)


def _correlation_id(key: str, parameter: pb.InferParameter) -> tuple[str, int | str]:
    kind = parameter.WhichOneof("parameter_choice")
    if kind == "int64_param":
        return "correlation_id", parameter.int64_param % (1 << 64)  # they are unsigned
    if kind != "string_param":
        raise _wrong_type(key, "int64_param or string_param.")
    return "correlation_id", text_correlation_id(parameter.string_param)


def _flag(key: str, parameter: pb.InferParameter) -> tuple[str, bool]:
    return key, _bool(key, parameter)


def _bool(key: str, parameter: pb.InferParameter) -> bool:
    if parameter.WhichOneof("parameter_choice") != "bool_param":
        raise _wrong_type(key, "bool_param.")
    return parameter.bool_param


def _priority(key: str, parameter: pb.InferParameter) -> tuple[str, int]:
    kind = parameter.WhichOneof("parameter_choice")
    if kind == "uint64_param":
        return key, parameter.uint64_param
    if kind != "int64_param":
        raise _wrong_type(key, "int64_param or uint64_param.")
    if parameter.int64_param < 0:
        raise InvalidRequestError("invalid value for 'priority', expected value >= 0.")
    return key, parameter.int64_param


def _timeout(key: str, parameter: pb.InferParameter) -> tuple[str, int]:
    if parameter.WhichOneof("parameter_choice") != "int64_param":
        raise _wrong_type(key, "int64_param.")
    return key, parameter.int64_param


def _custom(key: str, parameter: pb.InferParameter) -> ParameterValue:
    kind = parameter.WhichOneof("parameter_choice")
    if kind not in _CUSTOM_KINDS:
        raise _wrong_type(key, "int64_param, bool_param, or string_param.")
    value: ParameterValue = getattr(parameter, kind)
    return value


def _wrong_type(key: str, expected: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"invalid value type for '{shortened(key)}' parameter, expected {expected}"
    )


_OWN: dict[str, Callable[[str, pb.InferParameter], tuple[str, Any]]] = {
    "sequence_id": _correlation_id,
    "sequence_start": _flag,
    "sequence_end": _flag,
    "priority": _priority,
    "timeout": _timeout,
}


def forwarded(forward: HeaderForward, context: RpcContext) -> Mapping[str, str]:
    """The text metadata that `forward` selects; raises `InvalidRequestError` for reserved names."""
    fields = context.metadata_fields
    return forward.select((name, value) for name, value in fields if isinstance(value, str))
