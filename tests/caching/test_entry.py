"""Serialization of responses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.caching.redis import pack, unpack
from penstock.core.request import InferenceResponse
from penstock.core.tensor import DataType, Tensor

_PARAMETERS = st.dictionaries(
    st.text(max_size=4), st.booleans() | st.integers() | st.text(max_size=4), max_size=3
)


@st.composite
def _tensors(draw: st.DrawFn) -> Tensor:
    datatype = draw(st.sampled_from([DataType.INT16, DataType.BF16, DataType.BYTES]))
    if datatype is DataType.BYTES:
        return Tensor.from_strings(draw(st.lists(st.binary(max_size=5), max_size=4)))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    count = 1
    for dim in shape:
        count *= dim
    return Tensor(datatype, shape, draw(st.binary(min_size=2 * count, max_size=2 * count)))


_RESPONSES = st.builds(
    InferenceResponse, st.dictionaries(st.text(max_size=4), _tensors(), max_size=3), _PARAMETERS
)


@given(_RESPONSES)
def test_a_response_comes_back_as_it_was(response: InferenceResponse) -> None:
    found = unpack(pack(response))
    assert found.final
    assert found.parameters == response.parameters
    assert list(found.outputs) == list(response.outputs)
    for name, tensor in response.outputs.items():
        other = found.outputs[name]
        assert (other.datatype, other.shape) == (tensor.datatype, tensor.shape)
        assert bytes(other.buffer) == bytes(tensor.buffer)


@given(_RESPONSES, st.data())
def test_bytes_that_were_cut_are_refused(response: InferenceResponse, data: st.DataObject) -> None:
    packed = pack(response)
    with pytest.raises(ValueError, match=r".*"):
        unpack(packed[: data.draw(st.integers(0, len(packed) - 1))])


@given(st.binary(max_size=40), st.binary(min_size=1, max_size=4))
def test_bytes_of_anything_else_are_refused(data: bytes, more: bytes) -> None:
    for wrong in (data, pack(InferenceResponse()) + more, b"PEN1\2\0\0\0[]" + data):
        with pytest.raises(ValueError, match=r".*"):
            unpack(wrong)
