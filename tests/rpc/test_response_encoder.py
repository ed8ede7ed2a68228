"""Responses of unary calls, serialized in parts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import serialized
from penstock.rpc.messages import encode_response
from penstock.rpc.responses import ResponseEncoder

ENCODER = ResponseEncoder()

tensors = st.one_of(
    st.builds(
        lambda size, dtype: Tensor.from_numpy(np.arange(size).astype(dtype)),
        st.integers(0, 3000),
        st.sampled_from([np.int32, np.float16, np.bool_, np.int64, np.dtype(">f4")]),
    ),
    st.builds(Tensor.from_strings, st.lists(st.text(max_size=5), max_size=3)),
    st.builds(lambda n: Tensor.from_numpy(np.ones((n, 2, 3))), st.integers(0, 4)),
)
outputs = st.dictionaries(st.sampled_from(["A", "B", "C"]), tensors, max_size=3)


@given(outputs, st.sampled_from([(), ("A",), ("B", "A")]), st.sampled_from(["", "7", "ü"]))
def test_parts_equal_the_message(
    outputs: Mapping[str, Tensor], wanted: tuple[str, ...], id: str
) -> None:
    request = InferenceRequest("m", id=id, requested_outputs=wanted)
    for parameters in ({}, {"p": 1}):
        response = InferenceResponse(outputs, parameters)
        found = serialized(ENCODER.encode(request, "3", response))
        assert pb.ModelInferResponse.FromString(found) == encode_response(request, "3", response)


def test_large_tensors_are_not_copied() -> None:
    array = np.zeros(1 << 16, np.uint8)
    response = InferenceResponse({"A": Tensor.from_numpy(array)})
    parts = ResponseEncoder().encode(InferenceRequest("m"), "1", response)
    assert isinstance(parts, list)
    array[0] = 7
    assert parts[-1][0] == 7


def test_heads_are_cached_by_all_of_their_fields() -> None:
    encoder = ResponseEncoder()
    seen = set()
    for size in range(600):  # more than are remembered
        for model, version in (("m", "1"), ("m", "2"), ("n", "1")):
            response = InferenceResponse({"A": Tensor.from_numpy(np.zeros(size, np.uint8))})
            data = serialized(encoder.encode(InferenceRequest(model), version, response))
            message = pb.ModelInferResponse.FromString(data)
            seen.add((message.model_name, message.model_version, message.outputs[0].shape[0]))
    assert len(seen) == 1800
