"""Answers to the requests of a model process: responses, ends and errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from hosting.parent.services.calling_process import CallingProcess, response, turn
from penstock.core.errors import NotFoundError
from penstock.core.request import InferenceResponse
from penstock.core.tensor import Tensor
from penstock.hosting.link.messages import Kind


async def test_call_is_answered() -> None:
    process = CallingProcess()
    process.call("x")
    await turn()
    tensor = Tensor.from_numpy(np.arange(3, dtype=np.int32))
    process.services.streams["x"].send(InferenceResponse({"OUT": tensor}, final=True))
    ((number, answer),) = process.heard(Kind.CALLED)
    assert number == 1
    assert answer.outputs["OUT"].numpy().tolist() == [0, 1, 2]
    assert len(process.said) == 1


async def test_end_without_a_response_is_told() -> None:
    process = CallingProcess()
    process.call("x", "many", decoupled=True)
    process.services.streams["x"].end()
    await turn()
    assert process.said == [(Kind.CALL_END, 1)]


async def test_failure_is_told() -> None:
    process = CallingProcess()
    process.call("x")
    process.services.streams["x"].fail(NotFoundError("gone"))
    await turn()
    assert process.said == [(Kind.CALL_ERROR, (1, "NOT_FOUND", "gone"))]


async def test_refusal_is_told_at_once() -> None:
    process = CallingProcess()
    process.call("x", "nope")
    text = "Model nope - Error when running inference: unexpected shape"
    assert process.said == [(Kind.CALL_ERROR, (1, "INVALID_ARG", text))]


async def test_model_that_is_not_there_is_not_ready() -> None:
    process = CallingProcess()
    process.call("x", "unknown")
    text = "Failed for execute the inference request. Model 'unknown' is not ready."
    text = f"Model unknown - Error when running inference: {text}"
    assert process.said == [(Kind.CALL_ERROR, (1, "NOT_FOUND", text))]


async def test_decoupled_model_is_only_for_calls_that_expect_it() -> None:
    process = CallingProcess()
    process.call("x", "many")
    ((number, code, text),) = process.heard(Kind.CALL_ERROR)
    assert (number, code) == (1, "INVALID_ARG")
    assert text == (
        "Model many - Error when running inference: Model many is using the decoupled. The current"
        " BLS request call doesn't support models using the decoupled transaction policy. Please"
        " use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models.'"
    )


async def test_response_that_cannot_travel_ends_its_call_alone() -> None:
    process = CallingProcess()
    process.call("a")
    process.call("bb")
    await turn()
    unfit: Any = {"n": object()}
    process.services.streams["a"].send(InferenceResponse(parameters=unfit))
    process.services.streams["bb"].send(response(2, final=True))
    ((number, code, _),) = process.heard(Kind.CALL_ERROR)
    assert (number, code) == (1, "INTERNAL")
    assert process.services.closed == ["a"]
    assert process.numbers == [2]
