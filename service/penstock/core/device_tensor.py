"""Tensors in device memory, for models of one process that share the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from penstock.core.buffer import Buffer
from penstock.core.tensor import Array, DataType, Tensor


class DeviceTensor(Tensor):
    """A tensor in device memory, copied to the host on the first use of its bytes or array.

    `device` supports DLPack, and may have another shape with as many elements. `to_host` copies it
    and blocks: so such tensors go only to models that use them on the device, or copy them on a
    thread of their own.
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
        # Both share one copy, made by the first that needs it.
        return DeviceTensor(self.datatype, shape, self._device, self.numpy)
