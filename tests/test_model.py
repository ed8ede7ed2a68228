"""Models as their authors see them: requests, responses, and other models."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest

from penstock.core.request import InferenceRequest, InferenceResponse, RequestScope
from penstock.core.timeline import Trace, TraceContext
from penstock.model import (
    Context,
    DataType,
    InternalError,
    InvalidRequestError,
    Model,
    ModelConfig,
    NotFoundError,
    Request,
    Response,
    Tensor,
    UnavailableError,
    as_tensor,
)


class Words(Model):
    async def infer(self, request: Request) -> AsyncIterator[Response]:
        for word in request.text("IN").split():
            yield Response({"OUT": word})


class Double(Model):
    async def infer(self, request: Request) -> Response:
        return Response({"OUT": request["IN"] * 2}, parameters={"id": request.id})


class Others:
    """Other models of a server: each answers with its name, as often as the request says."""

    def __init__(self) -> None:
        self.asked: list[tuple[InferenceRequest, bool]] = []
        self.closed = 0

    async def __call__(
        self, request: InferenceRequest, decoupled: bool
    ) -> AsyncGenerator[InferenceResponse, None]:
        self.asked.append((request, decoupled))
        if request.model_name == "missing":
            raise NotFoundError("no such model")
        try:
            for _ in range(int(request.parameters.get("count", 1))):
                yield InferenceResponse({"NAME": Tensor.from_strings([request.model_name])})
        finally:
            self.closed += 1


@pytest.fixture
def others() -> Others:
    return Others()


@pytest.fixture
def context(others: Others) -> Context:
    return Context("m_0_0", Path("/models/m/1"), ModelConfig(name="m"), calls=others)


# -- a model without a server --------------------------------------------------------------------


async def test_model_can_be_tried_alone() -> None:
    response = await Double().infer(Request.of({"IN": np.arange(3)}, id="r"))
    assert response["OUT"].tolist() == [0, 2, 4]
    assert response.parameters == {"id": "r"}


async def test_stream_can_be_tried_alone() -> None:
    request = Request.of({"IN": "to be"})
    assert [r.text("OUT") async for r in Words().infer(request)] == ["to", "be"]


# -- requests ------------------------------------------------------------------------------------


def test_array_is_over_the_requests_memory() -> None:
    buffer = bytearray(8)
    request = Request(InferenceRequest("m", inputs={"X": Tensor(DataType.INT32, (2,), buffer)}))
    buffer[0] = 7
    assert request["X"].tolist() == [7, 0]


def test_optional_input_may_be_missing() -> None:
    request = Request.of({"X": 1})
    assert "Y" not in request
    assert request.get("Y") is None
    assert request.get("X") is not None


def test_strings_are_read_without_an_array() -> None:
    request = Request.of({"X": ["a", "b\u00e9"]})
    assert request.texts("X") == ["a", "b\u00e9"]


def test_one_string_is_not_many() -> None:
    with pytest.raises(InvalidRequestError, match="'X' must be one string, not 2"):
        Request.of({"X": ["a", "b"]}).text("X")


def test_fields_of_a_request_are_at_hand() -> None:
    request = Request.of({}, id="r", parameters={"a": 1}, correlation_id=7)
    assert (request.id, request.parameters, request.core.correlation_id) == ("r", {"a": 1}, 7)


# -- what stands for a tensor --------------------------------------------------------------------


def test_request_that_is_not_traced_has_no_context() -> None:
    request = Request.of({})
    request.mark("X_START")
    assert request.trace_context == {}


def test_context_of_a_trace_is_for_requests_to_other_services() -> None:
    """Not that of a request whose client wants an explanation, and which no collector gets."""
    caller = TraceContext(0xAB, 0xCD, state="a=b")
    timeline = Trace(1, caller=caller, propagated=True).root
    request = Request.of({}, scope=RequestScope(timeline=timeline))
    request.mark("X_START")
    assert [name for name, _ in timeline.marks] == ["X_START"]
    traceparent = f"00-{0xAB:032x}-{timeline.span_id:016x}-01"
    assert request.trace_context == {"traceparent": traceparent, "tracestate": "a=b"}
    explained = Request.of({}, scope=RequestScope(timeline=Trace(1, caller=caller).root))
    assert explained.trace_context == {}


def test_array_is_taken_as_it_is() -> None:
    array = np.zeros((2, 3), np.float32)
    assert as_tensor(array, DataType.FP64).numpy() is array


def test_numbers_of_python_become_what_is_declared() -> None:
    tensor = as_tensor([1, 2], DataType.FP32)
    assert (tensor.datatype, tensor.shape) == (DataType.FP32, (2,))


def test_single_element_gets_the_declared_rank() -> None:
    assert as_tensor("a", DataType.BYTES, rank=2).shape == (1, 1)
    assert as_tensor(1.5, DataType.FP32, rank=2).shape == (1, 1)
    assert as_tensor(np.float64(1.5), DataType.FP32).datatype is DataType.FP32
    assert as_tensor(np.array(1.5)).shape == (1,)


def test_zeros_at_the_end_of_bytes_are_kept() -> None:
    assert as_tensor([b"a\0", b"b"]).elements() == [b"a\0", b"b"]


def test_strings_and_bytes_may_be_mixed() -> None:
    assert as_tensor(["a", b"b"]).elements() == [b"a", b"b"]


def test_strings_may_be_nested() -> None:
    tensor = as_tensor([["a"], [b"b"]], DataType.BYTES)
    assert (tensor.shape, tensor.elements()) == ((2, 1), [b"a", b"b"])


def test_tensor_of_another_library_is_not_copied() -> None:
    class Foreign:
        def __init__(self) -> None:
            self.array = np.zeros(2)
            self.__dlpack__ = self.array.__dlpack__
            self.__dlpack_device__ = self.array.__dlpack_device__

    foreign = Foreign()
    tensor = as_tensor(foreign)
    foreign.array[0] = 5
    assert tensor.numpy().tolist() == [5, 0]


def test_bits_of_bf16_are_taken_for_it_where_it_is_declared() -> None:
    bits = np.zeros(2, np.uint16)
    assert as_tensor(bits, DataType.BF16).datatype is DataType.BF16
    assert as_tensor(bits).datatype is DataType.UINT16
    with pytest.raises(InternalError, match="BF16 numbers must come as a tensor"):
        as_tensor([1.5], DataType.BF16)


# -- other models --------------------------------------------------------------------------------


async def test_other_model_answers(context: Context, others: Others) -> None:
    response = await context.infer("other", {"X": "hello"}, parameters={"a": 1})
    assert response.text("NAME") == "other"
    ((request, decoupled),) = others.asked
    assert request.inputs["X"].elements() == [b"hello"]
    assert (request.parameters, decoupled) == ({"a": 1}, False)


async def test_error_of_the_other_model_is_raised(context: Context) -> None:
    with pytest.raises(NotFoundError, match="no such model"):
        await context.infer("missing", {})


async def test_silence_of_the_other_model_is_an_error(context: Context) -> None:
    with pytest.raises(InternalError, match="model 'other' ended without a response"):
        await context.infer("other", {}, parameters={"count": 0})


async def test_responses_of_the_other_model_come_in_turn(context: Context, others: Others) -> None:
    stream = context.stream("other", {}, parameters={"count": 3})
    assert [response.text("NAME") async for response in stream] == ["other"] * 3
    assert others.asked[0][1] is True


async def test_leaving_a_stream_early_closes_it(context: Context, others: Others) -> None:
    async with aclosing(context.stream("other", {}, parameters={"count": 9})) as stream:
        await anext(stream)
    assert others.closed == 1


async def test_without_a_server_there_are_no_other_models() -> None:
    alone = Context("m", Path(), ModelConfig())
    with pytest.raises(UnavailableError, match="there is no server to ask"):
        await alone.infer("other", {})
