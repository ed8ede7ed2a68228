"""Memory of clients in model processes: mapped once, read and written without a copy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.posix_memory import PosixMemory, posix_memory
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import DataType, Tensor
from penstock.hosting.link.arena import SHARE_FROM
from penstock.hosting.link.messages import (
    pack_request,
    pack_response,
    unpack_request,
    unpack_response,
)
from penstock.hosting.link.region_sharing import Borrower, Lender, unpack_offer
from penstock.hosting.link.tensor_codec import TensorCodec
from penstock.shared_memory.message_memory import MessageMemory
from penstock.shared_memory.system import SystemRegion, open_system_region
from penstock.shared_memory.tensors import put, tensor_in

SIZE = 4 * SHARE_FROM


@pytest.fixture
def memory() -> Iterator[PosixMemory]:
    with posix_memory(SIZE) as memory:
        yield memory


class Link:
    """Both sides of a link, and what the server has said to the model process about regions."""

    def __init__(self, accepts: bool = True) -> None:
        self.said: list[Any] = []
        self._accepts = accepts
        self.lender = Lender(self._offer, self._withdraw)
        self.borrower = Borrower()
        self.server = TensorCodec(lender=self.lender)
        self.process = TensorCodec(borrower=self.borrower)

    def _offer(self, data: bytes, descriptor: int) -> bool:
        offer = unpack_offer(data)
        self.said.append(offer)
        if self._accepts and self.borrower.take(offer, os.dup(descriptor)) is not None:
            self.lender.accepted(offer[0])
        return True

    def _withdraw(self, number: int) -> None:
        self.said.append(number)
        self.borrower.give_back(number)

    def ask(self, request: InferenceRequest) -> tuple[InferenceRequest, int]:
        """The request as it arrives, and how many bytes travelled inside the frame."""
        header, payload = pack_request(1, request, self.server)
        data = bytearray(b"".join(payload))
        return unpack_request(header, memoryview(data), 0, self.process)[1], len(data)

    def answer(
        self, request: InferenceRequest, arrived: InferenceRequest, **outputs: Tensor
    ) -> tuple[InferenceResponse, int]:
        """The response as it comes back, and how many bytes travelled inside the frame."""
        response = InferenceResponse(outputs)
        header, payload = pack_response(response, self.process, arrived.output_places)
        data = b"".join(payload)
        places = request.output_places
        return unpack_response(header, memoryview(data), self.server, places), len(data)


def opened(memory: PosixMemory, number: int = 1) -> SystemRegion:
    return open_system_region(number, "r", memory.key, 0, SIZE)


def asking(region: SystemRegion, offset: int = 0, size: int = SHARE_FROM) -> InferenceRequest:
    """A request with an input in the region."""
    tensor = tensor_in(region.slice(offset, size), DataType.UINT8, [size])
    return InferenceRequest("m", inputs={"x": tensor})


async def test_input_is_copied_once_and_then_stays_where_it_is(memory: PosixMemory) -> None:
    """The region is offered with the first request that needs it, which does not wait for it."""
    link, region = Link(), opened(memory)
    memory.data[0] = 1
    first, inside = link.ask(asking(region))
    assert (first.inputs["x"].numpy()[0], inside) == (1, SHARE_FROM)
    again, inside = link.ask(asking(region))
    assert (again.inputs["x"].numpy()[0], inside) == (1, 0)
    memory.data[0] = 2
    assert again.inputs["x"].numpy()[0] == 2


async def test_offset_need_not_be_that_of_a_page(memory: PosixMemory) -> None:
    link, region = Link(), opened(memory)
    link.ask(asking(region))
    offset = SHARE_FROM + 12345
    np.frombuffer(memory.data, np.uint8)[offset : offset + 3] = 7, 8, 9
    arrived, inside = link.ask(asking(region, offset))
    assert inside == 0
    assert arrived.inputs["x"].numpy()[:4].tolist() == [7, 8, 9, 0]


async def test_what_a_model_writes_to_its_input_stays_with_it(memory: PosixMemory) -> None:
    link, region = Link(), opened(memory)
    link.ask(asking(region))
    arrived, _ = link.ask(asking(region))
    arrived.inputs["x"].numpy()[:] = 5
    assert not any(memory.data)
    other, _ = link.ask(asking(region))
    assert not other.inputs["x"].numpy().any()


async def test_small_input_is_sent(memory: PosixMemory) -> None:
    """To map it costs more."""
    link, region = Link(), opened(memory)
    for _ in range(2):
        _, inside = link.ask(asking(region, size=SHARE_FROM - 1))
        assert inside == SHARE_FROM - 1
    assert link.said == []


async def test_output_is_written_by_the_process(memory: PosixMemory) -> None:
    link, region = Link(), opened(memory)
    place = region.slice(SHARE_FROM, 64)
    request = InferenceRequest("m", output_places={"y": place})
    link.ask(request)
    arrived, _ = link.ask(request)
    output = Tensor.from_numpy(np.array([3, 4], np.int64))
    response, inside = link.answer(request, arrived, y=output)
    assert inside == 0
    assert np.frombuffer(memory.data, np.int64)[SHARE_FROM // 8 :][:3].tolist() == [3, 4, 0]
    assert response.outputs["y"].numpy().tolist() == [3, 4]
    assert response.outputs["y"].shared is place
    memory.data[SHARE_FROM] = 9
    put("y", response.outputs["y"], place)  # which has nothing left to do
    assert memory.data[SHARE_FROM] == 9


async def test_output_that_does_not_fit_is_sent(memory: PosixMemory) -> None:
    """So that the client can be told how large it is."""
    link, region = Link(), opened(memory)
    request = InferenceRequest("m", output_places={"y": region.slice(0, 8)})
    link.ask(request)
    arrived, _ = link.ask(request)
    output = Tensor.from_numpy(np.array([3, 4], np.int64))
    response, inside = link.answer(request, arrived, y=output, z=output)
    assert inside == 32
    assert response.outputs["y"].nbytes == 16
    assert not any(memory.data)


async def test_process_that_cannot_map_is_sent_copies(memory: PosixMemory) -> None:
    link, region = Link(accepts=False), opened(memory)
    for _ in range(3):
        _, inside = link.ask(asking(region))
        assert inside == SHARE_FROM
    assert len(link.said) == 1


@pytest.mark.contract("G-16")
async def test_region_that_ends_is_taken_back(memory: PosixMemory) -> None:
    link, region = Link(), opened(memory)
    link.ask(asking(region))
    arrived, _ = link.ask(asking(region))
    region.close()
    del region
    await asyncio.sleep(0)
    assert link.said[-1] == 1
    memory.data[0] = 6
    assert arrived.inputs["x"].numpy()[0] == 6  # mapped as long as the model looks at it
    del arrived
    assert mappings(memory) == 1  # the client's own


def mappings(memory: PosixMemory) -> int:
    return Path("/proc/self/maps").read_text().count(memory.path.name)


async def test_request_that_outlives_its_region_does_no_harm(memory: PosixMemory) -> None:
    """It was cancelled, which the process may hear of only after it has looked."""
    link, region = Link(), opened(memory)
    request = asking(region)
    link.ask(request)
    header, _ = pack_request(1, request, link.server)
    link.borrower.give_back(1)
    _, arrived, _ = unpack_request(header, memoryview(b""), 0, link.process)
    assert not any(arrived.inputs["x"].numpy())


async def test_memory_that_was_cut_off_does_not_end_the_process(memory: PosixMemory) -> None:
    link, region = Link(), opened(memory)
    request = asking(region, SHARE_FROM)
    link.ask(request)
    os.truncate(memory.path, SHARE_FROM)
    arrived, _ = link.ask(request)
    assert not any(arrived.inputs["x"].numpy())


async def test_region_that_was_closed_is_not_offered(memory: PosixMemory) -> None:
    link, region = Link(), opened(memory)
    place = region.slice(0, SHARE_FROM)
    region.close()
    assert not link.lender.lends(place)
    assert link.said == []


@pytest.mark.parametrize("path", ["/dev/shm", "/dev/null"])
def test_what_cannot_be_mapped_is_not_borrowed(path: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert Borrower().take((1, 0, 64, False), os.open(path, os.O_RDONLY)) is None
    assert len(os.listdir("/proc/self/fd")) == before


async def test_region_that_is_gone_when_it_is_mapped_is_taken_back(memory: PosixMemory) -> None:
    said: list[Any] = []

    def offer(data: bytes, _: int) -> bool:
        said.append(unpack_offer(data))
        return True

    lender = Lender(offer, said.append)
    region = opened(memory)
    lender.lends(region.slice(0, 1))
    region.close()
    del region
    await asyncio.sleep(0)
    assert [one[0] for one in said] == [1]
    lender.accepted(1)
    assert said[1:] == [1]
    assert not lender.lends(opened(memory).slice(0, 1))


async def test_region_whose_offer_could_not_be_sent_is_offered_again(memory: PosixMemory) -> None:
    sent: list[int] = []

    def refuse(_: bytes, descriptor: int) -> bool:
        sent.append(descriptor)
        return False

    lender = Lender(refuse, lambda _: None)
    place = opened(memory).slice(0, 1)
    assert not lender.lends(place)
    assert not lender.lends(place)
    assert len(sent) == 2


async def test_memory_of_messages_is_lent_to_its_readers_only() -> None:
    memory = MessageMemory(frozenset({"m"}))
    message = memory.reserve(SIZE, 0)
    assert message is not None
    place = memory.place(message, 0, message)
    assert place is not None
    offers: list[bytes] = []

    def offer(data: bytes, _: int) -> bool:
        offers.append(data)
        return True

    Lender(offer, print, model="other").lends(place)
    assert offers == []
    Lender(offer, print, model="m").lends(place)
    assert len(offers) == 1
