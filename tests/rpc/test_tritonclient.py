"""The stock client, in a process of its own, against a server on a port."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import pytest_asyncio

from hosting.puppets import eventually
from penstock.core.exit_deadline import ExitDeadline
from penstock.rpc.server import open_grpc
from penstock.server.server import InferenceServer
from penstock.settings import GrpcSettings
from rpc.serving import open_models, write_models

pytest.importorskip("tritonclient.grpc", exc_type=ImportError)
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    local: GrpcSettings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[InferenceServer]:
    """A server for each of the transports, since its counters are looked at."""
    async with open_models(write_models(tmp_path_factory.mktemp("models"))) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def found(local: GrpcSettings, server: InferenceServer) -> dict[str, Any]:
    """The output of the program."""
    async with open_grpc(server, local, ExitDeadline(2)) as port:
        return await run_client(port)


async def run_client(port: int) -> dict[str, Any]:
    program = Path(__file__).parent / "stock_client.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable, program, f"127.0.0.1:{port}", stdout=PIPE, stderr=PIPE
    )
    output, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    answer: dict[str, Any] = json.loads(output)
    return answer


@pytest.mark.contract("CC-01")
@pytest.mark.slow
async def test_metadata_is_understood(found: dict[str, Any]) -> None:
    assert found["metadata"] == {
        "live": True,
        "ready": True,
        "model ready": True,
        "server": "triton",
        "model": ["1", "3"],
        "config": "identity",
        "statistics": ["1", "3"],
        "index": ["batched", "identity", "identity", "isolated", "repeat"],
    }


@pytest.mark.contract("CC-01", "CC-09")
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("infer", [[0.0, 1.0, 2.0, 3.0], "r"]),
        ("infer_async", [[0.0, 1.0, 2.0, 3.0], None]),
        (
            "error",
            ["StatusCode.NOT_FOUND", "Request for unknown model: 'nothing' is not found"],
        ),
        ("aio_infer", True),
    ],
)
async def test_unary_calls_are_answered(found: dict[str, Any], question: str, answer: Any) -> None:
    assert found[question] == answer


@pytest.mark.contract("CC-01")
async def test_synchronous_stream_sees_responses_flags_and_errors(found: dict[str, Any]) -> None:
    assert found["stream"] == {
        "f": [[0, False], [1, False], [None, True]],
        "p": [[0, False], [1, False]],
        "errors": ["Request for unknown model: 'nothing' is not found"],
    }


@pytest.mark.contract("CC-03")
async def test_asyncio_stream_sees_responses_and_flags(found: dict[str, Any]) -> None:
    assert found["aio_stream"] == {"a": [False, False], "b": [False, False]}


@pytest.mark.contract("CC-03")
async def test_cancelling_reaches_the_models(
    found: dict[str, Any], server: InferenceServer
) -> None:
    assert (found["stream_cancelled"], found["aio_cancelled"]) == (0, 0)
    await eventually(lambda: _gauges_of_models(server) == {2.0})


def _gauges_of_models(server: InferenceServer) -> set[float]:
    """Values of the gauges that models have, apart from those that Penstock has of each process."""
    return {gauge.value for gauge in server.gauges() if not gauge.name.startswith("penstock_")}
