"""The repeat backend."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from fakes import in_virtual_time
from penstock.core.backend import InstanceContext, Outcome, find_backend
from penstock.core.config import ModelConfig, ModelInput, ModelOutput, TransactionPolicy
from penstock.core.errors import ConfigError, InvalidRequestError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import DataType, Tensor
from penstock_backends.repeat import RepeatBackend

Responses = AsyncGenerator[InferenceResponse, None]
CONFIG = ModelConfig(
    name="repeat_int32",
    input=(
        ModelInput("IN", DataType.INT32, dims=(-1,)),
        ModelInput("DELAY", DataType.UINT32, dims=(-1,)),
        ModelInput("WAIT", DataType.UINT32, dims=(1,)),
    ),
    output=(
        ModelOutput("OUT", DataType.INT32, dims=(1,)),
        ModelOutput("IDX", DataType.UINT32, dims=(1,)),
    ),
    model_transaction_policy=TransactionPolicy(decoupled=True),
)


async def _run(*_: Any) -> Any:
    raise AssertionError("the repeat backend needs no thread")


async def _backend() -> RepeatBackend:
    RepeatBackend.check_config(CONFIG)
    backend = RepeatBackend()
    await backend.initialize(InstanceContext("r_0_0", CONFIG, 1, Path("/none/1"), _run))
    return backend


def _request(
    values: Sequence[int], delays: Sequence[int], wait: int = 0, outputs: tuple[str, ...] = ()
) -> InferenceRequest:
    inputs = {
        "IN": Tensor.from_numpy(np.array(values, np.int32)),
        "DELAY": Tensor.from_numpy(np.array(delays, np.uint32)),
        "WAIT": Tensor.from_numpy(np.array([wait], np.uint32)),
    }
    return InferenceRequest("repeat_int32", inputs=inputs, requested_outputs=outputs)


def _stream(outcome: Outcome) -> Responses:
    return cast("Responses", outcome)


async def _values(outcome: Outcome, name: str = "OUT") -> list[int]:
    return [int(r.outputs[name].numpy()[0]) async for r in _stream(outcome)]


def test_is_found_by_its_name() -> None:
    assert find_backend("repeat") is RepeatBackend


@pytest.mark.contract("B-18")
@pytest.mark.contract("DC-09")
async def test_one_response_per_element_in_order() -> None:
    backend = await _backend()
    values, numbers = await backend.execute([_request([4, 2, 9], [0, 0, 0])] * 2)
    assert await _values(values) == [4, 2, 9]
    assert await _values(numbers, "IDX") == [0, 1, 2]


@pytest.mark.contract("DC-09")
async def test_tensors_have_the_datatypes_and_shapes_of_the_reference() -> None:
    backend = await _backend()
    (outcome,) = await backend.execute([_request([7], [0])])
    (response,) = [r async for r in _stream(outcome)]
    tensors = {name: (t.datatype, t.shape) for name, t in response.outputs.items()}
    assert tensors == {"OUT": (DataType.INT32, (1,)), "IDX": (DataType.UINT32, (1,))}
    assert not response.final


@pytest.mark.contract("DC-01")
async def test_no_elements_no_responses() -> None:
    backend = await _backend()
    (outcome,) = await backend.execute([_request([], [])])
    assert await _values(outcome) == []


async def test_only_requested_outputs_are_sent() -> None:
    backend = await _backend()
    (outcome,) = await backend.execute([_request([1], [0], outputs=("IDX",))])
    (response,) = [r async for r in _stream(outcome)]
    assert list(response.outputs) == ["IDX"]


@in_virtual_time
async def test_each_delay_precedes_its_response() -> None:
    backend = await _backend()
    loop = asyncio.get_running_loop()
    (outcome,) = await backend.execute([_request([1, 2], [30, 0])])
    begin = loop.time()
    times = [loop.time() - begin async for _ in _stream(outcome)]
    assert times == pytest.approx([0.03, 0.03])


@in_virtual_time
async def test_wait_holds_the_instance_but_not_the_responses() -> None:
    backend = await _backend()
    loop = asyncio.get_running_loop()
    begin = loop.time()
    (first,) = await backend.execute([_request([1], [0], wait=50)])
    assert await _values(first) == [1]
    assert loop.time() == begin
    await backend.execute([_request([1], [0])])
    assert loop.time() - begin == pytest.approx(0.05)


async def test_closing_early_counts_as_cancelled() -> None:
    backend = await _backend()
    (outcome,) = await backend.execute([_request([1, 2], [0, 60_000])])
    async with aclosing(_stream(outcome)) as stream:
        await anext(stream)
    assert backend.cancelled == 1
    assert backend.metrics() == {"cancelled": 1.0}


async def test_cancelling_during_a_delay_ends_it() -> None:
    backend = await _backend()
    (outcome,) = await backend.execute([_request([1], [60_000])])
    task = asyncio.ensure_future(anext(_stream(outcome)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert backend.cancelled == 1


async def test_a_finished_stream_is_not_cancelled() -> None:
    backend = await _backend()
    (outcome,) = await backend.execute([_request([1], [0])])
    await _values(outcome)
    assert backend.cancelled == 0


async def test_unequal_shapes_fail_their_request_only() -> None:
    backend = await _backend()
    bad, good = await backend.execute([_request([1, 2], [0]), _request([5], [0])])
    assert isinstance(bad, InvalidRequestError)
    assert bad.message == "expected IN and DELAY shape to match, got [2] and [1]"
    assert await _values(good) == [5]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (replace(CONFIG, max_batch_size=4), "max_batch_size == 0"),
        (replace(CONFIG, model_transaction_policy=None), "decoupled: true"),
        (replace(CONFIG, input=CONFIG.input[:2]), "inputs IN TYPE_INT32, DELAY TYPE_UINT32"),
        (replace(CONFIG, output=()), "outputs OUT TYPE_INT32, IDX TYPE_UINT32"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(config: ModelConfig, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        RepeatBackend.check_config(config)
