"""Tensors that the batcher keeps between the requests of a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes import in_virtual_time, turns
from penstock.core.config import InitialState, ModelConfig, SequenceState, StrategyOldest
from penstock.core.errors import InternalError, InvalidRequestError, RequestCancelledError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import DataType, Tensor
from penstock.inflight.inference import Inference
from scheduling.sequences.scene import Recorder, Scene, config, outcome

COUNT = SequenceState("COUNT", "COUNT_OUT", DataType.INT32, (1,))
WORDS = SequenceState(
    "WORDS",
    "WORDS_OUT",
    DataType.INT32,
    (-1,),
    (InitialState(DataType.INT32, (2,), zero_data=True, name="none"),),
)


def model(*states: SequenceState, **fields: Any) -> ModelConfig:
    return config(state=states or (COUNT,), **fields)


def count(request: InferenceRequest, name: str = "COUNT") -> int:
    return int(request.inputs[name].numpy().sum())


def counting(inference: Inference) -> InferenceResponse:
    """One more in every state, which grows where it may."""
    request = inference.request
    outputs = {"OUT": request.inputs["IN"]}
    for name in request.requested_outputs:
        if name.endswith("_OUT"):
            state = request.inputs[name.removesuffix("_OUT")].numpy()
            grown = [*state[0], 1] if name == "WORDS_OUT" else state[0] + 1
            outputs[name] = Tensor.from_numpy(np.array([grown], np.int32))
    return InferenceResponse(outputs, {"mark": request.id}, final=True)


def seen(scene: Scene, name: str = "COUNT") -> list[int]:
    """The state that came with each request."""
    return [count(request, name) for batch in scene.instance.requests for request in batch]


@pytest.mark.contract("S-16")
async def test_the_output_of_one_request_is_the_input_of_the_next() -> None:
    scene = Scene(model(), Recorder(answer=counting))
    for at in range(3):
        await outcome(scene.send(1, start=at == 0))
    assert seen(scene) == [0, 1, 2]


@pytest.mark.contract("S-16", "S-19")
async def test_a_state_is_kept_and_not_copied() -> None:
    kept: list[Tensor] = []

    def answer(inference: Inference) -> InferenceResponse:
        response = counting(inference)
        kept.append(response.outputs["COUNT_OUT"])
        return response

    scene = Scene(model(), Recorder(answer=answer))
    await outcome(scene.send(1, start=True))
    await outcome(scene.send(1))
    assert scene.instance.requests[1][0].inputs["COUNT"] is kept[0]


@pytest.mark.contract("S-18")
async def test_a_state_has_the_shape_that_the_model_gave_it() -> None:
    scene = Scene(model(WORDS), Recorder(answer=counting))
    for at in range(3):
        await outcome(scene.send(1, start=at == 0))
    shapes = [batch[0].inputs["WORDS"].shape for batch in scene.instance.requests]
    assert shapes == [(1, 2), (1, 3), (1, 4)]


@pytest.mark.contract("S-18")
@pytest.mark.parametrize("strategy", [{}, {"oldest": StrategyOldest()}])
async def test_states_of_different_lengths_do_not_share_a_batch(strategy: Any) -> None:
    scene = Scene(model(WORDS, **strategy), Recorder(answer=counting))
    await outcome(scene.send(1, start=True))
    both = [scene.send(1), scene.send(2, start=True)]
    for inference in both:
        await outcome(inference)
    for batch in scene.instance.requests:
        assert len({request.inputs["WORDS"].shape for request in batch}) == 1


@pytest.mark.contract("S-13", "S-16")
async def test_the_state_of_an_empty_row_is_discarded() -> None:
    scene = Scene(model(), Recorder(answer=counting))
    await outcome(scene.send(1, start=True))
    await outcome(scene.send(2, start=True))
    await outcome(scene.send(2))
    await outcome(scene.send(1))
    states = [[count(request) for request in batch] for batch in scene.instance.requests]
    assert states == [[0], [0, 0], [0, 1], [1]]


@pytest.mark.contract("S-17")
async def test_a_start_takes_the_first_state_again() -> None:
    scene = Scene(model(), Recorder(answer=counting))
    for starts in (True, False, True, False):
        await outcome(scene.send(1, start=starts))
    assert seen(scene) == [0, 1, 0, 1]


@pytest.mark.contract("S-16")
@pytest.mark.parametrize(("asked", "shown"), [((), ["OUT"]), (("OUT",), ["OUT"])])
async def test_clients_see_outputs_and_no_states(asked: tuple[str, ...], shown: list[str]) -> None:
    scene = Scene(model(), Recorder(answer=counting))
    inference = scene.send(1, start=True, requested_outputs=asked)
    (response,) = [response async for response in inference.stream]
    assert [*response.outputs] == shown
    assert scene.instance.requests[0][0].requested_outputs == ("OUT", "COUNT_OUT")


@pytest.mark.contract("S-16")
async def test_a_failure_leaves_the_state_as_it_was() -> None:
    def answer(inference: Inference) -> InferenceResponse:
        if inference.request.id == "bad":
            return InferenceResponse(error=InternalError("bad"), final=True)
        return counting(inference)

    scene = Scene(model(), Recorder(answer=answer))
    for id in ("", "bad", ""):
        await outcome(scene.send(1, id, start=not scene.instance.batches))
    assert seen(scene) == [0, 1, 1]


@pytest.mark.contract("S-10", "S-16")
@in_virtual_time
async def test_a_sequence_ends_without_the_state_of_a_cancelled_request() -> None:
    scene = Scene(model(), Recorder(answer=counting, seconds=1.0))
    first, second = scene.send(1, start=True), scene.send(1)
    await turns()
    first.stream.close()
    assert isinstance(await outcome(second), RequestCancelledError)
    with pytest.raises(InvalidRequestError, match="must specify the START flag"):
        scene.send(1)
