"""Unary inference over a real channel, on a server with small models."""

from __future__ import annotations

import asyncio

import grpc
import numpy as np
import pytest

from hosting.puppets import eventually
from penstock.settings import GrpcSettings
from rpc.manual import DEADLINES, ManualServer, number
from rpc.servicer.calls import ONE, AnsweringServer, failure
from rpc.serving import Client, connected, infer_request, output, repeat_request

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.contract("G-07")
@pytest.mark.parametrize("model", ["identity", "isolated"])
async def test_inference_is_answered(client: Client, model: str) -> None:
    reply = await client.call("ModelInfer", infer_request(model, "my-id", IN=ONE))
    assert (reply.model_name, reply.id) == (model, "my-id")
    assert output(reply, "OUT").tolist() == [1.0] * 4
    assert not reply.parameters


@pytest.mark.contract("G-07")
@pytest.mark.parametrize(("version", "answers"), [("", "3"), ("1", "1"), ("3", "3")])
async def test_highest_version_answers_unless_one_is_named(
    client: Client, version: str, answers: str
) -> None:
    request = infer_request("identity", version=version, IN=ONE)
    assert (await client.call("ModelInfer", request)).model_version == answers


async def test_many_calls_at_once_are_all_answered(client: Client) -> None:
    requests = [
        infer_request("batched", str(n), IN=np.full((1, 4), n, np.float32)) for n in range(200)
    ]
    replies = await asyncio.gather(*(client.call("ModelInfer", request) for request in requests))
    assert [int(output(reply, "OUT")[0, 0]) for reply in replies] == list(range(200))


@pytest.mark.slow
@pytest.mark.contract("GT-01")
@pytest.mark.parametrize("model", ["identity", "isolated"])
async def test_inference_of_64_mib(client: Client, model: str) -> None:
    array = np.arange(16 << 20, dtype=np.float32)
    reply = await client.call("ModelInfer", infer_request(model, IN=array))
    assert (output(reply, "OUT") == array).all()


@pytest.mark.contract("G-07", "DC-03")
async def test_decoupled_model_does_not_answer_unary_calls(client: Client) -> None:
    code, text = await failure(client.call("ModelInfer", repeat_request("repeat", [1])))
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert text == "ModelInfer RPC doesn't support models with decoupled transaction policy"


@pytest.mark.contract("G-34")
@pytest.mark.parametrize("count", [0, 2])
async def test_other_than_one_response_is_an_error(local: GrpcSettings, count: int) -> None:
    async with connected(AnsweringServer(*map(number, range(count))), local) as client:
        code, text = await failure(client.call("ModelInfer", infer_request("once")))
    assert code is grpc.StatusCode.INTERNAL
    assert text == f"expected a single response, got {count}"


@pytest.mark.contract("GP-21")
async def test_cancelled_call_cancels_its_request(local: GrpcSettings) -> None:
    server = ManualServer()
    async with connected(server, local) as client:
        call = client.method("ModelInfer")(infer_request("once", "a"))
        await eventually(lambda: "a" in server.streams)
        call.cancel()
        await eventually(lambda: server.closed == ["a"])


@pytest.mark.contract("GP-23")
async def test_deadline_cancels_its_request(local: GrpcSettings) -> None:
    server = ManualServer()
    async with connected(server, local) as client:
        for seconds in DEADLINES:
            call = client.call("ModelInfer", infer_request("once", "a"), timeout=seconds)
            code, _ = await failure(call)
            assert code is grpc.StatusCode.DEADLINE_EXCEEDED
            if server.streams:
                break
        await eventually(lambda: "a" in server.closed)


@pytest.mark.slow
async def test_cancelled_call_leaves_its_neighbours_alone(local: GrpcSettings) -> None:
    server = ManualServer()
    async with connected(server, local) as client:
        calls = [client.method("ModelInfer")(infer_request("once", id)) for id in "ab"]
        await eventually(lambda: len(server.streams) == 2)
        calls[0].cancel()
        server.streams["b"].send(number(7, final=True))
        assert int(output(await calls[1], "OUT")[0]) == 7
