"""Tensors in the memory of a device, for models that share it in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from penstock.core.buffer import Buffer
from penstock.core.tensor import Array, DataType, Tensor


class DeviceTensor(Tensor):
    """A tensor as a device has it; the host gets a copy when somebody asks for bytes or an array.

    `device` speaks DLPack, and may have another shape of as many elements. `to_host` copies it,
    which blocks: so it is only given to models that take it as it is, or copy on their thread.
    """

    __slots__ = ("_device", "_to_host")

    def __init__(
        self,
        datatype: DataType,
        shape: Sequence[int],
        device: Any,
        to_host: Callable[[], Array],
    ) -> None:
        self.datatype = datatype
        self.shape = tuple(shape)
        self.shared = None
        self._buffer = self._array = None
        self._device = device
        self._to_host = to_host

    @property
    def device(self) -> Any:
        return self._device

    @property
    def buffer(self) -> Buffer:
        self.numpy()
        return super().buffer

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.datatype.itemsize

    def numpy(self) -> Array:
        if self._array is None:
            self._array = self._to_host().reshape(self.shape)
        return self._array

    def reshaped(self, shape: Sequence[int]) -> Tensor:
        # Whichever of them is asked first makes the one copy.
        return DeviceTensor(self.datatype, shape, self._device, self.numpy)
