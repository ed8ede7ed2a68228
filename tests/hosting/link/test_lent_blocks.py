"""What one model process has written, mapped by another: not copied by the server in between."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hosting.puppets import Puppets, eventually, everything, order
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor
from penstock.hosting.link.arena import LEND_FROM, create
from penstock.hosting.link.memory import SharedMemory
from penstock.hosting.link.messages import pack_request, unpack_request
from penstock.hosting.link.region_sharing import Borrower, Lender, unpack_offer
from penstock.hosting.parent.process import ProcessInstance
from penstock.shared_memory.block_views import Block

pytestmark = pytest.mark.contract("E-19")

ROOM = 64 << 20


class Process:
    """Both sides of the memory between the server and one model process."""

    def __init__(self, *, maps: bool = True) -> None:
        inputs, outputs = create(ROOM), create(ROOM)
        self._maps = maps
        self.offers: list[Any] = []
        self.returned: list[Block] = []
        self.lender = Lender(self._offer, lambda number: self.borrower.give_back(number))
        self.server = SharedMemory(out=os.dup(inputs), into=os.dup(outputs), lender=self.lender)
        self.borrower = Borrower()
        self.model = SharedMemory(out=outputs, into=inputs, borrower=self.borrower)
        self.borrower.on_return = self.returned.append

    def _offer(self, data: bytes, descriptor: int) -> bool:
        offer = unpack_offer(data)
        self.offers.append(offer)
        if self._maps and self.borrower.take(offer, os.dup(descriptor)) is not None:
            self.lender.accepted(offer[0])
        return True

    def made(self, array: np.ndarray[Any, Any]) -> Tensor:
        """A tensor that the model has made, as it arrives at the server."""
        payload: list[Any] = []
        specs = self.model.codec.pack({"x": Tensor.from_numpy(array)}, payload)
        data = memoryview(b"".join(payload))
        return self.server.codec.unpack(specs, data)[0]["x"]

    def gets(self, tensor: Tensor) -> tuple[Tensor, bool]:
        """The tensor as it arrives in the model; and whether it was lent."""
        before = self.server.used
        header, payload = pack_request(
            1, InferenceRequest("m", inputs={"x": tensor}), self.server.codec
        )
        arrived = unpack_request(header, memoryview(b"".join(payload)), 0, self.model.codec)[1]
        return arrived.inputs["x"], self.server.used == before and not any(payload)

    def give_back(self) -> None:
        """Tell the server what the model looks at no longer."""
        gc.collect()
        returned, self.returned[:] = list(self.returned), []
        self.server.free(returned)


def _array(size: int = LEND_FROM) -> np.ndarray[Any, Any]:
    return np.arange(size // 8, dtype=np.int64)


async def test_a_block_is_copied_once_and_then_lent() -> None:
    giver, taker = Process(), Process()
    tensor = giver.made(_array())
    first, lent = taker.gets(tensor)
    assert (lent, len(taker.offers)) == (False, 1)
    again, lent = taker.gets(tensor)
    assert lent
    assert first.numpy().tolist() == again.numpy().tolist() == _array().tolist()


async def test_what_a_model_writes_to_its_input_stays_with_it() -> None:
    giver, taker = Process(), Process()
    tensor = giver.made(_array())
    taker.gets(tensor)
    mine, _ = taker.gets(tensor)
    mine.numpy()[:] = -1
    other, lent = taker.gets(tensor)
    assert lent
    assert other.numpy()[5] == tensor.numpy()[5] == 5


@pytest.mark.slow
async def test_a_block_is_kept_until_the_borrower_has_let_go_of_it() -> None:
    giver, taker = Process(), Process()
    tensor = giver.made(_array())
    taker.gets(tensor)
    arrived, _ = taker.gets(tensor)
    view = arrived.numpy()[3:]
    del tensor, arrived
    taker.give_back()
    assert (taker.lender.kept, giver.model.used) == (1, 1)
    assert view[0] == 3
    del view
    taker.give_back()
    assert taker.lender.kept == 0


@pytest.mark.slow
async def test_a_block_that_is_lent_twice_is_given_back_twice() -> None:
    giver, taker = Process(), Process()
    tensor = giver.made(_array())
    taker.gets(tensor)
    both = [taker.gets(tensor)[0], taker.gets(tensor)[0]]
    assert taker.lender.kept == 2
    both.pop()
    taker.give_back()
    assert taker.lender.kept == 1
    both.pop()
    taker.give_back()
    assert taker.lender.kept == 0


async def test_a_process_that_ends_gives_everything_back() -> None:
    giver, taker = Process(), Process()
    tensor = giver.made(_array())
    taker.gets(tensor)
    taker.gets(tensor)
    taker.server.close()
    assert taker.lender.kept == 0


@pytest.mark.slow
async def test_what_is_lent_outlives_who_has_written_it() -> None:
    giver, taker = Process(), Process()
    tensor = giver.made(_array())
    taker.gets(tensor)
    giver.server.close()
    arrived, lent = taker.gets(tensor)
    del giver, tensor
    gc.collect()
    assert lent
    assert arrived.numpy()[7] == 7


@pytest.mark.parametrize("size", [LEND_FROM - 8, 64])
async def test_a_block_that_is_cheaper_to_copy_is_copied(size: int) -> None:
    giver, taker = Process(), Process()
    tensor = giver.made(_array(size))
    for _ in range(2):
        arrived, lent = taker.gets(tensor)
        assert not lent
        assert arrived.numpy().tolist() == _array(size).tolist()
    assert taker.offers == []


async def test_a_process_that_cannot_map_it_is_sent_copies() -> None:
    giver, taker = Process(), Process(maps=False)
    tensor = giver.made(_array())
    for _ in range(3):
        arrived, lent = taker.gets(tensor)
        assert not lent
        assert arrived.numpy()[9] == 9
    assert len(taker.offers) == 1


async def test_another_shape_of_it_is_lent_as_well() -> None:
    giver, taker = Process(), Process()
    tensor = giver.made(_array()).reshaped((1, LEND_FROM // 8))
    taker.gets(tensor)
    arrived, lent = taker.gets(tensor)
    assert (lent, arrived.shape, arrived.datatype) == (True, tensor.shape, DataType.INT64)


# -- between real processes -----------------------------------------------------------------------


@pytest.mark.slow
async def test_processes_hand_tensors_on_through_the_server(tmp_path: Path) -> None:
    async with Puppets() as puppets:
        first = await puppets.start(name="first")
        second = await puppets.start(name="second")
        array = _array(4 * LEND_FROM)
        for _ in range(5):
            made = await _echo(puppets, first, Tensor.from_numpy(array))
            got = await _echo(puppets, second, made)
            assert got.numpy().tolist() == array.tolist()
        assert got.shared is not None  # it lies where the second has written it
        await eventually(lambda: _settled(second))
        held = await _echo(puppets, first, Tensor.from_numpy(array))
        waiting = order("wait", {"IN": held}, until=str(tmp_path / "now"))
        (inference,), _ = puppets.tell(second, waiting)
        await eventually(lambda: _kept(second) == 1)
        assert _blocks(second) == 0  # nothing was copied for it
        (tmp_path / "now").touch()
        await everything(inference)
        del held, made, got, inference, waiting
        await eventually(lambda: _settled(first) and _settled(second))


async def _echo(puppets: Puppets, instance: ProcessInstance, tensor: Tensor) -> Tensor:
    (inference,), _ = puppets.tell(instance, order("echo", {"IN": tensor}))
    (response,) = await everything(inference)
    return response.outputs["IN"]


def _memory(instance: ProcessInstance) -> SharedMemory:
    assert instance._process is not None
    memory = instance._process._memory
    assert memory is not None
    return memory


def _blocks(instance: ProcessInstance) -> int:
    return _memory(instance).used


def _kept(instance: ProcessInstance) -> int:
    lender = _memory(instance)._lender
    assert lender is not None
    return lender.kept


def _settled(instance: ProcessInstance) -> bool:
    gc.collect()
    return _blocks(instance) == 0 and _kept(instance) == 0
