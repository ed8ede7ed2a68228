"""The codec of tensors on the link: small ones inside the frame, large ones in shared arenas.

Tensors in a client's memory, or in the arena of another model process, stay where they are if both
processes have mapped that memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.core.buffer import Buffer, octets
from penstock.core.region import RegionSlice
from penstock.core.tensor import DataType, Tensor
from penstock.hosting.link.arena import SHARE_FROM, Arena, ArenaView
from penstock.hosting.link.region_sharing import Borrower, Lender
from penstock.shared_memory.block_views import BlockView

Where = int | tuple[int, int] | tuple[int, int, int]
"""Location of a tensor: the offset in the sender's arena, `INSIDE`, `PLACED`, or the number of a
region and the offset in it. Of an output that returns the memory of an input: the region's number
or `ARENA`, the offset of the block, and the offset within the block."""

Spec = tuple[str, str, tuple[int, ...], int, Where]
"""Name, datatype, shape, bytes, location."""

Specs = list[Spec]

INSIDE = -1
PLACED = -2
"""In the memory that the request names for this output."""
ARENA = 0
"""The arena of the process to which memory is returned."""

Places = Mapping[str, RegionSlice]
PlaceSpecs = list[tuple[str, int, int, int]]
"""Of an output: name, number of the region, offset in it, bytes."""

NO_PLACES: Places = {}

_DATATYPES = {datatype.value: datatype for datatype in DataType}
_ITEMSIZES = {datatype: datatype.itemsize for datatype in DataType}
_EMPTY = (0,)
"""The shape of a tensor that nobody will see."""


class TensorCodec:
    """Packs and unpacks the tensors of one link; without arenas all go inside the frame.

    One that `checks` raises `ValueError` for tensors of a peer that do not have the bytes of their
    shape.
    """

    def __init__(
        self,
        out: Arena | None = None,
        into: ArenaView | None = None,
        lender: Lender | None = None,
        borrower: Borrower | None = None,
        *,
        checks: bool = False,
    ) -> None:
        self._checks = checks
        self._out = out
        self._into = into
        self._lender = lender
        self._borrower = borrower

    def pack(
        self, tensors: Mapping[str, Tensor], payload: list[Buffer], places: Places = NO_PLACES
    ) -> Specs:
        """Describe `tensors`; the bytes that must be inside the frame are added to `payload`.

        `places` are where some of them are put instead, if they fit.
        """
        if len(tensors) == 1 and not places and (spec := _small_one(tensors, payload)) is not None:
            return [spec]
        return self._pack_any(tensors, payload, places)

    def _pack_any(
        self, tensors: Mapping[str, Tensor], payload: list[Buffer], places: Places
    ) -> Specs:
        specs: Specs = []
        buffers: list[Buffer] = []
        lent: list[RegionSlice] = []
        large = False
        for name, tensor in tensors.items():
            if places or tensor.shared is not None:
                where = self._elsewhere(name, tensor, places)
                if where is not None:
                    shape = _plain(tensor.shape)
                    specs.append((name, tensor.datatype._value_, shape, tensor.nbytes, where))
                    buffers.append(b"")
                    if where != PLACED and tensor.shared is not None:
                        lent.append(tensor.shared)
                    continue
            buffer = tensor.buffer
            if type(buffer) is not bytes:
                buffer = octets(buffer)
            size = len(buffer)
            large = large or size >= SHARE_FROM
            buffers.append(buffer)
            specs.append((name, tensor.datatype._value_, _plain(tensor.shape), size, INSIDE))
        if lent and self._lender is not None:  # only now, as below: what is lent must be sent
            self._lender.keep(lent)
        if large:  # only now, since making a buffer may fail: what is in the arena must be sent
            every = zip(specs, buffers, tensors.values(), strict=True)
            return [self._placed(*each, payload) for each in every]
        payload += buffers
        return specs

    def _placed(self, spec: Spec, buffer: Buffer, tensor: Tensor, payload: list[Buffer]) -> Spec:
        """Put one of several large tensors where it is to travel; its final description."""
        name, datatype, shape, size, where = spec
        if where != INSIDE:
            return spec
        if isinstance(tensor, InputAlias):
            where = self._place_part(tensor)
        elif size >= SHARE_FROM:
            where = self._place(buffer)
        if where == INSIDE:
            payload.append(buffer)
        return name, datatype, shape, size, where

    def _place(self, buffer: Buffer) -> int:
        """Copy a large tensor into the arena; its offset, or `INSIDE` when there is no room."""
        offset = None if self._out is None else self._out.put(buffer)
        return INSIDE if offset is None else offset

    def _place_part(self, tensor: InputAlias) -> Where:
        """Return the memory of an input if it has no other view; else copy."""
        view = tensor.view
        seen = view.hold()  # for as long as it is copied
        if seen is not None:
            return self._place(tensor.buffer)
        block = view.block
        return (ARENA, block, tensor.at) if isinstance(block, int) else (*block, tensor.at)

    def find_parts(
        self, outputs: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """The outputs, with aliases for those that are parts of inputs; these hold no view.

        They must be sent, or passed to `keep_parts`.
        """
        parts: dict[str, Tensor] = {}
        try:
            for given in inputs.values():
                if (view := self._view(given.buffer)) is not None:
                    self._claim(view, given, outputs, parts)
        except BaseException:  # what a model answers may not even have bytes
            self.keep_parts(parts)
            raise
        return {**outputs, **parts} if parts else outputs

    def _claim(
        self,
        view: BlockView,
        given: Tensor,
        outputs: Mapping[str, Tensor],
        parts: dict[str, Tensor],
    ) -> None:
        for name, tensor in outputs.items():
            if name not in parts and (part := part_of(tensor, given, view)) is not None:
                parts[name] = part
                view.claim()
                return  # memory is returned once

    def keep_parts(self, outputs: Mapping[str, Tensor]) -> None:
        """Undo `find_parts` for outputs that are not sent after all."""
        for tensor in outputs.values():
            if isinstance(tensor, InputAlias):
                tensor.view.give_up()

    def _view(self, data: Buffer) -> BlockView | None:
        """The view behind an input, if its memory can be returned with a response."""
        if self._into is not None and (view := self._into.views.find(data)) is not None:
            return view
        return None if self._borrower is None else self._borrower.views.find(data)

    def _elsewhere(self, name: str, tensor: Tensor, places: Places) -> Where | None:
        """The location of a tensor in memory that both processes map, if it is or fits there."""
        if (shared := tensor.shared) is not None and shared.size >= SHARE_FROM:
            if self._lender is not None and self._lender.lends(shared):
                return shared.region.number, shared.offset
            return None
        place = places.get(name)
        if place is None or tensor.nbytes > place.size:
            return None
        place.write(tensor.buffer)
        return PLACED

    def unpack(
        self, specs: Specs, payload: memoryview, at: int = 0, places: Places = NO_PLACES
    ) -> tuple[dict[str, Tensor], int]:
        """The tensors, all of them views, and where the next ones begin in the payload.

        `places` are those that the request has named for its outputs.
        """
        tensors: dict[str, Tensor] = {}
        for name, datatype, shape, size, offset in specs:
            if offset == INSIDE:
                tensors[name] = Tensor(_DATATYPES[datatype], shape, payload[at : at + size])
                at += size
            elif offset == PLACED:
                tensors[name] = _in_place(datatype, shape, size, places.get(name))
            else:
                tensors[name] = self._seen(datatype, shape, size, offset)
        if self._checks:
            for (name, _, _, size, _), tensor in zip(specs, tensors.values(), strict=True):
                _check(name, tensor, size)
        return tensors, at

    def _seen(self, datatype: str, shape: tuple[int, ...], size: int, where: Where) -> Tensor:
        """A tensor in the peer's arena, in a lent region, or in memory that the peer returns."""
        if isinstance(where, int):
            assert self._into is not None
            block = self._into.view(where, size)
            return Tensor(_DATATYPES[datatype], shape, block, self._into.place(where, block))
        if len(where) == 3:
            return Tensor(_DATATYPES[datatype], shape, self._taken_back(*where, size))
        assert self._borrower is not None
        return Tensor(_DATATYPES[datatype], shape, self._borrower.view(*where, size))

    def _taken_back(self, number: int, offset: int, at: int, size: int) -> Buffer:
        """A part of an input that this side sent, and that the peer returns with its contents."""
        if number == ARENA:
            assert self._out is not None
            return self._out.take_back(offset, at, size)
        assert self._lender is not None
        return memoryview(self._lender.returned(number, offset).read())[at : at + size]

    def pack_places(self, places: Places) -> PlaceSpecs:
        """Describe the locations of outputs in regions that the peer has mapped."""
        lender = self._lender
        if lender is None or not places:
            return []
        return [
            (name, place.region.number, place.offset, place.size)
            for name, place in places.items()
            if lender.lends(place)
        ]

    def unpack_places(self, specs: PlaceSpecs) -> Places:
        """The locations of outputs."""
        borrower = self._borrower
        if borrower is None or not specs:
            return NO_PLACES
        found = {name: borrower.slice(*where) for name, *where in specs}
        return {name: place for name, place in found.items() if place is not None}


def _small_one(tensors: Mapping[str, Tensor], payload: list[Buffer]) -> Spec | None:
    """Describe the only tensor if it is small and goes inside the frame, as a token's text does."""
    ((name, tensor),) = tensors.items()
    buffer = tensor.buffer
    if type(buffer) is not bytes or len(buffer) >= SHARE_FROM or tensor.shared is not None:
        return None
    payload.append(buffer)
    return name, tensor.datatype._value_, _plain(tensor.shape), len(buffer), INSIDE


def _in_place(
    datatype: str, shape: tuple[int, ...], size: int, place: RegionSlice | None
) -> Tensor:
    """A tensor that the peer has written to the memory that the request names.

    Without a place the request was cancelled, and the tensor is discarded.
    """
    if place is None:
        return Tensor(_DATATYPES[datatype], _EMPTY, b"")
    return Tensor(_DATATYPES[datatype], shape, memoryview(place.read())[:size], place)


def _check(name: str, tensor: Tensor, size: int) -> None:
    """Raise `ValueError` unless the tensor has `size` bytes, and they are those of its shape."""
    shape = tensor.shape
    if len(tensor.buffer) != size and shape is not _EMPTY:
        raise ValueError(f"output '{name}' has {len(tensor.buffer)} of {size} bytes")
    itemsize = _ITEMSIZES[tensor.datatype]
    if itemsize:
        for length in shape:
            itemsize *= length
        if itemsize != size and shape is not _EMPTY:
            raise ValueError(f"output '{name}' of shape {shape} has {size} bytes")


def _plain(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape without numpy's integers, which would arrive as bytes."""
    for size in shape:
        if type(size) is not int:
            return tuple(map(int, shape))
    return shape


INLINE = TensorCodec()
"""For links that share no memory."""


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
