"""Codec of trace and log settings (contract G-20, G-21)."""

from __future__ import annotations

from collections.abc import Mapping, Sized

from penstock.core.errors import InvalidRequestError
from penstock.protocol import grpc_service_pb2 as pb
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
