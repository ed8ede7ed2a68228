"""Outputs that are a part of an input as it came: they go back with its memory, not copied."""

from __future__ import annotations

import ctypes

import numpy as np

from penstock.core.buffer import Buffer
from penstock.core.tensor import Tensor
from penstock.hosting.link.arena import SHARE_FROM
from penstock.shared_memory.block_views import BlockView


class InputAlias(Tensor):
    """What a model returned of the memory `view`, from `at`; it does not keep the view alive.

    Only if nobody else does when it is sent, its memory goes back: else whoever still sees the
    input might change it, and a copy is sent.
    """

    __slots__ = ("at", "view")

    def __init__(self, tensor: Tensor, view: BlockView, at: int) -> None:
        super().__init__(tensor.datatype, tensor.shape, view.part(at, tensor.nbytes))
        self.view = view
        self.at = at


def part_of(tensor: Tensor, given: Tensor, view: BlockView) -> InputAlias | None:
    """`tensor` as a part of the input `given`, whose memory is `view`; `None` if it is none."""
    if view.returning or tensor.nbytes < SHARE_FROM:
        return None
    at = _address(tensor.buffer) - _address(given.buffer)
    if at < 0 or at + tensor.nbytes > given.nbytes:
        return None
    return InputAlias(tensor, view, at)


def _address(data: Buffer) -> int:
    """Where the bytes begin. numpy, which is slower, knows it of those that are read-only too."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(data))
    except TypeError:
        address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
        return address
