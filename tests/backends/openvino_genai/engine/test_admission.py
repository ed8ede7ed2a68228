"""Limits in tokens, and tenants, through the public doors, with the real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from backends.conftest import write_settings
from hosting.puppets import eventually
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.native.transport import open_native
from penstock.rpc.servicer import InferenceServicer
from penstock.scheduling.tokens.tenants import Tenants
from penstock.server.answers import ServerMetadata
from penstock.server.server import InferenceServer
from penstock.settings import GrpcSettings, HttpSettings
from penstock.system.reaper import Reaper

_FAIRNESS_ID = "x-gateway-inference-fairness-id"
_STREAM = "/v2/models/m/generate_stream"
_LONG = {"text_input": "Once upon a time", "stream": True, "max_tokens": 120, "ignore_eos": True}
_PARAMETER = 'parameters {{ key: "penstock.max_queued_{}" value: {{ string_value: "{}" }} }}\n'


def _write_model(model: Path, version: Path, limit: int) -> None:
    (model / "1").mkdir(parents=True)
    for file in version.iterdir():
        if file.name != "model.json":
            (model / "1" / file.name).symlink_to(file)
    write_settings(model / "1", max_num_seqs=1)
    text = 'backend: "openvino_genai"\n' + (_PARAMETER.format("requests", limit) if limit else "")
    (model / "config.pbtxt").write_text(text)


@asynccontextmanager
async def _serving(
    folder: Path, version: Path, limit: int = 0, tenants: Tenants | None = None
) -> AsyncIterator[InferenceServer]:
    """A server with the model, whose engine runs one sequence at a time."""
    _write_model(folder / "m", version, limit)
    files, reaper = ModelRepository([folder]), Reaper()
    fairness = None if tenants is None else tenants.policy
    lifecycle = ModelLifecycle(files, VersionBuilder(lambda _: {}, reaper, fairness=fairness))
    identity = ServerMetadata("triton", "2.51.0")
    server = InferenceServer(identity, files, lifecycle, explicit_control=True, tenants=tenants)
    try:
        for failure in (await server.start(["m"])).values():
            raise failure
        yield server
    finally:
        await server.stop(ExitDeadline(5))
        reaper.close()


@asynccontextmanager
async def _client(server: InferenceServer) -> AsyncIterator[httpx.AsyncClient]:
    settings = HttpSettings(address="127.0.0.1", port=0)
    async with (
        open_gateway(server, settings, ExitDeadline(2)) as port,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=60.0, verify=False
        ) as client,
    ):
        yield client


def _gauge(server: InferenceServer, name: str) -> float:
    return sum(one.value for one in server.gauges() if one.name == name)


async def _until(server: InferenceServer, name: str, value: float) -> None:
    await eventually(lambda: _gauge(server, name) == value)


async def _generate(client: httpx.AsyncClient, **headers: str) -> httpx.Response:
    return await client.post(_STREAM, json=_LONG, headers=headers)


async def test_full_queue_is_429_and_a_client_that_leaves_frees_its_place(
    tmp_path: Path, gguf_version: Path
) -> None:
    async with _serving(tmp_path, gguf_version, limit=1) as server, _client(server) as client:
        first = asyncio.ensure_future(_generate(client))
        await _until(server, "penstock_llm_queued_requests", 1)
        await _until(server, "penstock_llm_queued_requests", 0)  # it has its first token
        queued = asyncio.ensure_future(_generate(client))
        await _until(server, "penstock_llm_queued_requests", 1)
        refused = await _generate(client)
        assert refused.status_code == 429
        assert refused.json()["error"].startswith("the queue of 'm' is full: 1 requests, ")
        assert int(refused.headers["retry-after"]) >= 1
        assert _gauge(server, 'penstock_llm_rejected_total{reason="queue_requests"}') == 1
        queued.cancel()
        await _until(server, "penstock_llm_queued_requests", 0)
        assert (await first).status_code == 200


async def test_refusals_of_tenants_are_counted_by_reason_and_tenant(
    tmp_path: Path, gguf_version: Path
) -> None:
    async with (
        _serving(tmp_path, gguf_version, limit=1, tenants=Tenants(trusts_id=True)) as server,
        _client(server) as client,
    ):
        first = asyncio.ensure_future(_generate(client, **{_FAIRNESS_ID: "a"}))
        await _until(server, "penstock_llm_queued_requests", 1)
        await _until(server, "penstock_llm_queued_requests", 0)
        queued = asyncio.ensure_future(_generate(client, **{_FAIRNESS_ID: "a"}))
        await _until(server, "penstock_llm_queued_requests", 1)
        assert (await _generate(client, **{_FAIRNESS_ID: "b"})).status_code == 429
        refused = {
            one.name: one.value
            for one in server.gauges()
            if one.family == "penstock_llm_rejected_total" and "queue_requests" in one.name
        }
        assert refused == {
            f'penstock_llm_rejected_total{{reason="queue_requests",tenant="{tenant}"}}': count
            for tenant, count in (("a", 0), ("b", 1))
        }
        queued.cancel()
        assert (await first).status_code == 200


async def test_full_queue_is_resource_exhausted_with_retry_after(
    tmp_path: Path, gguf_version: Path
) -> None:
    async with _serving(tmp_path, gguf_version, limit=1) as server, _client(server) as client:
        running = asyncio.ensure_future(_generate(client))
        await _until(server, "penstock_llm_queued_requests", 1)
        await _until(server, "penstock_llm_queued_requests", 0)
        queued = asyncio.ensure_future(_generate(client))
        await _until(server, "penstock_llm_queued_requests", 1)
        service = InferenceServicer(server).service()
        settings = GrpcSettings(address="127.0.0.1", port=0)
        async with (
            open_native([service], settings, ExitDeadline(2)) as port,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            call = channel.stream_stream(
                "/inference.GRPCInferenceService/ModelStreamInfer",
                pb.ModelInferRequest.SerializeToString,
                pb.ModelStreamInferResponse.FromString,
            )(iter([_message()]), metadata=[("triton_grpc_error", "true")])
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await call.read()
        assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        trailing: Any = failed.value.trailing_metadata()
        assert int(dict(trailing)["retry-after"]) >= 1
        for one in (running, queued):
            one.cancel()


def _message() -> pb.ModelInferRequest:
    text = b"Once"
    request = pb.ModelInferRequest(model_name="m")
    request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
    request.raw_input_contents.append(len(text).to_bytes(4, "little") + text)
    return request


async def test_client_that_leaves_has_cost_its_tenant_all_that_the_engine_made(
    tmp_path: Path, gguf_version: Path
) -> None:
    async with (
        _serving(tmp_path, gguf_version, tenants=Tenants(trusts_id=True)) as server,
        _client(server) as client,
    ):
        headers = {_FAIRNESS_ID: "a"}
        async with client.stream("POST", _STREAM, json=_LONG, headers=headers) as answer:
            await anext(answer.aiter_lines())
        await _until(server, "penstock_llm_cancelled_requests_total", 1)
        for counted, made in (("prompt", "prefill"), ("generated", "generation")):
            tokens = _gauge(server, f"penstock_llm_{made}_tokens_total")
            assert tokens > 0
            name = f'penstock_llm_tenant_{counted}_tokens_total{{tenant="a"}}'
            await _until(server, name, tokens)


async def test_tenants_have_counters_and_their_requests_survive_an_unload(
    tmp_path: Path, gguf_version: Path
) -> None:
    """Requests that wait in the server are answered before the model goes."""
    tenants = Tenants(trusts_id=True)
    async with (
        _serving(tmp_path, gguf_version, tenants=tenants) as server,
        _client(server) as client,
    ):
        asked = [
            asyncio.ensure_future(_generate(client, **{_FAIRNESS_ID: name}))
            for name in ("a", "a", "b")
        ]
        await _until(server, 'penstock_llm_tenant_requests_total{tenant="b"}', 1)
        await _until(server, "penstock_llm_queued_requests", 0)
        for name, answers in (("a", 2), ("b", 1)):
            counted = _gauge(server, f'penstock_llm_tenant_requests_total{{tenant="{name}"}}')
            assert counted == answers
        more = asyncio.ensure_future(_generate(client, **{_FAIRNESS_ID: "c"}))
        await _until(server, 'penstock_llm_tenant_requests_total{tenant="c"}', 1)
        await server.unload("m")
        assert [(await one).status_code for one in (*asked, more)] == [200] * 4
