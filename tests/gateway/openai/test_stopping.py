"""Requests stopped by their id, whichever protocol they came by."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import pytest_asyncio

from fakes import InstallBackend, Script, until, write_model
from gateway.serving import LOCAL, serving
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway, open_openai
from penstock.protocol import grpc_service_pb2 as pb
from penstock.scheduling.tokens.tenants import FAIRNESS_ID, Tenants
from penstock.server.server import InferenceServer
from penstock.settings import Feature, GrpcSettings, OpenAiSettings, Restriction
from rpc import serving as rpc

GRPC = GrpcSettings(address="127.0.0.1", port=0)
RESTRICTED = OpenAiSettings(
    restrictions=(Restriction(frozenset({Feature.REQUEST_CONTROL}), "Admin", "secret"),)
)
ADMIN = {"admin": "secret"}
CONFIG = """
input { name: "IN" data_type: TYPE_FP32 dims: -1 }
output { name: "OUT" data_type: TYPE_FP32 dims: -1 }
instance_group { count: 3 }
"""
INPUTS = [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]


class Doors:
    """Clients of one server whose model does not answer."""

    def __init__(
        self, server: InferenceServer, http: httpx.AsyncClient, grpc: rpc.Client, script: Script
    ) -> None:
        self.server, self.http, self.grpc = server, http, grpc
        self._script = script

    async def stop(self, name: str, headers: Mapping[str, str] = ADMIN) -> int:
        return (await self.http.delete(f"/v1/requests/{name}", headers=headers)).status_code

    async def begun(self, count: int = 1) -> None:
        await until(lambda: sum(map(len, self._script.batches)) == count)


@asynccontextmanager
async def opened(
    folder: Path, install: InstallBackend, openai: OpenAiSettings = RESTRICTED, **options: Any
) -> AsyncIterator[Doors]:
    script = Script()
    script.gate.clear()
    install("fake", script.backend)
    (folder / "models").mkdir()
    write_model(folder / "models", "m", config=CONFIG)
    async with (
        serving(folder / "models", ["m"], **options) as server,
        open_gateway(server, LOCAL, ExitDeadline(1), openai=openai) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20, verify=False) as http,
        rpc.connected(server, GRPC, 1) as client,
    ):
        yield Doors(server, http, client, script)
        script.gate.set()


@pytest_asyncio.fixture
async def doors(tmp_path: Path, install_backend: InstallBackend) -> AsyncIterator[Doors]:
    async with opened(tmp_path, install_backend) as doors:
        yield doors


def message(name: str = "") -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name="m", id=name)
    message.inputs.add(name="IN", datatype="FP32", shape=[1])
    message.raw_input_contents.append(bytes(4))
    return message


async def no_metrics(_: str) -> tuple[bytes, str]:
    return b"", "text/plain"


async def code_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code()


@pytest.mark.parametrize(("id_", "metadata"), [("mine", ()), ("", (("x-request-id", "mine"),))])
async def test_unary_call_is_stopped(doors: Doors, id_: str, metadata: Any) -> None:
    call = doors.grpc.method("ModelInfer")(message(id_), metadata=metadata)
    await doors.begun()
    assert await doors.stop("mine") == 200
    assert await code_of(call) == grpc.StatusCode.CANCELLED
    assert await doors.stop("mine") == 404


async def test_each_of_two_ids_stops_a_request(doors: Doors) -> None:
    """`id` and `x-request-id` of one request may differ."""
    metadata = (("x-request-id", "call"),)
    first = doors.grpc.method("ModelInfer")(message("one"), metadata=metadata)
    second = doors.grpc.method("ModelInfer")(message("two"), metadata=metadata)
    await doors.begun(2)
    assert await doors.stop("one") == 200
    assert await code_of(first) == grpc.StatusCode.CANCELLED
    assert await doors.stop("call") == 200
    assert await code_of(second) == grpc.StatusCode.CANCELLED


async def test_requests_of_a_stream_are_stopped_and_the_stream_lives(doors: Doors) -> None:
    stream = doors.grpc.stream(metadata=(("x-request-id", "call"),))
    await stream.write(message("one"))
    await doors.begun()
    assert await doors.stop("call") == 200
    assert "cancelled" in (await stream.read()).error_message.lower()
    await stream.write(message("two"))
    await doors.begun(2)
    assert await doors.stop("two") == 200
    assert "cancelled" in (await stream.read()).error_message.lower()
    await stream.done_writing()


@pytest.mark.parametrize("call", ["infer", "generate", "generate_stream"])
@pytest.mark.parametrize(("member", "headers"), [("mine", {}), (None, {"x-request-id": "mine"})])
async def test_http_requests_are_stopped(
    doors: Doors, call: str, member: str | None, headers: Any
) -> None:
    body: dict[str, Any] = {"inputs": INPUTS} if call == "infer" else {"IN": [1]}
    body |= {} if member is None else {"id": member}
    path = f"/v2/models/m/{call}"
    asked = asyncio.ensure_future(doors.http.post(path, json=body, headers=headers))
    await doors.begun()
    assert await doors.stop("mine") == 200
    assert "cancelled" in (await asked).text.lower()


async def test_every_request_of_an_id_is_stopped_and_no_other(doors: Doors) -> None:
    calls = [doors.grpc.method("ModelInfer")(message(name)) for name in ("a/ b", "a/ b", "other")]
    await doors.begun(3)
    assert await doors.stop("a%2F%20b") == 200
    assert [await code_of(call) for call in calls[:2]] == [grpc.StatusCode.CANCELLED] * 2
    assert not calls[2].done()


async def test_what_was_answered_is_not_kept(doors: Doors) -> None:
    doors._script.gate.set()
    await doors.grpc.call("ModelInfer", message("mine"))
    assert await doors.stop("mine") == 404
    assert not doors.server._lifecycle.running._entries


async def test_the_openai_port_stops_requests_of_the_others(doors: Doors) -> None:
    call = doors.grpc.method("ModelInfer")(message("mine"))
    await doors.begun()
    openai = replace(RESTRICTED, port=0)
    async with (
        open_openai(doors.server, LOCAL, openai, no_metrics, ExitDeadline(1)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as http,
    ):
        assert (await http.delete("/v1/requests/mine")).status_code == 401
        assert (await http.delete("/v1/requests/mine", headers=ADMIN)).status_code == 200
    assert await code_of(call) == grpc.StatusCode.CANCELLED


@pytest.mark.parametrize(
    ("tenants", "headers"),
    [
        (None, {}),
        (None, {"api-key": "a"}),
        (Tenants(), {}),
        (Tenants(header="x-team"), {"x-team": "key-ca978112ca1b"}),
        (Tenants(), {FAIRNESS_ID: "key-ca978112ca1b"}),
    ],
)
async def test_strangers_stop_nothing(
    tmp_path: Path, install_backend: InstallBackend, tenants: Tenants | None, headers: Any
) -> None:
    """Not even under the name of the tenant whose request it is: no key shows it."""
    openai = OpenAiSettings()
    async with opened(tmp_path, install_backend, openai, tenants=tenants) as doors:
        call = doors.grpc.method("ModelInfer")(message("1"), metadata=(("api-key", "a"),))
        await doors.begun()
        assert await doors.stop("1", headers) == 403
        assert not call.done()
        call.cancel()


@pytest.mark.parametrize(
    ("trusts_id", "sent", "others", "own"),
    [
        (False, ("api-key", "a"), {"api-key": "b", FAIRNESS_ID: "key-ca978112ca1b"}, "api-key"),
        (True, (FAIRNESS_ID, "a"), {FAIRNESS_ID: "b"}, FAIRNESS_ID),
    ],
)
async def test_a_tenant_stops_its_own_requests_only(
    tmp_path: Path,
    install_backend: InstallBackend,
    trusts_id: bool,
    sent: tuple[str, str],
    others: dict[str, str],
    own: str,
) -> None:
    tenants = Tenants(trusts_id=trusts_id)
    async with opened(tmp_path, install_backend, OpenAiSettings(), tenants=tenants) as doors:
        call = doors.grpc.method("ModelInfer")(message("mine"), metadata=(sent,))
        await doors.begun()
        assert await doors.stop("mine", others) == 404
        assert await doors.stop("mine", {own: "a"}) == 200
        assert await code_of(call) == grpc.StatusCode.CANCELLED


async def test_who_knows_the_secret_is_believed_any_name(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    async with opened(tmp_path, install_backend, tenants=Tenants(header="x-team")) as doors:
        call = doors.grpc.method("ModelInfer")(message("mine"), metadata=(("x-team", "red"),))
        await doors.begun()
        assert await doors.stop("mine", {"x-team": "red"}) == 401
        assert await doors.stop("mine", ADMIN | {"x-team": "blue"}) == 404
        assert await doors.stop("mine", ADMIN | {"x-team": "red"}) == 200
        assert await code_of(call) == grpc.StatusCode.CANCELLED
