"""Verbose lines about gRPC calls, as Triton writes them with `--log-verbose=1`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from hosting.puppets import eventually
from penstock.core.log.verbosity import VERBOSITY
from penstock.settings import GrpcSettings
from rpc.serving import (
    Client,
    connected,
    infer_request,
    open_models,
    repeat_request,
    write_models,
)

Caplog = pytest.LogCaptureFixture
NUMBERS = np.array([7777, 2], np.float32)


@pytest.fixture
async def client(local: GrpcSettings, tmp_path: Path) -> AsyncIterator[Client]:
    async with (
        open_models(write_models(tmp_path)) as server,
        connected(server, local) as client,
    ):
        yield client


@pytest.fixture
def verbose(caplog: Caplog) -> Iterator[None]:
    caplog.set_level(logging.DEBUG, "penstock.rpc")
    VERBOSITY.change(1)
    yield
    VERBOSITY.change(0)


def lines(caplog: Caplog) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "penstock.rpc.call_log"]


@pytest.mark.slow
@pytest.mark.contract("L-08")
@pytest.mark.usefixtures("verbose")
async def test_a_unary_inference_is_told_step_by_step(client: Client, caplog: Caplog) -> None:
    await client.call("ModelInfer", infer_request("identity", "r-1", IN=NUMBERS))
    assert lines(caplog) == [
        "Process for ModelInferHandler, rpc_ok=1, 0 step START",
        "New request handler for ModelInferHandler, 0",
        "[request id: r-1] prepared: request id: r-1, model: identity, requested version: -1\n"
        "original inputs:\ninput: IN, type: FP32, original shape: [2]\n"
        "original requested outputs:",
        "ModelInferHandler::InferResponseComplete, 0 step ISSUED",
        "Process for ModelInferHandler, rpc_ok=1, 0 step COMPLETE",
        "Done for ModelInferHandler, 0",
    ]
    assert "7777" not in caplog.text


@pytest.mark.slow
@pytest.mark.contract("L-08")
@pytest.mark.usefixtures("verbose")
async def test_an_inference_that_fails_is_told_with_its_id(client: Client, caplog: Caplog) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.call("ModelInfer", infer_request("identity", "bad-1"))
    *_, failed, complete, done = lines(caplog)
    assert failed == f"[request id: bad-1] Infer failed: {refused.value.details()}"
    assert complete == "Process for ModelInferHandler, rpc_ok=1, 0 step COMPLETE"
    assert done == "Done for ModelInferHandler, 0"


@pytest.mark.slow
@pytest.mark.contract("L-08")
@pytest.mark.usefixtures("verbose")
async def test_other_calls_are_told(client: Client, caplog: Caplog) -> None:
    for _ in range(2):
        await client.call("ServerLive")
    assert lines(caplog) == [
        line
        for number in range(2)
        for line in (
            f"Process for ServerLive, rpc_ok=1, {number} step START",
            f"Process for ServerLive, rpc_ok=1, {number} step COMPLETE",
            f"Done for ServerLive, {number}",
        )
    ]


@pytest.mark.slow
@pytest.mark.contract("L-08")
@pytest.mark.usefixtures("verbose")
async def test_each_message_of_a_stream_is_told(client: Client, caplog: Caplog) -> None:
    await client.conversation([repeat_request("repeat", [1, 2], id="s-1")])
    told = lines(caplog)
    step = "Process for ModelStreamInferHandler, rpc_ok=1, context 0, 0 step "
    assert told[:3] == [
        f"{step}START",
        "New request handler for ModelStreamInferHandler, 0",
        f"{step}READ",
    ]
    assert told[3].startswith("[request id: s-1] prepared: request id: s-1, model: repeat,")
    assert told[4:] == [
        f"{step}WRITTEN",
        f"{step}WRITTEN",
        f"{step}COMPLETE",
        "Done for ModelStreamInferHandler, 0",
    ]


@pytest.mark.slow
@pytest.mark.contract("L-08")
@pytest.mark.usefixtures("verbose")
async def test_a_cancelled_call_is_told(client: Client, caplog: Caplog) -> None:
    stream = client.stream()
    await stream.write(repeat_request("repeat", [1], delay=60_000, id="c-2"))
    await eventually(lambda: "[request id: c-2] prepared" in caplog.text)
    stream.cancel()
    step = "Cancellation notification received for ModelStreamInferHandler, rpc_ok=1,"
    await eventually(lambda: step in caplog.text)


@pytest.mark.slow
async def test_nothing_is_told_at_level_0(client: Client, caplog: Caplog) -> None:
    caplog.set_level(logging.DEBUG, "penstock.rpc")
    await client.call("ModelInfer", infer_request("identity", "r-1", IN=NUMBERS))
    await client.conversation([repeat_request("repeat", [1], id="s-1")])
    assert lines(caplog) == []


@pytest.mark.slow
@pytest.mark.contract("L-06")
async def test_the_level_counts_from_the_next_call_on(client: Client, caplog: Caplog) -> None:
    caplog.set_level(logging.DEBUG, "penstock.rpc")
    await client.call("ServerLive")
    VERBOSITY.change(1)
    await client.call("ServerReady")
    VERBOSITY.change(0)
    await client.call("ServerLive")
    assert lines(caplog)[-1] == "Done for ServerReady, 0"
