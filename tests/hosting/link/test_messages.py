"""What travels on the link comes out as it went in."""

from __future__ import annotations

import marshal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import make_request
from penstock.core.buffer import Buffer
from penstock.core.errors import InferenceError, InternalError, NotFoundError, RejectedError
from penstock.core.request import (
    InferenceRequest,
    InferenceResponse,
    RequestScope,
    Sender,
    TextResponse,
)
from penstock.core.tensor import DataType, Tensor
from penstock.hosting.link.messages import (
    Kind,
    pack_next_response,
    pack_request,
    pack_response,
    unpack_next_response,
    unpack_request,
    unpack_response,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
parameters = st.dictionaries(
    st.text(), st.booleans() | INT64 | st.floats(allow_nan=False) | st.text()
)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    datatype = draw(st.sampled_from([t for t in DataType if t is not DataType.INVALID]))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    return Tensor(datatype, shape, draw(st.binary(max_size=40)))


named_tensors = st.dictionaries(st.text(), tensors(), max_size=4)
requests = st.builds(
    lambda **fields: InferenceRequest(**fields),  # of a tuple's fields, all others would be guessed
    model_name=st.text(),
    model_version=st.text(),
    id=st.text(),
    inputs=named_tensors,
    requested_outputs=st.lists(st.text()).map(tuple),
    parameters=parameters,
    priority=st.integers(0, (1 << 64) - 1),
    timeout=INT64,
    correlation_id=INT64 | st.text(),
    sequence_start=st.booleans(),
    sequence_end=st.booleans(),
    scope=st.builds(RequestScope, deadline=st.none() | st.floats(0, 1e9), call_id=st.just("")),
)
responses = st.builds(
    InferenceResponse,
    outputs=named_tensors,
    parameters=parameters,
    final=st.booleans(),
)


@given(st.lists(requests, min_size=1, max_size=4))
def test_requests_of_a_batch_come_out_as_they_went_in(batch: list[InferenceRequest]) -> None:
    packed = [pack_request(number, request) for number, request in enumerate(batch)]
    payload = memoryview(b"".join(part for _, parts in packed for part in parts))
    at = 0
    for number, request in enumerate(batch):
        found, copy, at = unpack_request(travelled(packed[number][0]), payload, at)
        assert found == number
        assert plain_request(copy) == plain_request(request)
    assert at == len(payload)


@pytest.mark.parametrize(
    ("sender", "arrives"),
    [(None, None), (Sender("a b", 3), None), (Sender("a b", 3, "a_b"), Sender("a_b", 0, "a_b"))],
)
def test_label_of_a_tenant_is_all_that_comes_out_of_its_sender(
    sender: Sender | None, arrives: Sender | None
) -> None:
    header, _ = pack_request(1, InferenceRequest("m", scope=RequestScope(sender=sender)))
    assert unpack_request(travelled(header), memoryview(b""), 0)[1].scope.sender == arrives


def test_wait_for_a_tenants_turn_travels_with_its_label() -> None:
    request = InferenceRequest("m", scope=RequestScope(sender=Sender("a", label="a"), waited=7))
    header, _ = pack_request(1, request)
    assert unpack_request(travelled(header), memoryview(b""), 0)[1].scope.waited == 7


@given(responses)
def test_response_comes_out_as_it_went_in(response: InferenceResponse) -> None:
    header, parts = pack_response(response)
    copy = unpack_response(travelled(header), memoryview(b"".join(parts)))
    assert plain_tensors(copy.outputs) == plain_tensors(response.outputs)
    assert (copy.parameters, copy.final) == (response.parameters, response.final)
    assert copy.error is None


@given(st.lists(responses | st.builds(TextResponse, st.binary(), final=st.booleans())))
def test_texts_among_responses_come_out_as_texts(sent: list[InferenceResponse]) -> None:
    parts: list[Buffer] = []
    headers = [pack_next_response(response, parts) for response in sent]
    payload, at = memoryview(b"".join(parts)), 0
    for header, response in zip(travelled(headers), sent, strict=True):
        copy, at = unpack_next_response(header, payload, at)
        assert type(copy) is type(response)
        assert (copy.final, copy.size) == (response.final, response.size)
        assert plain_tensors(copy.outputs) == plain_tensors(response.outputs)
    assert at == len(payload)


def test_text_of_any_length_travels() -> None:
    """A large one goes as tensors do, which need not be in the frame."""
    response = TextResponse(b"x" * (1 << 20), final=True)
    header, parts = pack_response(response)
    copy = unpack_response(travelled(header), memoryview(b"".join(parts)))
    assert copy.outputs["text_output"].elements() == [response.text]


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (NotFoundError("gone"), NotFoundError),
        (InternalError(""), InternalError),
        (RejectedError("full"), RejectedError.__base__),
    ],
)
def test_error_in_a_response_keeps_code_and_text(
    error: InferenceError, becomes: type[InferenceError]
) -> None:
    header, _ = pack_response(InferenceResponse(error=error, final=True))
    copy = unpack_response(travelled(header), memoryview(b""))
    assert type(copy.error) is becomes
    assert copy.error.message == error.message
    assert copy.error.code == error.code


def test_kinds_fit_in_a_byte_and_differ() -> None:
    assert len({kind.value for kind in Kind}) == len(Kind)
    assert all(0 < kind < 256 for kind in Kind)


def travelled(header: Any) -> Any:
    return marshal.loads(marshal.dumps(header))


def plain_request(request: InferenceRequest) -> dict[str, Any]:
    fields = {"inputs": plain_tensors(request.inputs), "scope": vars(request.scope)}
    return request._asdict() | fields


def plain_tensors(tensors: Any) -> dict[str, tuple[Any, ...]]:
    return {name: (t.datatype, t.shape, bytes(t.buffer)) for name, t in tensors.items()}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "must be a boolean, a number or a string, not NoneType"),
        ([1], "must be a boolean, a number or a string, not list"),
        (1 << 64, f"must fit into 64 bits, got {1 << 64}"),
        (-(1 << 63) - 1, f"must fit into 64 bits, got {-(1 << 63) - 1}"),
    ],
)
def test_a_parameter_that_cannot_be_sent_is_named(value: Any, problem: str) -> None:
    with pytest.raises(InternalError) as refused:
        pack_request(1, make_request(parameters={"p": value}))
    assert refused.value.message == f"parameter 'p' {problem}"


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (np.float32(0.5), 0.5),
        (np.int8(3), 3),
        (np.bool_(True), True),
        ((1 << 64) - 1, (1 << 64) - 1),
        (-(1 << 63), -(1 << 63)),
    ],
)
def test_numbers_of_numpy_are_sent_as_python_s(value: Any, sent: Any) -> None:
    header, payload = pack_request(1, make_request(parameters={"p": value}, id="r"))
    _, request, _ = unpack_request(header, memoryview(b"".join(payload)), 0)
    (arrived,) = request.parameters.values()
    assert (arrived, type(arrived)) == (sent, type(sent))
