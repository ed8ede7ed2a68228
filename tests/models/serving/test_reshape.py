"""Tensors whose shape is another one for clients than for the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import Script, model_config
from penstock.core.backend import InstanceContext
from penstock.core.config import ModelInput, ModelOutput, TensorReshape
from penstock.core.errors import InvalidRequestError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import DataType, Tensor
from penstock.inflight.statistics import Statistics
from penstock.models.serving.admission import Reshape, request_reshape, response_reshape
from penstock.models.serving.loaded_model import LoadedModel, ModelParts
from penstock.models.serving.thread_instance import ThreadInstance
from penstock.scheduling.direct import DirectScheduler

Shape = tuple[int, ...]


@pytest.mark.contract("V-13")
@pytest.mark.parametrize(
    ("reshape", "shape", "expected"),
    [
        (Reshape((3, 4), (1, 12)), (3, 4), (1, 12)),
        (Reshape((1,), ()), (1,), ()),
        (Reshape((), (1,)), (), (1,)),
        (Reshape((-1, 1, -1), (-1, -1)), (5, 1, 7), (5, 7)),
        (Reshape((-1, -1), (-1, 1, -1)), (5, 7), (5, 1, 7)),
        (Reshape((4, -1), (1, 4, -1), batched=True), (9, 4, 2), (9, 1, 4, 2)),
        (Reshape((1,), (), batched=True), (9, 1), (9,)),
        (Reshape((), (1,), batched=True), (9,), (9, 1)),
    ],
)
def test_variable_dimensions_correspond_in_order(
    reshape: Reshape, shape: Shape, expected: Shape
) -> None:
    assert reshape(shape) == expected


@pytest.mark.parametrize("shape", [(6,), (6, 2), (6, 1, 1), ()])
def test_a_shape_that_does_not_fit_stays(shape: Shape) -> None:
    assert Reshape((-1, 1), (-1,))(shape) == shape


def test_a_model_without_reshape_has_nothing_to_do() -> None:
    assert request_reshape(model_config()) is None
    assert response_reshape(model_config()) is None


@pytest.mark.contract("V-14", "C-11")
@pytest.mark.parametrize("values", [[4, 6], [1, 4, 6], [[4, 6], [4, 6]]])
def test_a_shape_tensor_has_its_values_for_each_row(values: Any) -> None:
    config = model_config(
        max_batch_size=8,
        input=(
            ModelInput("S", DataType.INT32, dims=(2,), is_shape_tensor=True),
            ModelInput("IN", DataType.FP32, dims=(1,), reshape=TensorReshape()),
        ),
    )
    tensors = {"S": np.array(values, np.int32), "IN": np.zeros((2, 1), np.float32)}
    inputs = {name: Tensor.from_numpy(array) for name, array in tensors.items()}
    to_model = request_reshape(config)
    assert to_model is not None
    request = to_model(InferenceRequest("m", inputs=inputs))
    assert request.inputs["S"].numpy().tolist() == [[4, 6], [4, 6]]
    assert request.inputs["IN"].shape == (2,)


class Identity:
    """A model that answers with what it got, reshaped both ways; `shapes` are what it saw."""

    def __init__(self, dims: Shape, reshape: Shape, max_batch_size: int = 0) -> None:
        self.shapes: list[Shape] = []
        shape = TensorReshape(reshape)
        self.config = model_config(
            max_batch_size=max_batch_size,
            input=(ModelInput("IN", DataType.INT32, dims=dims, reshape=shape),),
            output=(ModelOutput("OUT", DataType.INT32, dims=dims, reshape=shape),),
        )

    def answer(self, request: InferenceRequest) -> InferenceResponse:
        self.shapes.append(request.inputs["IN"].shape)
        return InferenceResponse(outputs={"OUT": request.inputs["IN"]})

    async def ask(self, shape: Shape) -> Tensor:
        """What a client gets back who sends 0, 1, ... in this shape."""
        backend, statistics = Script(self.answer).backend, Statistics()
        context = InstanceContext("m_0", self.config, 1, Path("/m/1"), run=_nowhere)
        instance = ThreadInstance(backend, context)
        await instance.start()
        model = LoadedModel(
            ModelParts(self.config, 1, DirectScheduler([instance]), statistics), [instance]
        )
        tensor = Tensor.from_numpy(np.arange(np.prod(shape), dtype=np.int32).reshape(shape))
        stream = model.infer(InferenceRequest("m", inputs={"IN": tensor}))
        (response,) = [response async for response in stream]
        await model.stop()
        return response.outputs["OUT"]


async def _nowhere(*_: Any) -> Any:
    raise AssertionError("the instance has a thread of its own")


@pytest.mark.contract("V-13")
@pytest.mark.parametrize(
    ("dims", "reshape", "max_batch_size", "outside", "inside"),
    [
        ((2,), (1, 2), 0, (2,), (1, 2)),
        ((2, 3), (6,), 8, (4, 2, 3), (4, 6)),
        ((1,), (), 8, (4, 1), (4,)),
        ((-1, 1, -1), (-1, -1), 0, (5, 1, 7), (5, 7)),
        ((-1, 6), (-1, 2, 3), 8, (1, 5, 6), (1, 5, 2, 3)),
    ],
)
async def test_clients_see_dims_and_the_model_sees_the_reshape(
    dims: Shape, reshape: Shape, max_batch_size: int, outside: Shape, inside: Shape
) -> None:
    model = Identity(dims, reshape, max_batch_size)
    answer = await model.ask(outside)
    assert (model.shapes, answer.shape) == ([inside], outside)
    assert answer.numpy().ravel().tolist() == list(range(int(np.prod(outside))))


async def test_clients_cannot_send_what_only_the_model_sees() -> None:
    with pytest.raises(InvalidRequestError, match=r"Expected \[2\], got \[1,2\]"):
        await Identity((2,), (1, 2)).ask((1, 2))


def test_tensors_without_a_reshape_are_passed_on_as_they_are() -> None:
    outputs = (
        ModelOutput("A", DataType.INT32, dims=(1,)),
        ModelOutput("B", DataType.INT32, dims=(2, 2), reshape=TensorReshape((4,))),
    )
    reshape = response_reshape(model_config(max_batch_size=0, output=outputs))
    assert reshape is not None
    a, b = (Tensor.from_numpy(np.zeros(size, np.int32)) for size in (1, 4))
    response = reshape(InferenceResponse({"A": a, "B": b}, final=True))
    assert response.final
    assert response.outputs["A"] is a
    assert response.outputs["B"].shape == (2, 2)
