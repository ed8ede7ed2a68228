"""Outputs that are parts of inputs: their memory goes back, once, and only if nobody sees it."""

from __future__ import annotations

import asyncio
import gc
import mmap
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.examples import examples
from penstock.core.region import HostSlice, Region, RegionSlice, SharedFile
from penstock.core.tensor import DataType, Tensor
from penstock.hosting.link.arena import SHARE_FROM, create
from penstock.hosting.link.memory import SharedMemory
from penstock.hosting.link.region_sharing import Borrower, Lender, unpack_offer
from penstock.shared_memory.block_views import Block

ROOM = 16 << 20
Tensors = dict[str, Tensor]


class Messages(Region):
    """Memory that is a request's alone; how many blocks of it are looked at is counted."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("messages")
        os.ftruncate(self.descriptor, ROOM)
        super().__init__(-7, "", ROOM)
        self.memory = memoryview(mmap.mmap(self.descriptor, ROOM))

    @property
    def exclusive(self) -> bool:
        return True

    @property
    def file(self) -> SharedFile:
        return SharedFile(self.descriptor, 0, ROOM)

    def slice(self, offset: int, size: int) -> RegionSlice:
        return HostSlice(self, offset, self.memory[offset : offset + size])

    def tensor(self, offset: int, array: np.ndarray[Any, Any]) -> Tensor:
        """A tensor that came to lie here."""
        place = self.slice(offset, array.nbytes)
        plain = Tensor.from_numpy(array)
        place.write(plain.buffer)
        return Tensor(plain.datatype, plain.shape, place.read(), place)


class ReadByOthers(Messages):
    """Memory that several models may look at, so that each has a copy of its own."""

    @property
    def exclusive(self) -> bool:
        return False


class Sides:
    """The server's and the model's side of one link."""

    def __init__(self, *, repeats: bool = False) -> None:
        inputs, outputs = create(ROOM), create(ROOM)
        self.lender = Lender(
            self._offer, lambda number: self.borrower.give_back(number), repeats=repeats
        )
        self.server = SharedMemory(out=os.dup(inputs), into=os.dup(outputs), lender=self.lender)
        self.borrower = Borrower()
        self.model = SharedMemory(out=outputs, into=inputs, borrower=self.borrower)
        self.returned: list[Block] = []
        self.server.open(self.model.free)
        self.model.open(self._hear)

    def _offer(self, data: bytes, descriptor: int) -> bool:
        offer = unpack_offer(data)
        assert self.borrower.take(offer, os.dup(descriptor)) is not None
        self.lender.accepted(offer[0])
        return True

    def _hear(self, blocks: list[Block]) -> None:
        self.returned += blocks
        self.server.free(blocks)

    def asked(self, **inputs: Tensor) -> Tensors:
        """The inputs, as the model gets them."""
        payload: list[Any] = []
        specs = self.server.codec.pack(inputs, payload)
        return self.model.codec.unpack(specs, memoryview(b"".join(payload)))[0]

    def answered(self, inputs: Tensors, outputs: Tensors) -> Tensors:
        """The outputs, as the server gets them."""
        found = dict(self.model.codec.find_parts(outputs, inputs))
        inputs.clear()
        outputs.clear()
        payload: list[Any] = []
        self.specs = self.model.codec.pack(found, payload)
        del found
        return self.server.codec.unpack(self.specs, memoryview(b"".join(payload)))[0]

    async def settle(self) -> None:
        """Let both sides hear what the other one looks at no longer."""
        gc.collect()
        for _ in range(3):
            await asyncio.sleep(0)

    @property
    def used(self) -> tuple[int, int, int]:
        """Blocks of the server's arena, of the model's, and lent ones."""
        return self.server.used, self.model.used, self.lender.kept


def _array(size: int = 4 * SHARE_FROM, start: int = 0) -> np.ndarray[Any, Any]:
    return np.arange(start, start + size // 8, dtype=np.int64)


async def test_an_input_that_is_returned_is_not_copied() -> None:
    sides = Sides()
    inputs = sides.asked(x=Tensor.from_numpy(_array()))
    (got,) = sides.answered(inputs, {"y": Tensor.from_numpy(inputs["x"].numpy())}).values()
    assert got.numpy().tolist() == _array().tolist()
    assert sides.used == (1, 0, 0)
    assert sides.returned == []
    del got
    assert sides.used == (0, 0, 0)


async def test_a_copy_of_what_others_read_comes_back_as_the_model_left_it() -> None:
    sides, memory = Sides(), ReadByOthers()
    tensor = memory.tensor(0, _array())
    sides.asked(x=tensor)  # from now on it is mapped
    inputs = sides.asked(x=tensor)
    inputs["x"].numpy()[:] = 7
    got = sides.answered(inputs, {"y": inputs["x"]})
    assert set(got["y"].numpy().tolist()) == {7}
    assert tensor.numpy().tolist() == _array().tolist()


async def test_a_slice_in_another_shape_is_not_copied() -> None:
    sides = Sides()
    inputs = sides.asked(x=Tensor.from_numpy(_array()))
    outputs = {"y": Tensor.from_numpy(inputs["x"].numpy().reshape(2, -1)[1:])}
    got = sides.answered(inputs, outputs)
    assert got["y"].numpy().tolist() == [_array()[SHARE_FROM // 4 :].tolist()]
    assert sides.used == (1, 0, 0)


async def test_an_array_that_may_only_be_read_is_not_copied() -> None:
    sides = Sides()
    inputs = sides.asked(x=Tensor.from_numpy(_array()))
    x = inputs["x"].numpy()[:]
    x.flags.writeable = False
    outputs = {"y": Tensor.from_numpy(x)}
    del x
    got = sides.answered(inputs, outputs)
    assert got["y"].numpy().tolist() == _array().tolist()
    assert sides.used == (1, 0, 0)


@pytest.mark.slow
async def test_what_the_model_still_sees_is_copied() -> None:
    sides = Sides()
    inputs = sides.asked(x=Tensor.from_numpy(_array()))
    kept = inputs["x"].numpy()
    got = sides.answered(inputs, {"y": Tensor.from_numpy(kept)})
    kept[:] = -1
    assert got["y"].numpy().tolist() == _array().tolist()
    assert sides.used == (1, 1, 0)
    del kept, got
    await sides.settle()
    assert sides.used == (0, 0, 0)


@pytest.mark.slow
async def test_one_input_that_is_two_outputs_is_copied() -> None:
    sides = Sides()
    inputs = sides.asked(x=Tensor.from_numpy(_array()))
    outputs = {name: Tensor.from_numpy(inputs["x"].numpy()) for name in "yz"}
    got = sides.answered(inputs, outputs)
    assert all(isinstance(spec[4], int) for spec in sides.specs)  # both lie in the model's arena
    assert got["y"].numpy().tolist() == got["z"].numpy().tolist() == _array().tolist()
    del got
    await sides.settle()
    assert sides.used == (0, 0, 0)


@pytest.mark.slow
async def test_what_lies_in_memory_of_the_request_is_neither_copied_there_nor_back() -> None:
    sides, messages = Sides(), Messages()
    sides.asked(x=messages.tensor(0, _array()))  # offers the region
    inputs = sides.asked(x=messages.tensor(4096, _array(start=9)))
    inputs["x"].numpy()[0] += 1  # it is the model's to write to
    got = sides.answered(inputs, {"y": Tensor.from_numpy(inputs["x"].numpy())})
    assert sides.specs[0][4] == (-7, 4096, 0)
    assert got["y"].numpy()[:3].tolist() == [10, 10, 11]
    await sides.settle()
    assert sides.used == (0, 0, 0)


async def test_a_request_that_may_come_again_stays_as_it_was() -> None:
    sides, messages = Sides(repeats=True), Messages()
    tensor = messages.tensor(0, _array())
    for _ in range(3):
        x = sides.asked(x=tensor)["x"].numpy()
        assert x[0] == 0
        x[:] = -1
    assert tensor.numpy()[1] == 1


@pytest.mark.slow
async def test_a_response_that_is_not_sent_frees_what_it_would_have_brought_back() -> None:
    sides = Sides()
    inputs = sides.asked(x=Tensor.from_numpy(_array()))
    outputs = {"y": Tensor.from_numpy(inputs["x"].numpy())}
    found = sides.model.codec.find_parts(outputs, inputs)
    inputs.clear()
    outputs.clear()
    sides.model.codec.keep_parts(found)
    await sides.settle()
    assert sides.used == (0, 0, 0)


@pytest.mark.slow
async def test_an_output_without_bytes_takes_nothing_along() -> None:
    sides = Sides()
    inputs = sides.asked(x=Tensor.from_numpy(_array()), w=Tensor.from_numpy(_array()))
    objects = np.array([object()] * 4096)
    outputs = {
        "y": Tensor.from_numpy(inputs["x"].numpy()),
        "z": Tensor(DataType.FP32, (4096,), None, array=objects),
    }
    with pytest.raises((TypeError, ValueError)):
        sides.answered(inputs, outputs)
    inputs.clear()
    outputs.clear()
    await sides.settle()
    assert sides.used == (0, 0, 0)


async def test_small_and_new_outputs_are_no_parts() -> None:
    sides = Sides()
    inputs = sides.asked(x=Tensor.from_numpy(_array()))
    x = inputs["x"].numpy()
    outputs = {"small": Tensor.from_numpy(x[:8]), "new": Tensor.from_numpy(x + 1)}
    assert sides.model.codec.find_parts(outputs, inputs) is outputs


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["same", "part", "twice", "new", "kept", "failed", "never", "late"]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(steps=STEPS, dies=st.booleans())
async def test_every_block_comes_back_once(steps: list[tuple[str, bool, bool]], dies: bool) -> None:
    """Whatever models return, keep or do not answer, and whenever clients leave."""
    sides, messages = Sides(), Messages()
    sides.asked(x=messages.tensor(0, _array()))
    await sides.settle()
    held: list[Any] = []  # by models, and by responses that are being written
    for number, (kind, lent, slow) in enumerate(steps):
        array = _array(start=number)
        place = (number + 1) << 17
        inputs = sides.asked(x=messages.tensor(place, array) if lent else Tensor.from_numpy(array))
        got = _answer(sides, kind, inputs, held)
        assert all(t.numpy()[0] == number for t in got.values())
        if slow:
            held.append(got)
    if dies:
        sides.server.close()
        assert sides.lender.kept == 0
    held.clear()
    got, inputs = {}, {}
    await sides.settle()
    assert dies or sides.used == (0, 0, 0)


def _answer(sides: Sides, kind: str, inputs: Tensors, held: list[Any]) -> Tensors:
    x = inputs["x"].numpy()
    outputs = {"y": Tensor.from_numpy(x)}
    if kind == "part":
        outputs = {"y": Tensor.from_numpy(x[: SHARE_FROM // 4])}
    elif kind == "twice":
        outputs = {"y": Tensor.from_numpy(x), "z": Tensor.from_numpy(x)}
    elif kind == "new":
        outputs = {"y": Tensor.from_numpy(x + 0)}
    elif kind == "kept":
        held.append(x)
    elif kind == "late":
        held.append((dict(inputs), x))
        return {}
    elif kind == "never":
        return {}
    del x
    if kind == "failed":
        sides.model.codec.keep_parts(sides.model.codec.find_parts(outputs, inputs))
        return {}
    return sides.answered(inputs, outputs)
