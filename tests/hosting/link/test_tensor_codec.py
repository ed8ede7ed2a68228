"""Tensors over a link: small ones inside the frame, large ones in shared memory."""

from __future__ import annotations

import os

import numpy as np
import pytest

from penstock.core.buffer import Buffer
from penstock.core.tensor import DataType, Tensor
from penstock.hosting.link.arena import SHARE_FROM, Arena, ArenaView, create
from penstock.hosting.link.tensor_codec import INLINE, INSIDE, TensorCodec


class Pair:
    """A sender and a receiver that share `size` bytes of memory."""

    def __init__(self, size: int = 1 << 24) -> None:
        descriptor = create(size)
        self.arena = Arena(descriptor)
        self.sender = TensorCodec(out=self.arena)
        self.receiver = TensorCodec(into=ArenaView(descriptor, self.arena.free))
        os.close(descriptor)

    def pass_on(self, **tensors: Tensor) -> tuple[dict[str, Tensor], int]:
        """The tensors as they arrive, and how many bytes travelled inside the frame."""
        payload: list[Buffer] = []
        specs = self.sender.pack(tensors, payload)
        data = b"".join(payload)
        arrived, _ = self.receiver.unpack(specs, memoryview(data))
        return arrived, len(data)


def test_small_tensor_travels_inside() -> None:
    tensor = Tensor.from_numpy(np.arange(SHARE_FROM - 1, dtype=np.uint8))
    arrived, inside = Pair().pass_on(x=tensor)
    assert inside == SHARE_FROM - 1
    assert (arrived["x"].numpy() == tensor.numpy()).all()


def test_large_tensor_travels_in_shared_memory() -> None:
    tensor = Tensor.from_numpy(np.arange(SHARE_FROM, dtype=np.int32).reshape(-1, 2))
    arrived, inside = Pair().pass_on(x=tensor)
    assert inside == 0
    assert (arrived["x"].numpy() == tensor.numpy()).all()


def test_block_is_free_when_the_tensor_is_gone() -> None:
    pair = Pair()
    arrived, _ = pair.pass_on(x=Tensor(DataType.UINT8, (SHARE_FROM,), bytes(SHARE_FROM)))
    array = arrived.pop("x").numpy()
    assert pair.arena.used == 1
    del array
    assert pair.arena.used == 0


def test_tensor_travels_inside_when_there_is_no_room() -> None:
    tensor = Tensor(DataType.UINT8, (1 << 20,), bytes(1 << 20))
    arrived, inside = Pair(1 << 16).pass_on(x=tensor)
    assert inside == 1 << 20
    assert arrived["x"].nbytes == 1 << 20


def test_tensors_of_all_ways_keep_their_names() -> None:
    sizes = {"a": 3, "b": SHARE_FROM, "c": 0, "d": SHARE_FROM + 1, "e": 1}
    tensors = {
        name: Tensor(DataType.UINT8, (size,), name.encode() * size) for name, size in sizes.items()
    }
    arrived, inside = Pair().pass_on(**tensors)
    assert inside == 4
    assert {name: bytes(tensor.buffer) for name, tensor in arrived.items()} == {
        name: name.encode() * size for name, size in sizes.items()
    }


def test_everything_is_inside_without_shared_memory() -> None:
    payload: list[Buffer] = []
    ((*_, offset),) = INLINE.pack({"x": Tensor(DataType.INT8, (99_999,), bytes(99_999))}, payload)
    assert offset == INSIDE
    assert len(payload[0]) == 99_999


@pytest.mark.parametrize("shape", [(3, 4), (), (0, 5)])
def test_view_of_any_shape_and_item_is_taken_as_bytes(shape: tuple[int, ...]) -> None:
    values = np.ones(shape, np.float64)
    arrived, inside = Pair().pass_on(x=Tensor(DataType.FP64, shape, values.data))
    assert inside == values.nbytes
    assert arrived["x"].numpy().tolist() == values.tolist()


def test_tensor_that_cannot_be_written_leaves_no_block_behind() -> None:
    gone = memoryview(b"x")
    broken = Tensor(DataType.UINT8, (1,), gone)
    gone.release()
    pair = Pair()
    good = Tensor(DataType.UINT8, (SHARE_FROM,), bytes(SHARE_FROM))
    with pytest.raises(ValueError, match="released memoryview"):
        pair.pass_on(good=good, broken=broken)
    assert pair.arena.used == 0
