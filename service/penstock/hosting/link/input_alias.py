"""Outputs that alias an input: the input's memory is returned with them instead of a copy."""

from __future__ import annotations

import ctypes

import numpy as np

from penstock.core.buffer import Buffer
from penstock.core.tensor import Tensor
from penstock.hosting.link.arena import SHARE_FROM
from penstock.shared_memory.block_views import BlockView


class InputAlias(Tensor):
    """An output at offset `at` of the input behind `view`; it does not keep the view alive.

    The memory is returned only if no other view is alive when it is sent. Otherwise the model could
    still change the input, and a copy is sent.
    """

    __slots__ = ("at", "view")

    def __init__(self, tensor: Tensor, view: BlockView, at: int) -> None:
        super().__init__(tensor.datatype, tensor.shape, view.part(at, tensor.nbytes))
        self.view = view
        self.at = at


def part_of(tensor: Tensor, given: Tensor, view: BlockView) -> InputAlias | None:
    """`tensor` as an alias of the input `given`, whose memory is `view`; `None` if it is not."""
    if view.returning or tensor.nbytes < SHARE_FROM:
        return None
    at = _address(tensor.buffer) - _address(given.buffer)
    if at < 0 or at + tensor.nbytes > given.nbytes:
        return None
    return InputAlias(tensor, view, at)


def _address(data: Buffer) -> int:
    """The address of the first byte; by numpy, which is slower, for read-only buffers."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(data))
    except TypeError:
        address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
        return address
