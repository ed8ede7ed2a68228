"""What authors of backends test with does what a server would."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.core.backend import Backend, InstanceContext, Outcome
from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError, InvalidRequestError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import DataType, Tensor
from penstock.testing import as_tensor, running


class Toy(Backend):
    """Answers with whatever `answer` makes of the request."""

    answer: Callable[[InferenceRequest], Outcome]
    context: InstanceContext
    finalized = False

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        return replace(config, max_batch_size=int(settings.get("batch", 0)))

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        if config.max_batch_size > 8:
            raise ConfigError("too much")

    async def initialize(self, context: InstanceContext) -> None:
        self.context = context

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        return [type(self).answer(request) for request in requests]

    async def finalize(self) -> None:
        type(self).finalized = True


async def counting(closed: list[bool]) -> AsyncIterator[InferenceResponse]:
    try:
        for number in range(3):
            yield InferenceResponse({"OUT": as_tensor(str(number))})
    finally:
        closed.append(True)


def streaming(left: list[bool]) -> ResponseStream:
    stream = ResponseStream()
    stream.connect(lambda: left.append(True))
    stream.send(InferenceResponse({"OUT": as_tensor("0")}))
    return stream


def toy(answer: Callable[[InferenceRequest], Outcome]) -> type[Toy]:
    return type("Answering", (Toy,), {"answer": staticmethod(answer)})


async def ask(answer: Callable[[InferenceRequest], Outcome], **given: Any) -> list[str]:
    async with running(toy(answer), ModelConfig(name="m"), Path()) as instance:
        responses = [r async for r in instance.infer({"IN": "x"}, **given)]
    return [response.outputs["OUT"].elements()[0].decode() for response in responses]


async def test_a_response_is_a_stream_of_one() -> None:
    assert await ask(lambda r: InferenceResponse({"OUT": r.inputs["IN"]})) == ["x"]


async def test_a_generator_streams() -> None:
    assert await ask(lambda _: counting([])) == ["0", "1", "2"]


async def test_an_error_is_raised() -> None:
    with pytest.raises(InvalidRequestError, match="no"):
        await ask(lambda _: InvalidRequestError("no"))


async def test_parameters_and_other_fields_arrive() -> None:
    def answer(request: InferenceRequest) -> Outcome:
        return InferenceResponse({"OUT": as_tensor(f"{request.id} {request.parameters['n']}")})

    assert await ask(answer, parameters={"n": 2}, id="seven") == ["seven 2"]


async def test_leaving_early_closes_a_generator() -> None:
    closed: list[bool] = []
    async with running(toy(lambda _: counting(closed)), ModelConfig(name="m"), Path()) as instance:
        async with aclosing(instance.infer({})) as responses:
            await anext(responses)
        assert closed == [True]


async def test_leaving_early_closes_a_stream() -> None:
    left: list[bool] = []
    async with running(toy(lambda _: streaming(left)), ModelConfig(name="m"), Path()) as instance:
        async with aclosing(instance.infer({})) as responses:
            await anext(responses)
        assert left == [True]


async def test_the_configuration_is_completed_and_checked() -> None:
    plain = toy(lambda _: InferenceResponse())
    async with running(plain, ModelConfig(name="m"), Path(), {"batch": "4"}) as instance:
        assert instance.config.max_batch_size == 4
    with pytest.raises(ConfigError, match="too much"):
        async with running(plain, ModelConfig(name="m"), Path(), {"batch": "9"}):
            pass


async def test_blocking_work_has_a_thread_of_its_own() -> None:
    plain = toy(lambda _: InferenceResponse())
    async with running(plain, ModelConfig(name="m"), Path()) as instance:
        assert isinstance(instance.backend, Toy)
        context = instance.backend.context
        first = await context.run(threading.get_ident)
        assert first == await context.run(threading.get_ident) != threading.get_ident()
    assert plain.finalized


async def test_an_instance_is_placed_where_the_test_says() -> None:
    plain = toy(lambda _: InferenceResponse())
    config = ModelConfig(name="m")
    async with running(plain, config, Path(), kind="KIND_GPU", device_id=1) as instance:
        assert isinstance(instance.backend, Toy)
        context = instance.backend.context
        assert (context.kind, context.device_id) == ("KIND_GPU", 1)


def test_values_stand_for_tensors() -> None:
    tensor = Tensor.from_strings(["a"])
    assert as_tensor(tensor) is tensor
    assert as_tensor("a").elements() == as_tensor(b"a").elements() == [b"a"]
    assert as_tensor(["a", "b"]).shape == (2,)
    assert (as_tensor(True).datatype, as_tensor(True).shape) == (DataType.BOOL, (1,))
    assert as_tensor(np.zeros((2, 3), np.float32)).shape == (2, 3)
    assert (as_tensor([1, 2]).datatype, as_tensor([1, 2]).shape) == (DataType.INT64, (2,))
