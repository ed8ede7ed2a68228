"""Trace and log settings over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from fakes import KeptLog
from gateway.serving import LOCAL, connected, serving
from penstock.server.control_policy import ControlPolicy
from penstock.settings import Feature, HttpSettings, Restriction, TraceSettings
from penstock.tracing.settings import TraceControl
from rpc.serving import write_models

_TRACE = (
    '{"trace_level":["OFF"],"trace_rate":"1000","trace_count":"-1","log_frequency":"0",'
    '"trace_file":"t.json","trace_mode":"triton"}'
)
_LOG = (
    '{"log_file":"","log_info":true,"log_warning":true,"log_error":true,'
    '"log_verbose_level":0,"log_format":"default"}'
)


_OPEN = ControlPolicy(trace=True, log=True)


@asynccontextmanager
async def settable(
    folder: Path, policy: ControlPolicy, http: HttpSettings = LOCAL
) -> AsyncIterator[httpx.AsyncClient]:
    trace = TraceControl(TraceSettings(file="t.json"), tensors=True)
    models = write_models(folder)
    async with (
        serving(models, ["identity"], trace=trace, log=KeptLog(), control_policy=policy) as server,
        connected(server, http) as client,
    ):
        yield client


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with settable(tmp_path, _OPEN) as client:
        yield client


@pytest.mark.contract("H-11", "H-12")
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v2/trace/setting", _TRACE),
        ("/v2/models/identity/trace/setting", _TRACE),
        ("/v2/logging", _LOG),
    ],
)
async def test_settings_are_listed_in_order(
    client: httpx.AsyncClient, path: str, text: str
) -> None:
    assert (await client.get(path)).text == text


async def test_a_setting_of_a_model_is_cleared_with_null(client: httpx.AsyncClient) -> None:
    path = "/v2/models/identity/trace/setting"
    answer = await client.post(path, json={"trace_rate": "5", "trace_level": ["TENSORS"]})
    assert (answer.json()["trace_rate"], answer.json()["trace_level"]) == ("5", ["TENSORS"])
    answer = await client.post(path, json={"trace_rate": None, "trace_level": None})
    assert answer.text == _TRACE


async def test_log_settings_are_changed(client: httpx.AsyncClient) -> None:
    await client.post("/v2/logging", json={"log_info": False, "log_error": None, "other": 1})
    assert (await client.get("/v2/logging")).json()["log_info"] is False
    for name in ("json", "ISO8601", "default"):
        answer = await client.post("/v2/logging", json={"log_format": name})
        assert answer.json()["log_format"] == name


@pytest.mark.contract("X-14", "X-15")
@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("trace/setting", '{"trace_rate":9}', 500, "attempt to access JSON non-string as string"),
        ("trace/setting", '{"trace_rate":"x"}', 400, "Unable to parse 'trace_rate', got: x"),
        (
            "trace/setting",
            '{"trace_file":null}',
            501,
            "trace file location can not be updated through network protocol",
        ),
        (
            "trace/setting",
            '{"trace_level":"OFF"}',
            500,
            "attempt to access JSON non-array as array",
        ),
        ("models/nope/trace/setting", "{", 400, "Request for unknown model : nope"),
        ("logging", '{"log_info":1}', 500, "attempt to access JSON non-boolean as boolean"),
        (
            "logging",
            '{"log_verbose_level":-1}',
            500,
            "attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            "logging",
            '{"log_format":"nope"}',
            503,
            "invalid argument for --log_format, got: nope",
        ),
        (
            "logging",
            '{"log_file":1}',
            501,
            "log file location can not be updated through network protocol",
        ),
        (
            "logging",
            "",
            500,
            "failed to parse the request JSON buffer: The document is empty. at 0",
        ),
    ],
)
async def test_fixed_settings_are_refused(
    client: httpx.AsyncClient, path: str, body: str, status: int, text: str
) -> None:
    answer = await client.post(f"/v2/{path}", content=body)
    assert (answer.status_code, answer.json()) == (status, {"error": text})


_WRITES = [
    ("/v2/trace/setting", {"trace_rate": "5"}, "--allow-trace-control=true"),
    ("/v2/models/identity/trace/setting", {"trace_rate": "5"}, "--allow-trace-control=true"),
    ("/v2/logging", {"log_error": False}, "--allow-log-control=true"),
]


@pytest.mark.parametrize(("path", "body", "flag"), _WRITES)
async def test_settings_are_not_changed_unless_that_is_allowed(
    tmp_path: Path, path: str, body: dict[str, object], flag: str
) -> None:
    async with settable(tmp_path, ControlPolicy()) as client:
        before = (await client.get(path)).text
        answer = await client.post(path, json=body)
        assert answer.status_code == 501
        assert flag in answer.json()["error"]
        assert (await client.get(path)).text == before


@pytest.mark.parametrize(("path", "body", "_flag"), _WRITES)
async def test_whoever_knows_the_secret_of_a_group_changes_its_settings(
    tmp_path: Path, path: str, body: dict[str, object], _flag: str
) -> None:
    secret = Restriction(frozenset({Feature.TRACE, Feature.LOGGING}), "Key", "secret")
    http = replace(LOCAL, restrictions=(secret,))
    async with settable(tmp_path, ControlPolicy(), http) as client:
        assert (await client.post(path, json=body)).status_code == 403
        answer = await client.post(path, json=body, headers={"Key": "secret"})
        assert answer.json().items() >= body.items()
