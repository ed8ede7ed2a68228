"""`ModelStreamInfer` over a real channel, on a server with small models."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import numpy as np
import pytest

from harness.standstill import standstill
from hosting.puppets import eventually
from penstock.core.exit_deadline import ExitDeadline
from penstock.server.server import InferenceServer
from penstock.settings import GrpcSettings
from rpc.manual import DEADLINES, PATIENCE
from rpc.servicer.calls import ONE, Generating, cancelled, failure, read_to_the_end
from rpc.serving import (
    SERVICE,
    Client,
    connected,
    infer_request,
    open_models,
    output,
    repeat_request,
    write_models,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


# -- streams ---------------------------------------------------------------------------------------


@pytest.mark.contract("G-08", "GP-15")
async def test_several_models_talk_on_one_stream(client: Client) -> None:
    responses = await client.conversation(
        [
            repeat_request("repeat", [1, 2, 3], delay=20, id="r"),
            infer_request("identity", "i", IN=ONE),
            infer_request("nothing", "x", IN=ONE),
            infer_request("isolated", "p", IN=ONE),
            repeat_request("repeat", [], id="e", empty_final=True),
        ]
    )
    ids = [response.infer_response.id for response in responses]
    assert sorted(ids) == ["e", "i", "p", "r", "r", "r", "x"]
    assert ids.index("i") < ids.index("x") < ids.index("p")
    assert ids[-1] == "r"


@pytest.mark.slow
@pytest.mark.contract("GP-16")
async def test_a_thousand_requests_on_one_stream_are_answered_in_order(client: Client) -> None:
    requests = [
        infer_request("identity", str(n), IN=np.full(1, n, np.float32)) for n in range(1000)
    ]
    responses = await client.conversation(requests)
    assert [response.infer_response.id for response in responses] == [str(n) for n in range(1000)]
    assert [output(r.infer_response, "OUT")[0] for r in responses] == list(range(1000))


@pytest.mark.slow
@pytest.mark.contract("GP-16", "DC-01")
async def test_a_hundred_decoupled_requests_on_one_stream_keep_their_order(
    client: Client,
) -> None:
    requests = [repeat_request("repeat", range(20), id=str(n)) for n in range(100)]
    seen: dict[str, list[int]] = {str(n): [] for n in range(100)}
    for response in await client.conversation(requests):
        seen[response.infer_response.id].append(int(output(response.infer_response, "OUT")[0]))
    assert all(values == list(range(20)) for values in seen.values())


@pytest.mark.contract("GP-22")
async def test_cancelled_stream_cancels_its_requests(
    client: Client, server: InferenceServer
) -> None:
    before = cancelled(server)
    call = client.stream()
    for id in "abc":
        await call.write(repeat_request("repeat", range(1000), delay=5, id=id))
    await call.read()
    call.cancel()
    await eventually(lambda: cancelled(server) == before + 3)


async def test_deadline_of_a_stream_cancels_its_requests(
    client: Client, server: InferenceServer
) -> None:
    before, responses = cancelled(server), list[object]()
    endless = repeat_request("repeat", range(10000), delay=5)

    async def converse(seconds: float) -> None:
        async for response in client.stream(iter([endless]), timeout=seconds):
            responses.append(response)

    for seconds in DEADLINES:
        code, _ = await failure(converse(seconds))
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        if responses:
            break
    await eventually(lambda: cancelled(server) > before)


@pytest.mark.slow
async def test_reader_that_does_not_read_holds_back_the_model(local: GrpcSettings) -> None:
    """Some megabytes are on their way; what was not asked for is not made."""
    server = Generating()
    async with connected(server, local) as client:
        call = client.stream()
        await call.write(infer_request("many"))
        await call.read()
        await standstill(lambda: server.made)
        call.cancel()
        await asyncio.wait_for(server.left.wait(), PATIENCE)


@pytest.mark.contract("GP-19")
async def test_errors_of_admitted_requests_end_a_stream_that_asks_for_it(client: Client) -> None:
    """What is refused before stays in the stream; the real server draws the line there."""
    call = client.stream(metadata=[("triton_grpc_error", "true")])
    refused = infer_request("nope", "n"), infer_request("identity", "i", IN=np.ones(2, np.int8))
    for request in (*refused, infer_request("identity", "good", IN=ONE)):
        await call.write(request)
    replies = [await call.read() for _ in range(3)]
    assert [reply.infer_response.id for reply in replies] == ["n", "i", "good"]
    assert [bool(reply.error_message) for reply in replies] == [True, True, False]
    one_delay_for_two = infer_request(
        "repeat",
        "late",
        IN=np.zeros(2, np.int32),
        DELAY=np.zeros(1, np.uint32),
        WAIT=np.zeros(1, np.uint32),
    )
    await call.write(one_delay_for_two)
    code, details = await failure(read_to_the_end(call))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details == "expected IN and DELAY shape to match, got [2] and [1]"


@pytest.mark.contract("GP-20")
async def test_half_close_does_not_stop_responses(client: Client) -> None:
    call = client.stream()
    await call.write(repeat_request("repeat", range(8), delay=10))
    await call.done_writing()
    assert len([response async for response in call]) == 8
    assert await call.code() is grpc.StatusCode.OK


async def test_bytes_that_are_no_request_end_the_stream_and_its_requests(
    client: Client, server: InferenceServer
) -> None:
    before = cancelled(server)
    call = client.channel.stream_stream(f"/{SERVICE}/ModelStreamInfer", bytes, bytes)(None)
    await call.write(repeat_request("repeat", range(1000), delay=5).SerializeToString())
    await call.read()
    await call.write(b"\xff\xff\xff")
    code, details = await failure(read_to_the_end(call))  # where the status is
    assert (code, details) == (grpc.StatusCode.INTERNAL, "Unable to parse request")
    await eventually(lambda: cancelled(server) == before + 1)


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.contract("G-35")
async def test_server_that_stops_takes_no_more_requests(
    local: GrpcSettings, tmp_path: Path
) -> None:
    async with (
        open_models(write_models(tmp_path), explicit=True) as server,
        connected(server, local) as client,
    ):
        server.refuse_new_work(ExitDeadline(5))
        for name in ("ServerLive", "ServerReady", "ModelInfer", "RepositoryModelLoad"):
            assert await failure(client.call(name)) == (
                grpc.StatusCode.UNAVAILABLE,
                "Server exiting",
            )
