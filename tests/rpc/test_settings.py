"""Trace and log settings over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from fakes import KeptLog
from penstock.protocol import grpc_service_pb2 as pb
from penstock.server.control_policy import ControlPolicy
from penstock.settings import Feature, GrpcSettings, Restriction, TraceSettings
from penstock.tracing.settings import TraceControl
from rpc.serving import Client, connected, open_models, write_models

_OPEN = ControlPolicy(trace=True, log=True)


@asynccontextmanager
async def settable(
    folder: Path, policy: ControlPolicy, settings: GrpcSettings
) -> AsyncIterator[Client]:
    trace = TraceControl(TraceSettings(file="t.json"), tensors=True)
    models = write_models(folder)
    async with (
        open_models(
            models, explicit=True, trace=trace, log=KeptLog(), control_policy=policy
        ) as server,
        connected(server, settings) as client,
    ):
        await server.load("identity", {})
        yield client


@pytest.fixture
async def client(local: GrpcSettings, tmp_path: Path) -> AsyncIterator[Client]:
    async with settable(tmp_path, _OPEN, local) as client:
        yield client


def traced(model: str = "", **settings: list[str]) -> pb.TraceSettingRequest:
    message = pb.TraceSettingRequest(model_name=model)
    for name, values in settings.items():
        message.settings[name].value.extend(values)
    return message


def values(answer: pb.TraceSettingResponse) -> dict[str, list[str]]:
    return {name: list(setting.value) for name, setting in answer.settings.items()}


def logged(**settings: Any) -> pb.LogSettingsRequest:
    fields = {bool: "bool_param", int: "uint32_param", str: "string_param"}
    message = pb.LogSettingsRequest()
    for name, value in settings.items():
        setattr(message.settings[name], fields[type(value)], value)
    return message


@pytest.mark.contract("G-20", "X-13")
async def test_trace_settings_are_kept_for_all_and_for_a_model(client: Client) -> None:
    await client.call("TraceSetting", traced(trace_level=["TIMESTAMPS"], trace_rate=["5"]))
    of_model = await client.call("TraceSetting", traced("identity", trace_rate=["7"]))
    for_all = await client.call("TraceSetting")
    assert values(of_model) == {**values(for_all), "trace_rate": ["7"]}
    assert values(for_all) == {
        "trace_level": ["TIMESTAMPS"],
        "trace_rate": ["5"],
        "trace_count": ["-1"],
        "log_frequency": ["0"],
        "trace_file": ["t.json"],
        "trace_mode": ["triton"],
    }


@pytest.mark.contract("X-14")
async def test_trace_settings_of_an_unknown_model_are_refused(client: Client) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.call("TraceSetting", traced("nope"))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details() == "Request for unknown model : nope"


@pytest.mark.contract("T-19")
async def test_trace_settings_of_a_model_outlive_its_unload(client: Client) -> None:
    """As in the real server; while it is not loaded it is unknown."""
    await client.call("TraceSetting", traced("identity", trace_rate=["7"]))
    await client.call(
        "RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="identity")
    )
    with pytest.raises(grpc.aio.AioRpcError, match="Request for unknown model : identity"):
        await client.call("TraceSetting", traced("identity"))
    await client.call("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="identity"))
    answer = await client.call("TraceSetting", traced("identity"))
    assert values(answer)["trace_rate"] == ["7"]


@pytest.mark.contract("G-21", "X-15")
async def test_log_settings_are_kept(client: Client) -> None:
    changes = logged(log_info=False, log_verbose_level=2, log_format="ISO8601", unknown=True)
    answer = await client.call("LogSettings", changes)
    encoded = {
        name: getattr(v, str(v.WhichOneof("parameter_choice")))
        for name, v in answer.settings.items()
    }
    assert encoded == {
        "log_file": "",
        "log_info": False,
        "log_warning": True,
        "log_error": True,
        "log_verbose_level": 2,
        "log_format": "ISO8601",
    }


@pytest.mark.contract("L-06")
@pytest.mark.parametrize("name", ["json", "ISO8601", "default"])
async def test_each_format_of_the_log_can_be_chosen(client: Client, name: str) -> None:
    answer = await client.call("LogSettings", logged(log_format=name))
    assert answer.settings["log_format"].string_param == name


@pytest.mark.contract("X-15")
@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ({"log_info": 1}, "INVALID_ARGUMENT", "expect boolean for 'log_info'"),
        ({"log_verbose_level": "1"}, "INVALID_ARGUMENT", "expect int32 for 'log_verbose_level'"),
        ({"log_format": True}, "INVALID_ARGUMENT", "expect string for 'log_format'"),
        ({"log_format": "x"}, "INVALID_ARGUMENT", "invalid argument for log_format, got: x"),
        (
            {"log_file": True},
            "UNIMPLEMENTED",
            "log file location can not be updated through network protocol",
        ),
    ],
)
async def test_log_settings_that_cannot_be_are_refused(
    client: Client, settings: dict[str, Any], code: str, text: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.call("LogSettings", logged(**settings))
    assert (refused.value.code().name, refused.value.details()) == (code, text)


async def test_a_level_too_high_wraps_around_to_none(client: Client) -> None:
    answer = await client.call("LogSettings", logged(log_verbose_level=2**32 - 1))
    assert answer.settings["log_verbose_level"].uint32_param == 0


_WRITES = [
    ("TraceSetting", traced(trace_rate=["5"]), "--allow-trace-control=true"),
    ("TraceSetting", traced("identity", trace_rate=[]), "--allow-trace-control=true"),
    ("LogSettings", logged(log_error=False), "--allow-log-control=true"),
]


@pytest.mark.parametrize(("name", "message", "flag"), _WRITES)
async def test_settings_are_not_changed_unless_that_is_allowed(
    local: GrpcSettings, tmp_path: Path, name: str, message: Any, flag: str
) -> None:
    async with settable(tmp_path, ControlPolicy(), local) as client:
        before = await client.call(name)
        with pytest.raises(grpc.aio.AioRpcError, match=flag) as refused:
            await client.call(name, message)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert await client.call(name) == before


@pytest.mark.parametrize(("name", "message", "_flag"), _WRITES)
async def test_whoever_knows_the_secret_of_a_group_changes_its_settings(
    local: GrpcSettings, tmp_path: Path, name: str, message: Any, _flag: str
) -> None:
    secret = Restriction(frozenset({Feature.TRACE, Feature.LOGGING}), "key", "secret")
    guarded = replace(local, restrictions=(secret,))
    header = (("triton-grpc-protocol-key", "secret"),)
    async with settable(tmp_path, ControlPolicy(), guarded) as client:
        with pytest.raises(grpc.aio.AioRpcError, match="restricted"):
            await client.call(name, message)
        answer = await client.call(name, message, metadata=header)
        assert answer.settings
