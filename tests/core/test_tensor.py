"""Tensors: datatypes, buffers, numpy arrays and the framing of strings."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from harness.examples import examples
from penstock.core.errors import InvalidRequestError
from penstock.core.tensor import (
    Array,
    DataType,
    Tensor,
    count_elements,
    decode_elements,
    encode_elements,
)

FIXED = [t for t in DataType if t not in (DataType.BYTES, DataType.INVALID)]
VALID = [*FIXED, DataType.BYTES]
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
few = settings(max_examples=examples(25))  # for each of many datatypes


def _arrays(datatype: DataType) -> st.SearchStrategy[Array]:
    return arrays.arrays(datatype.numpy, SHAPES)


def _same(left: Array, right: Array) -> bool:
    """Equal to the bit, so that NaN equals itself."""
    return left.shape == right.shape and left.tobytes() == right.tobytes()


# -- datatypes -----------------------------------------------------------------------------------


@pytest.mark.contract("G-28")
@pytest.mark.parametrize(
    ("names", "size"),
    [
        ("BOOL UINT8 INT8", 1),
        ("UINT16 INT16 FP16 BF16", 2),
        ("UINT32 INT32 FP32", 4),
        ("UINT64 INT64 FP64", 8),
        ("BYTES", 0),
    ],
)
def test_datatypes_have_the_sizes_of_the_protocol(names: str, size: int) -> None:
    assert {DataType(name).itemsize for name in names.split()} == {size}


@pytest.mark.parametrize("datatype", VALID)
def test_a_datatype_is_found_by_its_name_in_configurations(datatype: DataType) -> None:
    assert DataType.from_config(datatype.config_name) is datatype


def test_strings_have_a_name_of_their_own_in_configurations() -> None:
    assert DataType.BYTES.config_name == "TYPE_STRING"


@pytest.mark.parametrize("name", ["", "FP32", "TYPE_BYTES", "TYPE_<invalid>", "TYPE_INVALID"])
def test_other_names_in_configurations_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"'{name}'")):
        DataType.from_config(name)


@pytest.mark.parametrize("datatype", [t for t in VALID if t is not DataType.BF16])
def test_a_datatype_is_found_by_its_numpy_dtype(datatype: DataType) -> None:
    assert DataType.from_numpy(datatype.numpy) is datatype


@pytest.mark.parametrize("dtype", ["S4", "U4", "O"])
def test_strings_of_any_kind_are_bytes(dtype: str) -> None:
    assert DataType.from_numpy(np.dtype(dtype)) is DataType.BYTES


@pytest.mark.parametrize("dtype", ["complex64", "datetime64[s]", "longdouble"])
def test_other_numpy_dtypes_are_refused(dtype: str) -> None:
    with pytest.raises(ValueError, match="has no tensor datatype"):
        DataType.from_numpy(np.dtype(dtype))


# -- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("datatype", FIXED)
@few
@given(data=st.data())
def test_numbers_survive_the_way_over_a_buffer(datatype: DataType, data: st.DataObject) -> None:
    array = data.draw(_arrays(datatype))
    sent = Tensor.from_numpy(array, datatype)
    arrived = Tensor(datatype, sent.shape, bytes(sent.buffer))
    assert _same(arrived.numpy(), array)


@pytest.mark.parametrize("datatype", FIXED)
@few
@given(data=st.data())
def test_a_buffer_is_as_long_as_its_elements(datatype: DataType, data: st.DataObject) -> None:
    array = data.draw(_arrays(datatype))
    tensor = Tensor.from_numpy(array, datatype)
    assert tensor.nbytes == len(bytes(tensor.buffer)) == array.size * datatype.itemsize


@pytest.mark.parametrize("dtype", [">i2", ">u4", ">i8", ">f2", ">f4", ">f8"])
@few
@given(data=st.data())
def test_big_endian_arrays_are_sent_little_endian(dtype: str, data: st.DataObject) -> None:
    array = data.draw(arrays.arrays(np.dtype(dtype), SHAPES))
    sent = Tensor.from_numpy(array)
    little = Tensor(sent.datatype, sent.shape, sent.buffer).numpy()
    assert _same(little, array.astype(array.dtype.newbyteorder("<")))


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[::2],
        lambda a: a[:, ::-1],
        lambda a: a[:, 0],
        lambda a: np.asfortranarray(a),
        lambda a: np.broadcast_to(a[0], (3, 4)),
        lambda a: a.astype(">f4").T,
    ],
)
def test_arrays_of_any_memory_layout_are_sent_in_row_major_order(view: Any) -> None:
    array = view(np.arange(24, dtype=np.float32).reshape(6, 4))
    assert bytes(Tensor.from_numpy(array).buffer) == array.astype("<f4").tobytes(order="C")


def test_a_large_contiguous_array_is_not_copied() -> None:
    array = np.arange(4096, dtype=np.int32)
    assert np.shares_memory(np.frombuffer(Tensor.from_numpy(array).buffer, np.int32), array)


def test_a_buffer_is_not_copied_for_numpy() -> None:
    buffer = bytearray(8)
    assert np.shares_memory(
        Tensor(DataType.INT32, [2], buffer).numpy(), np.frombuffer(buffer, np.int32)
    )


def test_half_precision_is_its_ieee_bits() -> None:
    tensor = Tensor.from_numpy(np.array([1.0, -2.0], np.float16))
    assert bytes(tensor.buffer) == b"\x00\x3c\x00\xc0"


def test_bfloat16_is_the_upper_half_of_single_precision() -> None:
    bits = (np.array([1.0, -2.5], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    tensor = Tensor.from_numpy(bits, DataType.BF16)
    assert (tensor.datatype, bytes(tensor.buffer)) == (DataType.BF16, b"\x80\x3f\x20\xc0")


def test_bfloat16_of_ml_dtypes_is_known() -> None:
    array = np.array([1.0, -2.5], pytest.importorskip("ml_dtypes").bfloat16)
    tensor = Tensor.from_numpy(array)
    assert (tensor.datatype, bytes(tensor.buffer)) == (DataType.BF16, b"\x80\x3f\x20\xc0")


@pytest.mark.parametrize("datatype", VALID)
def test_a_tensor_without_elements_has_an_empty_buffer(datatype: DataType) -> None:
    tensor = Tensor(datatype, (2, 0, 3), b"")
    assert tensor.numpy().shape == (2, 0, 3)
    assert Tensor.from_numpy(tensor.numpy(), datatype).nbytes == 0


@pytest.mark.parametrize("buffer", [b"\0" * 8, bytearray(8), memoryview(bytes(8)).cast("i")])
def test_any_buffer_has_its_length_in_bytes(buffer: Any) -> None:
    assert Tensor(DataType.INT32, (2,), buffer).nbytes == 8


# -- strings -------------------------------------------------------------------------------------


@given(st.lists(st.binary()))
def test_elements_survive_framing(elements: list[bytes]) -> None:
    assert decode_elements(encode_elements(elements)) == elements
    assert count_elements(encode_elements(elements)) == len(elements)


@pytest.mark.contract("G-29")
def test_elements_stand_behind_their_little_endian_length() -> None:
    assert encode_elements([b"ab", b""]) == b"\x02\0\0\0ab\0\0\0\0"


@given(st.lists(st.binary(), max_size=6))
def test_strings_survive_the_way_over_a_buffer(elements: list[bytes]) -> None:
    sent = Tensor.from_strings(elements)
    arrived = Tensor(DataType.BYTES, sent.shape, bytes(sent.buffer))
    assert arrived.numpy().tolist() == arrived.elements() == elements


@given(arrays.arrays(np.object_, SHAPES, elements=st.binary(max_size=3)))
def test_arrays_of_strings_keep_their_shape(array: Array) -> None:
    tensor = Tensor.from_numpy(array)
    arrived = Tensor(DataType.BYTES, tensor.shape, tensor.buffer).numpy()
    assert (arrived.shape, arrived.tolist()) == (array.shape, array.tolist())


@pytest.mark.contract("V-12")
def test_strings_keep_nul_and_emptiness() -> None:
    elements = [b"", b"\0", b"a\0b\0", b""]
    assert Tensor.from_strings(elements).elements() == elements


@pytest.mark.parametrize(
    "array",
    [np.array(["ä", ""]), np.array(["ä", ""], np.object_), np.array(["ä".encode(), b""])],
)
def test_numpy_strings_of_every_kind_become_bytes(array: Array) -> None:
    tensor = Tensor.from_numpy(array)
    assert tensor.numpy().tolist() == tensor.elements() == ["ä".encode(), b""]


def test_objects_that_are_no_strings_are_sent_as_their_text() -> None:
    array = np.array([7, bytearray(b"x"), 1.5], np.object_)
    assert Tensor.from_numpy(array).elements() == [b"7", b"x", b"1.5"]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_strings_take_the_shape_they_are_given(shape: tuple[int, ...]) -> None:
    tensor = Tensor.from_strings(["x"], shape)
    assert tensor.shape == tensor.numpy().shape == shape


def test_strings_without_a_shape_have_one_dimension() -> None:
    assert Tensor.from_strings(["x", b"y"]).shape == (2,)


@given(st.lists(st.binary(min_size=1), min_size=1), st.data())
def test_a_buffer_that_is_cut_short_is_refused(elements: list[bytes], data: st.DataObject) -> None:
    """Unless it is cut between two elements."""
    ends = [len(encode_elements(elements[:n])) for n in range(len(elements) + 1)]
    cut = data.draw(st.integers(1, ends[-1] - 1).filter(lambda n: n not in ends))
    with pytest.raises(InvalidRequestError, match="incomplete string"):
        decode_elements(encode_elements(elements)[:cut])


@pytest.mark.parametrize(
    ("buffer", "text"),
    [
        (b"\x01\0", "length indicator of X, expecting 4 bytes but only 2 bytes available"),
        (b"\x64\0\0\0a", "data of X, expecting string of length 100 but only 1 bytes available"),
        (b"\xff\xff\xff\xff", "data of X, expecting string of length 4294967295 but only 0 bytes"),
    ],
)
def test_the_error_names_the_missing_bytes_and_their_place(buffer: bytes, text: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"incomplete string {text}"):
        decode_elements(buffer, " of X")
    with pytest.raises(InvalidRequestError, match=f"incomplete string {text}"):
        count_elements(encode_elements([b"a", b""]) + buffer, " of X")


# -- the rest ------------------------------------------------------------------------------------


def test_a_tensor_shows_what_it_is_and_not_what_it_holds() -> None:
    assert repr(Tensor(DataType.FP32, [2, 3], bytes(24))) == "Tensor(FP32, [2, 3])"


def test_a_reshaped_tensor_shares_its_elements() -> None:
    array = np.arange(6, dtype=np.int32)
    over_array = Tensor.from_numpy(array).reshaped((2, 3))
    over_buffer = Tensor(DataType.INT32, (6,), array.tobytes()).reshaped((2, 3))
    assert np.shares_memory(over_array.numpy(), array)
    assert over_array.shape == over_buffer.shape == (2, 3)
    assert over_array.numpy().tolist() == over_buffer.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_reshaped_strings_stay_the_same() -> None:
    tensor = Tensor.from_strings(["a", "bc"]).reshaped((2, 1))
    assert tensor.numpy().tolist() == [[b"a"], [b"bc"]]
