"""The identity backend."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import in_virtual_time
from penstock.core.backend import InstanceContext, Outcome, find_backend
from penstock.core.config import ModelConfig, ModelInput, ModelOutput, Parameter, TensorReshape
from penstock.core.errors import ConfigError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import DataType, Tensor
from penstock.testing import running
from penstock_backends.identity import IdentityBackend

A = Tensor.from_numpy(np.ones((2, 3), np.float32))
B = Tensor.from_strings(["x", "y"])
PAIR = ModelConfig(
    name="pair",
    input=(
        ModelInput("A", DataType.FP32, dims=(-1, 3)),
        ModelInput("B", DataType.BYTES, dims=(-1,)),
    ),
    output=(
        ModelOutput("OA", DataType.FP32, dims=(-1, 3)),
        ModelOutput("OB", DataType.BYTES, dims=(-1,)),
    ),
)


async def _never(function: Callable[..., Any], *args: Any) -> Any:
    raise AssertionError("the identity backend needs no thread")


async def _backend(name: str = "pair_0_0", **parameters: str) -> IdentityBackend:
    config = ModelConfig(
        name="pair",
        input=PAIR.input,
        output=PAIR.output,
        parameters={key: Parameter(value) for key, value in parameters.items()},
    )
    IdentityBackend.check_config(config)
    backend = IdentityBackend()
    run: Callable[..., Awaitable[Any]] = _never
    await backend.initialize(InstanceContext(name, config, 1, Path("/none/1"), run))
    return backend


def _outputs(outcome: Outcome) -> dict[str, Tensor]:
    assert isinstance(outcome, InferenceResponse)
    return dict(outcome.outputs)


@pytest.mark.contract("B-18")
def test_is_found_by_its_name() -> None:
    assert find_backend("identity") is IdentityBackend


async def test_the_nth_input_is_the_nth_output_itself() -> None:
    backend = await _backend()
    request = InferenceRequest("pair", inputs={"B": B, "A": A})
    (outcome,) = await backend.execute([request])
    outputs = _outputs(outcome)
    assert outputs["OA"] is A
    assert outputs["OB"] is B


@pytest.mark.contract("B-18")
async def test_numbered_names_belong_together() -> None:
    config = ModelConfig(
        name="numbered",
        input=(
            ModelInput("INPUT0", DataType.FP32, dims=(6,), reshape=TensorReshape((-1, 3))),
            ModelInput("INPUT1", DataType.BYTES, dims=(-1,)),
        ),
        output=(
            ModelOutput("OUTPUT1", DataType.BYTES, dims=(-1,)),
            ModelOutput("OUTPUT0", DataType.FP32, dims=(-1, 3)),
        ),
    )
    async with running(IdentityBackend, config, Path("/none/1")) as instance:
        [response] = [one async for one in instance.infer({"INPUT0": A, "INPUT1": B})]
    assert response.outputs == {"OUTPUT0": A, "OUTPUT1": B}


@pytest.mark.contract("B-18")
@in_virtual_time
async def test_a_start_may_take_time() -> None:
    await _backend(creation_delay_sec="90")
    assert asyncio.get_running_loop().time() == 90


async def test_only_requested_outputs_are_sent() -> None:
    backend = await _backend()
    request = InferenceRequest("pair", inputs={"A": A, "B": B}, requested_outputs=("OB",))
    (outcome,) = await backend.execute([request])
    assert _outputs(outcome) == {"OB": B}


async def test_an_absent_input_has_no_output() -> None:
    backend = await _backend()
    (outcome,) = await backend.execute([InferenceRequest("pair", inputs={"A": A})])
    assert _outputs(outcome) == {"OA": A}


async def test_never_waits() -> None:
    """`execute` runs to its end without giving way to the event loop."""
    backend = await _backend()
    call = backend.execute([InferenceRequest("pair", inputs={"A": A, "B": B})])
    with pytest.raises(StopIteration) as ended:
        call.send(None)
    assert len(ended.value.value) == 1


async def test_a_delay_is_served_before_the_answer() -> None:
    backend = await _backend(execute_delay_ms="20")
    loop = asyncio.get_running_loop()
    begin = loop.time()
    await backend.execute([InferenceRequest("pair", inputs={"A": A, "B": B})])
    assert loop.time() - begin >= 0.019


async def test_later_instances_wait_a_multiple() -> None:
    slow = await _backend("pair_0_2", execute_delay_ms="5", instance_wise_delay_multiplier="4")
    first = await _backend("pair_0_0", execute_delay_ms="5", instance_wise_delay_multiplier="4")
    assert (slow._delay, first._delay) == (0.04, 0.005)


def test_unequal_tensors_are_refused() -> None:
    config = ModelConfig(name="odd", input=PAIR.input, output=PAIR.output[:1])
    with pytest.raises(ConfigError, match="as many outputs as inputs"):
        IdentityBackend.check_config(config)


async def test_a_delay_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="execute_delay_ms"):
        await _backend(execute_delay_ms="soon")
