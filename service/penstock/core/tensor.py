"""Tensors: a datatype, a shape and one buffer, viewed as a numpy array on demand."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.core.buffer import Buffer
from penstock.core.errors import InvalidRequestError
from penstock.core.region import RegionSlice
from penstock.core.turns import Steps, finished

Array = NDArray[Any]

_LENGTH = struct.Struct("<I")


class DataType(StrEnum):
    """Datatypes by their KServe names (contract G-28); INVALID is refused in requests."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"
    BF16 = "BF16"
    INVALID = "<invalid>"

    @property
    def itemsize(self) -> int:
        """Bytes per element; 0 for BYTES, whose elements vary."""
        return _ITEMSIZE[self]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype. BYTES are objects; BF16, unknown to numpy, is its bits in uint16."""
        return _NUMPY[self]

    @property
    def config_name(self) -> str:
        """The name in a model configuration, such as TYPE_FP32 or TYPE_STRING."""
        return "TYPE_STRING" if self is DataType.BYTES else f"TYPE_{self.name}"

    @classmethod
    def from_config(cls, name: str) -> DataType:
        """The datatype of a configuration name; raises `ValueError` for an unknown name."""
        found = _FROM_CONFIG.get(name)
        if found is None:
            raise ValueError(f"'{name}' is not a datatype of a model configuration")
        return found

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DataType:
        """The datatype that holds `dtype`; raises `ValueError` when there is none."""
        if found := _FROM_NUMPY.get(dtype):
            return found
        if dtype.kind in "OSU":
            return cls.BYTES
        found = _FROM_NUMPY.get(dtype.newbyteorder("="))
        if found is None and dtype.name == "bfloat16":  # of the package `ml_dtypes`
            return cls.BF16
        if found is None:
            raise ValueError(f"numpy dtype {dtype} has no tensor datatype")
        return found


_NUMPY: dict[DataType, np.dtype[Any]] = {
    DataType.BOOL: np.dtype(np.bool_),
    DataType.UINT8: np.dtype(np.uint8),
    DataType.UINT16: np.dtype(np.uint16),
    DataType.UINT32: np.dtype(np.uint32),
    DataType.UINT64: np.dtype(np.uint64),
    DataType.INT8: np.dtype(np.int8),
    DataType.INT16: np.dtype(np.int16),
    DataType.INT32: np.dtype(np.int32),
    DataType.INT64: np.dtype(np.int64),
    DataType.FP16: np.dtype(np.float16),
    DataType.FP32: np.dtype(np.float32),
    DataType.FP64: np.dtype(np.float64),
    DataType.BYTES: np.dtype(np.object_),
    DataType.BF16: np.dtype(np.uint16),
    DataType.INVALID: np.dtype(np.void),
}
_VARYING = (DataType.BYTES, DataType.INVALID)
_ITEMSIZE = {t: 0 if t in _VARYING else dtype.itemsize for t, dtype in _NUMPY.items()}
_COUNTED_AT_ONCE = 4096
"""BYTES elements that are counted in a step, a millisecond at most."""
_COMPARED_AT_ONCE = 32 << 10
"""BYTES elements whose lengths are compared in a step."""
_COPY_UP_TO = 4096
"""Bytes of an array up to which a copy is cheaper than a view."""
_FROM_CONFIG = {t.config_name: t for t in DataType if t is not DataType.INVALID}
_FROM_NUMPY = {
    dtype: t for t, dtype in _NUMPY.items() if t not in _VARYING and t is not DataType.BF16
}


class CutLengthError(InvalidRequestError):
    """A BYTES buffer ends within an element's length prefix, after `available` bytes of it."""

    def __init__(self, message: str, available: int) -> None:
        super().__init__(message)
        self.available = available


class Tensor:
    """An immutable tensor.

    `buffer` holds the elements in row-major order, little-endian; BYTES elements are each preceded
    by a 4-byte length (contract G-29). `numpy()` is a view of it wherever numpy can hold one. A
    tensor may be made of an `array` alone, from which the buffer is made on demand.
    `shared` is the slice of a shared-memory region that holds the buffer, if it is in one.
    `count` is the number of BYTES elements in the buffer, where its maker has counted them, or the
    error that counting them has ended with.
    """

    __slots__ = ("_array", "_buffer", "count", "datatype", "shape", "shared")

    def __init__(
        self,
        datatype: DataType,
        shape: Sequence[int],
        buffer: Buffer | None,
        shared: RegionSlice | None = None,
        array: Array | None = None,
        count: int | InvalidRequestError | None = None,
    ) -> None:
        self.datatype = datatype
        self.shape = tuple(shape)
        self.shared = shared
        self.count = count
        self._buffer = buffer
        self._array = array

    @classmethod
    def from_numpy(cls, array: Array, datatype: DataType | None = None) -> Tensor:
        """A tensor over `array`, which must not be changed afterwards; of strings, a copy.

        `datatype` is needed only for BF16 whose bit patterns come as uint16.
        """
        datatype = datatype or DataType.from_numpy(array.dtype)
        if datatype is DataType.BF16:
            array = array.view(np.uint16)  # that of `ml_dtypes` gives no buffer
        if datatype is DataType.BYTES:
            return cls(datatype, array.shape, encode_elements(map(_as_bytes, array.flat)))
        return cls(datatype, array.shape, None, array=array)

    @classmethod
    def from_strings(
        cls, values: Iterable[str | bytes], shape: Sequence[int] | None = None
    ) -> Tensor:
        """A BYTES tensor; one dimension unless `shape` says otherwise."""
        elements = [v.encode() if isinstance(v, str) else v for v in values]
        shape = (len(elements),) if shape is None else shape
        return cls(DataType.BYTES, shape, encode_elements(elements), count=len(elements))

    @property
    def device(self) -> Any:
        """The tensor in device memory, as an object with DLPack support; `None` on the host."""
        return None

    @property
    def buffer(self) -> Buffer:
        """The elements as bytes; C-contiguous."""
        if self._buffer is None:
            assert self._array is not None
            self._buffer = _to_buffer(self._array)
        return self._buffer

    @property
    def nbytes(self) -> int:
        """Length of `buffer` in bytes."""
        buffer = self.buffer
        return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)

    def numpy(self) -> Array:
        """The elements as an array; BYTES as `bytes` objects. Do not write to it."""
        if self._array is None:
            assert self._buffer is not None
            self._array = _to_array(self._buffer, self.datatype, self.shape)
        return self._array

    def reshaped(self, shape: Sequence[int]) -> Tensor:
        """The same elements in another shape, not copied."""
        shape = tuple(shape)
        array = None if self._array is None else self._array.reshape(shape)
        return Tensor(self.datatype, shape, self._buffer, self.shared, array, self.count)

    def elements(self) -> list[bytes]:
        """The elements of a BYTES tensor, flat."""
        return decode_elements(self.buffer)

    def __repr__(self) -> str:
        return f"Tensor({self.datatype.value}, {list(self.shape)})"


def encode_elements(elements: Iterable[bytes]) -> bytes:
    """BYTES elements, each behind its 4-byte little-endian length (contract G-29)."""
    parts: list[bytes] = []
    for element in elements:
        parts.append(_LENGTH.pack(len(element)))
        parts.append(element)
    return b"".join(parts)


def count_elements(buffer: Buffer, where: str = "", most: int | None = None) -> int:
    """Number of elements in a BYTES buffer; raises as `decode_elements` does.

    Counting ends with the length of the first element beyond `most`: the count is wrong by then.
    """
    return finished(count_in_steps(buffer, where, most))


def count_in_steps(buffer: Buffer, where: str = "", most: int | None = None) -> Steps[int]:
    """As `count_elements`, in steps. Elements of one length are counted without a look at each."""
    view = memoryview(buffer)
    end = len(view)
    last = end if most is None else most
    count = at = before = 0
    if end > _COUNTED_AT_ONCE:
        size = 4 + _LENGTH.unpack_from(view)[0]
        count = yield from _count_alike(view, size, min(end // size, last + 1))
        at = count * size
        before = max(0, at - size)
        if count > last:
            return count
    while at < end:
        before = at
        if end - at < 4:
            break
        at += 4 + _LENGTH.unpack_from(view, at)[0]
        count += 1
        if count > last:
            return count
        if not count % _COUNTED_AT_ONCE:
            yield
    if at != end:
        decode_elements(view[before:], where)  # raises
    return count


def _count_alike(view: memoryview, size: int, most: int) -> Steps[int]:
    """The number of BYTES elements at the beginning that take `size` bytes each, by slices."""
    count = 0
    while count < most:
        slice_size = min(_COMPARED_AT_ONCE, most - count)
        sizes = np.ndarray((slice_size,), "<u4", view, count * size, (size,))
        if not bool((sizes == size - 4).all()):
            break
        count += slice_size
        yield
    return count


def decode_elements(buffer: Buffer, where: str = "") -> list[bytes]:
    """The elements of a BYTES buffer; raises `InvalidRequestError` when it is cut short.

    `where` is appended in that error's text, to name the tensor.
    """
    view = memoryview(buffer)
    elements: list[bytes] = []
    at, end = 0, len(view)
    while at < end:
        if end - at < 4:
            raise CutLengthError(
                f"incomplete string length indicator{where}, expecting 4 bytes"
                f" but only {end - at} bytes available",
                end - at,
            )
        (size,) = _LENGTH.unpack_from(view, at)
        at += 4
        if end - at < size:
            raise InvalidRequestError(
                f"incomplete string data{where}, expecting string of length {size}"
                f" but only {end - at} bytes available"
            )
        elements.append(bytes(view[at : at + size]))
        at += size
    return elements


def _to_buffer(array: Array) -> Buffer:
    if array.nbytes <= _COPY_UP_TO and array.dtype.byteorder != ">":
        return array.tobytes()
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return little.reshape(-1).view(np.uint8).data


def _to_array(buffer: Buffer, datatype: DataType, shape: tuple[int, ...]) -> Array:
    if datatype is DataType.BYTES:
        elements = decode_elements(buffer)
        array = np.empty(len(elements), dtype=np.object_)
        array[:] = elements
        return array.reshape(shape)
    array = np.frombuffer(buffer, _NUMPY[datatype])
    return array if array.shape == shape else array.reshape(shape)


def _as_bytes(value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytes | bytearray) else str(value).encode()
