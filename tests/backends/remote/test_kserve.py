"""Remote models of a server of KServe v2: a second Penstock, in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest

from backends.remote.far_server import DATATYPES, entry, far_server
from harness.serving import Served
from penstock.core.config import Input, ModelConfig, Output
from penstock.core.delivery import deliver
from penstock.core.errors import (
    AlreadyExistsError,
    ConfigError,
    InferenceError,
    InvalidRequestError,
    ModelLoadError,
    NotFoundError,
    UnavailableError,
)
from penstock.core.request import InferenceRequest, InferenceResponse, RequestScope
from penstock.core.stream import ResponseStream
from penstock.core.tensor import DataType, Tensor
from penstock.core.timeline import Trace
from penstock.testing import RunningInstance, running
from penstock_backends.remote import RemoteBackend


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with far_server(tmp_path_factory.mktemp("far")) as served:
        yield served


def remote(far: Served, name: str, tmp_path: Path, **parameters: str) -> Any:
    return running(RemoteBackend, entry(name, f"grpc://{far.grpc}", **parameters), tmp_path)


def _values(datatype: DataType) -> Tensor:
    if datatype is DataType.BYTES:
        return Tensor.from_strings(["", "pipe", "\u00e9", b"\xff\x00"])
    if datatype is DataType.BF16:
        return Tensor.from_numpy(np.array([0, 1, 0x3F80, 0xFFFF], np.uint16), DataType.BF16)
    return Tensor.from_numpy(np.array([0, 1, 2, 3]).astype(datatype.numpy))


async def test_all_datatypes_come_back_as_they_went(far: Served, tmp_path: Path) -> None:
    given = {f"INPUT{number}": _values(each) for number, each in enumerate(DATATYPES)}
    async with remote(far, "types", tmp_path) as instance:
        [response] = [one async for one in instance.infer(given)]
    for number, datatype in enumerate(DATATYPES):
        output = response.outputs[f"OUTPUT{number}"]
        assert output.datatype is datatype
        assert bytes(output.buffer) == bytes(given[f"INPUT{number}"].buffer)


async def test_configuration_is_completed_from_the_remote(far: Served, tmp_path: Path) -> None:
    async with remote(far, "echo", tmp_path) as instance:
        config: ModelConfig = instance.config
    assert config.max_batch_size == 8
    assert [(one.name, one.data_type, one.dims) for one in config.input] == [
        ("IN", DataType.FP32, (-1,))
    ]
    assert not config.decoupled


async def test_name_and_version_may_be_others_there(far: Served, tmp_path: Path) -> None:
    settings = {"remote_model": "echo", "remote_version": "1"}
    async with remote(far, "here", tmp_path, **settings) as instance:
        given = np.ones((2, 3), np.float32)
        [response] = [one async for one in instance.infer({"IN": given})]
    assert response.outputs["OUT"].numpy().tolist() == given.tolist()


async def test_large_tensors_pass_both_ways(far: Served, tmp_path: Path) -> None:
    given = np.random.default_rng(1).random((1, 5_000_000), np.float32)
    async with remote(far, "echo", tmp_path) as instance:
        [response] = [one async for one in instance.infer({"IN": given})]
    assert np.array_equal(response.outputs["OUT"].numpy(), given)


async def test_many_calls_share_a_connection(far: Served, tmp_path: Path) -> None:
    async def one(instance: RunningInstance, number: int) -> float:
        given = np.full((1, 2), number, np.float32)
        [response] = [each async for each in instance.infer({"IN": given})]
        return float(response.outputs["OUT"].numpy()[0, 0])

    async with remote(far, "echo", tmp_path) as instance:
        found = await asyncio.gather(*(one(instance, number) for number in range(1500)))
    assert found == list(range(1500))


async def test_calls_that_begin_alike_are_told_apart(far: Served, tmp_path: Path) -> None:
    """Shapes, ids and wanted outputs come again, each behind another one."""
    async with remote(far, "echo", tmp_path) as instance:
        for number in range(24):
            given = np.full((1, 1 + number % 3), number, np.float32)
            request = InferenceRequest(
                "m",
                id="mine" if number % 2 else "",
                inputs={"IN": Tensor.from_numpy(given)},
                requested_outputs=("OUT",) if number % 5 else (),
            )
            [response] = await _collected(instance, request)
            assert response.outputs["OUT"].numpy().tolist() == given.tolist()


async def _collected(
    instance: RunningInstance, request: InferenceRequest
) -> list[InferenceResponse]:
    return [one async for one in await _begun(instance, request)]


async def _begun(instance: RunningInstance, request: InferenceRequest) -> ResponseStream:
    (outcome,) = await instance.backend.execute([request])
    stream = ResponseStream()
    deliver(outcome, stream)
    return stream


async def test_call_leaves_no_reference_cycle(far: Served, tmp_path: Path) -> None:
    """Objects of a call are gone with it: the collector would take longer than the call."""
    async with remote(far, "echo", tmp_path) as instance:
        inputs = {"IN": Tensor.from_numpy(np.zeros((1, 1), np.float32))}
        tensor = Tensor.from_numpy(np.zeros((1, 2), np.float32))
        request = InferenceRequest("m", inputs=inputs, scope=RequestScope())
        gone = ref(request.scope)
        gc.disable()
        try:
            await _collected(instance, request)
            del request
            await _collected(instance, InferenceRequest("m", inputs={"IN": tensor}))
            assert gone() is None
        finally:
            gc.enable()


async def test_parameters_pass_both_ways(far: Served, tmp_path: Path) -> None:
    given = {"flag": True, "number": 3, "part": 0.5, "text": "so"}
    async with remote(far, "telling", tmp_path) as instance:
        inputs = {"IN": np.zeros(1, np.float32)}
        [response] = [
            one
            async for one in instance.infer(
                inputs, given, id="mine", correlation_id=9, sequence_start=True, timeout=10**7
            )
        ]
    seen = json.loads(response.outputs["SEEN"].elements()[0])
    assert seen["parameters"] == given
    assert (seen["id"], seen["correlation"], seen["flags"]) == ("mine", 9, 1)
    assert seen["timeout"] == 10**7
    assert response.parameters == {"number": 7, "word": "yes"}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("INVALID_ARG", InvalidRequestError),
        ("NOT_FOUND", NotFoundError),
        ("ALREADY_EXISTS", AlreadyExistsError),
        ("UNAVAILABLE", UnavailableError),
    ],
)
async def test_errors_keep_code_and_text(
    far: Served, tmp_path: Path, code: str, kind: type[InferenceError]
) -> None:
    async with remote(far, "telling", tmp_path) as instance:
        with pytest.raises(kind, match="as you wished"):
            await anext(instance.infer({"IN": np.zeros(1, np.float32)}, {"fail": code}))


def _repeated(count: int, delay: int = 0) -> dict[str, Any]:
    return {
        "IN": np.arange(count, dtype=np.int32),
        "DELAY": np.full(count, delay, np.uint32),
        "WAIT": np.zeros(1, np.uint32),
    }


async def test_decoupled_model_streams(far: Served, tmp_path: Path) -> None:
    async with remote(far, "repeat", tmp_path) as instance:
        assert instance.config.decoupled
        found = [
            int(one.outputs["OUT"].numpy()[0]) async for one in instance.infer(_repeated(2000))
        ]
        assert found == list(range(2000))
        assert [one async for one in instance.infer(_repeated(0))] == []
        named = [one async for one in instance.infer(_repeated(9), id="mine")]
        assert [int(one.outputs["OUT"].numpy()[0]) for one in named] == list(range(9))


async def test_error_of_a_stream_has_its_code(far: Served, tmp_path: Path) -> None:
    async with remote(far, "repeat", tmp_path) as instance:
        wrong = _repeated(2) | {"DELAY": np.zeros(1, np.uint32)}
        with pytest.raises(InvalidRequestError, match="expected IN and DELAY shape to match"):
            await anext(instance.infer(wrong))


async def test_cancel_reaches_the_remote(far: Served, tmp_path: Path) -> None:
    async with remote(far, "repeat", tmp_path) as instance:
        responses = instance.infer(_repeated(1000, 20))
        await anext(responses)
        await responses.aclose()
    await _until_metric(far, 'cancelled{model="repeat"', 1)


async def _until_metric(far: Served, beginning: str, least: float) -> None:
    import httpx

    async with httpx.AsyncClient() as client:
        async with asyncio.timeout(20):
            while True:
                page = (await client.get(far.metrics)).text
                found = [line for line in page.splitlines() if line.startswith(beginning)]
                if found and float(found[0].rpartition(" ")[2]) >= least:
                    return
                await asyncio.sleep(0.02)


async def _execute(
    instance: RunningInstance, inputs: dict[str, Any], scope: RequestScope | None = None
) -> ResponseStream:
    tensors = {name: Tensor.from_numpy(value) for name, value in inputs.items()}
    request = InferenceRequest("m", inputs=tensors, scope=scope or RequestScope())
    return await _begun(instance, request)


async def test_deadline_passes_on(far: Served, tmp_path: Path) -> None:
    """The remote itself ends the call: here nobody watches the deadline."""
    deadline = asyncio.get_running_loop().time() + 0.2
    async with remote(far, "slow", tmp_path) as instance:
        inputs = {"IN": np.zeros((1, 1), np.float32)}
        stream = await _execute(instance, inputs, RequestScope(deadline=deadline))
        with pytest.raises(InferenceError) as caught:
            await anext(stream)
    assert caught.value.code == "CANCELLED"


async def test_trace_context_and_address_are_told(far: Served, tmp_path: Path) -> None:
    async with remote(far, "echo", tmp_path) as instance:
        timeline = Trace(0, propagated=True).root
        inputs = {"IN": np.zeros((1, 1), np.float32)}
        stream = await _execute(instance, inputs, RequestScope(timeline=timeline))
        await anext(stream)
    assert timeline.facts == {"remote.address": f"grpc://{far.grpc}"}
    assert timeline.marks[0][0] == "REMOTE_START"


async def test_model_that_the_remote_lacks_is_refused(far: Served, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="Request for unknown model: 'nothing'"):
        async with remote(far, "nothing", tmp_path):
            pass


async def test_declared_tensors_are_held_against_the_remote(far: Served, tmp_path: Path) -> None:
    given = entry("echo", f"grpc://{far.grpc}")
    wrong = replace(
        given,
        input=(Input("IN", DataType.INT32, dims=(-1,)),),
        output=(Output("OUT", DataType.FP32, dims=(-1,)),),
    )
    with pytest.raises(ConfigError, match="'IN' is TYPE_INT32 here and TYPE_FP32 at the remote"):
        async with running(RemoteBackend, wrong, tmp_path):
            pass
    other = replace(wrong, input=(Input("X", DataType.FP32, dims=(-1,)),))
    with pytest.raises(ConfigError, match="input 'X' is none of the remote's: IN"):
        async with running(RemoteBackend, other, tmp_path):
            pass
