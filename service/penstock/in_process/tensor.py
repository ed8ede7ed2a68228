"""`Tensor` and `MemoryBuffer`: tensors of requests and responses, in memory of the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core import device_tensor
from penstock.core.errors import InferenceError
from penstock.core.tensor import Array
from penstock.core.tensor import DataType as CoreType
from penstock.core.tensor import Tensor as CoreTensor
from penstock.in_process.enums import DataType, DLDeviceType, MemoryType
from penstock.in_process.errors import InvalidArgumentError, UnsupportedError

DeviceOrMemoryType = tuple[MemoryType, int] | MemoryType | tuple[DLDeviceType, int] | str


@dataclass
class MemoryBuffer:
    """Memory of a tensor, which `owner` keeps alive."""

    data_ptr: int
    memory_type: MemoryType
    memory_type_id: int
    size: int
    owner: Any

    @staticmethod
    def from_dlpack(owner: Any) -> MemoryBuffer:
        """The memory of an object with DLPack support; a copy of it if that is on a device."""
        return Tensor.from_dlpack(owner).memory_buffer


@dataclass
class Tensor:
    """A tensor. `numpy.from_dlpack` and `torch.from_dlpack` look at its memory without a copy."""

    data_type: DataType
    shape: Sequence[int]
    memory_buffer: MemoryBuffer

    # -- what it is ---------------------------------------------------------------------------

    @property
    def data_ptr(self) -> int:
        """The address of the elements."""
        return self.memory_buffer.data_ptr

    @property
    def memory_type(self) -> MemoryType:
        """The kind of its memory."""
        return self.memory_buffer.memory_type

    @property
    def memory_type_id(self) -> int:
        """The device of its memory."""
        return self.memory_buffer.memory_type_id

    @property
    def size(self) -> int:
        """Bytes."""
        return self.memory_buffer.size

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        """A capsule over the memory; raises `InvalidArgumentError` for BYTES."""
        if stream not in (None, 0):
            raise UnsupportedError(
                f"DLPack stream synchronization on memory type {self.memory_type!r} and stream"
                f" {stream} not supported"
            )
        try:
            return device_tensor.exported(core_tensor(self), **options)
        except TypeError as error:
            raise InvalidArgumentError(str(error)) from None

    def __dlpack_device__(self) -> tuple[DLDeviceType, int]:
        """The device, as DLPack numbers it."""
        return DLDeviceType.kDLCPU, 0

    # -- to others ----------------------------------------------------------------------------

    def to_bytes_array(self) -> Array:
        """The elements of a BYTES tensor as `bytes` objects; a copy."""
        if self.data_type != DataType.BYTES:
            raise InvalidArgumentError(
                f"Tensor has data type {self.data_type!r} not {DataType.BYTES!r}"
            )
        try:
            return core_tensor(self).numpy()
        except InferenceError as error:
            raise InvalidArgumentError(error.message) from error

    def to_string_array(self) -> Array:
        """The elements of a BYTES tensor as strings; a copy."""
        elements = self.to_bytes_array()
        texts = np.array([element.decode() for element in elements.flat], dtype=np.str_)
        return texts.reshape(elements.shape)

    def to_host(self) -> Tensor:
        """The tensor in memory of the host, where it is already."""
        return self.to_device(MemoryType.CPU)

    def to_device(self, device: DeviceOrMemoryType) -> Tensor:
        """The tensor on another device; raises `UnsupportedError` for all but the host."""
        wanted, number = parse_memory_type(device)
        if wanted == MemoryType.CPU and number == 0:
            return self
        here = (self.memory_type, self.memory_type_id)
        raise UnsupportedError(f"Conversion from {here} to {(wanted, number)} not supported.")

    # -- of others ----------------------------------------------------------------------------

    @staticmethod
    def from_dlpack(obj: Any) -> Tensor:
        """A tensor over the memory of an object with DLPack support, or a copy off its device."""
        if not hasattr(obj, "__dlpack__"):
            raise InvalidArgumentError("Object does not support DLPack protocol")
        try:
            return host_tensor(device_tensor.imported(obj))
        except Exception as error:  # the object is anybody's
            raise InvalidArgumentError(
                f"Object does not support DLPack protocol: {error}"
            ) from None

    @staticmethod
    def from_object(obj: Any) -> Tensor:
        """A tensor of an array, a list, a scalar, a string, or an object with DLPack support."""
        if isinstance(obj, Tensor):
            return obj
        if not isinstance(obj, np.ndarray) and hasattr(obj, "__dlpack__"):
            return Tensor.from_dlpack(obj)
        if isinstance(
            obj, list | tuple | str | bytes | bool | int | float | np.ndarray | np.generic
        ):
            return _from_array(_as_array(obj))
        raise InvalidArgumentError(
            f"Input type {type(obj)} not supported. Must be a list, a numpy array, a number or a"
            " string, or the type must support __dlpack__"
        )

    @staticmethod
    def from_bytes_array(bytes_array: Any) -> Tensor:
        """A BYTES tensor of strings or `bytes`, in a list or an array; a copy."""
        made = Tensor.from_object(bytes_array)
        if made.data_type != DataType.BYTES:
            raise InvalidArgumentError(
                f"Unsupported conversion from {bytes_array} to Triton BYTES Tensor."
                f" Got {made.data_type!r}"
            )
        return made

    @staticmethod
    def from_string_array(string_array: Any) -> Tensor:
        """A BYTES tensor of strings, in a list or an array; a copy."""
        return Tensor.from_bytes_array(string_array)


def host_tensor(tensor: CoreTensor) -> Tensor:
    """A tensor of this API over the memory of one of the core."""
    if tensor.datatype is CoreType.BYTES:
        array: Array = np.frombuffer(tensor.buffer, np.uint8)
    else:
        array = np.ascontiguousarray(tensor.numpy())
    pointer, _ = array.__array_interface__["data"]
    memory = MemoryBuffer(pointer, MemoryType.CPU, 0, array.nbytes, (array, tensor))
    return Tensor(DataType[tensor.datatype.name], list(tensor.shape), memory)


def core_tensor(tensor: Tensor) -> CoreTensor:
    """A tensor of the core over the memory of one of this API, which it keeps alive."""
    kind, shape = CoreType[tensor.data_type.name], tuple(tensor.shape)
    if kind is CoreType.BYTES:
        data = np.asarray(_Memory(tensor, "|u1", (tensor.size,)))
        return CoreTensor(kind, shape, data.data)
    array = np.asarray(_Memory(tensor, kind.numpy.str, shape))
    return CoreTensor(kind, shape, None, array=array)


class _Memory:
    """The memory of a tensor, as numpy takes it from others."""

    def __init__(self, tensor: Tensor, kind: str, shape: tuple[int, ...]) -> None:
        self._tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "typestr": kind,
            "shape": shape,
            "data": (tensor.data_ptr, False),
        }


def parse_memory_type(device: DeviceOrMemoryType) -> tuple[MemoryType, int]:
    """The kind and number of a device, such as `"gpu:1"` or `MemoryType.CPU`."""
    kind, number = device if isinstance(device, tuple) else (device, 0)
    if isinstance(kind, DLDeviceType):
        return (MemoryType.GPU if kind == DLDeviceType.kDLCUDA else MemoryType.CPU), number
    if isinstance(kind, MemoryType):
        return kind, number
    if not isinstance(kind, str):
        raise InvalidArgumentError(f"Invalid memory type {device}")
    name, colon, digits = kind.partition(":")
    if name.upper() not in MemoryType.__members__ or (colon and not digits.isdigit()):
        raise InvalidArgumentError(f"Invalid memory type string {device}")
    return MemoryType[name.upper()], int(digits) if colon else 0


def _as_array(obj: Any) -> Array:
    """An array; lists of `bytes` are objects, since numpy's own cut zeros off their ends."""
    try:
        array = np.array(obj) if not isinstance(obj, np.ndarray) else obj
    except ValueError as error:
        raise InvalidArgumentError(f"Can't convert {obj} to a tensor: {error}") from None
    if array.dtype.kind in "SU" and not isinstance(obj, np.ndarray):
        return np.array(obj, dtype=np.object_)
    return array


def _from_array(array: Array) -> Tensor:
    try:
        return host_tensor(CoreTensor.from_numpy(np.ascontiguousarray(array)))
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None
