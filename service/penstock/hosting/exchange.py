"""Tensors over the link: small ones inside the frame, large ones in the shared arenas."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.tensor import Buffer, DataType, Tensor
from penstock.hosting.arena import SHARE_FROM, Arena, ArenaView

Spec = tuple[str, str, tuple[int, ...], int, int]
"""Name, datatype, shape, bytes, and the offset in the arena or `INSIDE`."""

Specs = list[Spec]

INSIDE = -1

_DATATYPES = {datatype.value: datatype for datatype in DataType}


class Exchange:
    """Packs tensors for one link and unpacks those that come; without arenas all go inside."""

    def __init__(self, out: Arena | None = None, into: ArenaView | None = None) -> None:
        self._out = out
        self._into = into

    def pack(self, tensors: Mapping[str, Tensor], payload: list[Buffer]) -> Specs:
        """Describe `tensors`; the bytes that must be inside the frame are added to `payload`."""
        specs: Specs = []
        buffers: list[Buffer] = []
        large = False
        for name, tensor in tensors.items():
            buffer = tensor.buffer
            if type(buffer) is not bytes:
                buffer = _as_bytes(buffer)
            size = len(buffer)
            large = large or size >= SHARE_FROM
            buffers.append(buffer)
            specs.append((name, tensor.datatype._value_, _plain(tensor.shape), size, INSIDE))
        if large:  # only now, since making a buffer may fail: what is in the arena must be sent
            return [self._placed(*each, payload) for each in zip(specs, buffers, strict=True)]
        payload += buffers
        return specs

    def _placed(self, spec: Spec, buffer: Buffer, payload: list[Buffer]) -> Spec:
        """The description of a tensor that is where it shall be."""
        name, datatype, shape, size, _ = spec
        offset = INSIDE if size < SHARE_FROM else self._place(buffer)
        if offset == INSIDE:
            payload.append(buffer)
        return name, datatype, shape, size, offset

    def _place(self, buffer: Buffer) -> int:
        """Where a large tensor lies in the arena; inside the frame when there is no room."""
        offset = None if self._out is None else self._out.put(buffer)
        return INSIDE if offset is None else offset

    def unpack(
        self, specs: Specs, payload: memoryview, at: int = 0
    ) -> tuple[dict[str, Tensor], int]:
        """The tensors, views all of them, and where the next ones begin in the payload."""
        tensors: dict[str, Tensor] = {}
        for name, datatype, shape, size, offset in specs:
            if offset == INSIDE:
                buffer = payload[at : at + size]
                at += size
            else:
                assert self._into is not None
                buffer = self._into.view(offset, size)
            tensors[name] = Tensor(_DATATYPES[datatype], shape, buffer)
        return tensors, at


def _plain(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without numpy's integers, which would arrive as bytes."""
    for size in shape:
        if type(size) is not int:
            return tuple(map(int, shape))
    return shape


def _as_bytes(buffer: Buffer) -> Buffer:
    """The buffer with bytes as its items, so that its length is their number."""
    if isinstance(buffer, memoryview) and (buffer.format != "B" or buffer.ndim != 1):
        return buffer.cast("B") if buffer.nbytes else b""
    return buffer


INLINE = Exchange()
"""For links that share no memory."""
