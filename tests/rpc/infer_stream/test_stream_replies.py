"""Serialized by hand or by protobuf, a client reads the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InternalError
from penstock.core.request import InferenceRequest, InferenceResponse, TextResponse
from penstock.core.tensor import Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.messages import encode_response, mark_final
from penstock.rpc.stream_answer import StreamReplies

REQUEST = InferenceRequest("m", id="7")


def expected(request: InferenceRequest, response: InferenceResponse) -> pb.ModelStreamInferResponse:
    """As the codec says it."""
    reply = encode_response(request, "1", response)
    mark_final(reply, response.final)
    return pb.ModelStreamInferResponse(infer_response=reply)


responses = st.builds(
    lambda texts, numbers, final: InferenceResponse(
        {"TEXT": Tensor.from_strings(texts), "N": Tensor.from_numpy(np.array(numbers, np.int64))},
        final=final,
    ),
    st.lists(st.text(max_size=200), max_size=3),
    st.lists(st.integers(-9, 9), max_size=3),
    st.booleans(),
)


@given(st.lists(responses, max_size=6))
def test_messages_are_those_of_the_codec(stream: list[InferenceResponse]) -> None:
    replies = StreamReplies(REQUEST, "1")
    for response in stream:
        message = pb.ModelStreamInferResponse.FromString(replies.response(response))
        assert message == expected(REQUEST, response)


texts = st.builds(
    TextResponse,
    st.text(max_size=200).map(str.encode) | st.binary(max_size=200),
    final=st.booleans(),
)


@given(st.lists(texts | responses, max_size=6), st.sampled_from([(), ("text_output",), ("N",)]))
def test_texts_are_byte_for_byte_as_tensors(
    stream: list[InferenceResponse], wanted: tuple[str, ...]
) -> None:
    request = InferenceRequest("m", id="7", requested_outputs=wanted)
    lean, general = StreamReplies(request, "1"), StreamReplies(request, "1")
    for response in stream:
        tensors = response.with_outputs(response.outputs)
        assert lean.response(response) == general.response(tensors)


@pytest.mark.parametrize("size", [0, 127, 128, 16383, 16384, 1 << 20])
def test_contents_of_any_length_are_whole(size: int) -> None:
    response = InferenceResponse({"OUT": Tensor.from_numpy(np.zeros(size, np.uint8))})
    message = pb.ModelStreamInferResponse.FromString(StreamReplies(REQUEST, "1").response(response))
    assert message == expected(REQUEST, response)


def test_parameters_and_requested_outputs_are_not_lost() -> None:
    request = InferenceRequest("m", requested_outputs=("A",))
    tensor = Tensor.from_strings(["x"])
    response = InferenceResponse({"A": tensor, "B": tensor}, {"p": 1}, final=True)
    message = pb.ModelStreamInferResponse.FromString(StreamReplies(request, "1").response(response))
    assert message == expected(request, response)
    assert [output.name for output in message.infer_response.outputs] == ["A"]


def test_response_with_an_error_holds_the_request_id() -> None:
    response = InferenceResponse(error=InternalError("bad"), final=True)
    data = StreamReplies(REQUEST, "1").response(response)
    message = pb.ModelStreamInferResponse.FromString(data)
    assert (message.error_message, message.infer_response.id) == ("bad", "7")
    assert message.infer_response.parameters["triton_final_response"].bool_param
