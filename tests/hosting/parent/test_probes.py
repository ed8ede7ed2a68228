"""Probes of a model process: the two ends of the pulse."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fakes import in_virtual_time, turns
from hosting.puppets import descriptors, eventually
from penstock.hosting.link.link import Answer, Probe, Pulse
from penstock.hosting.link.region_sharing import Offer, pack_offer
from penstock.hosting.parent.model_process import Probes
from penstock.shared_memory.message_memory import MessageMemory


class Peer:
    """The model process at the other end, played by the test."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.theirs.setblocking(False)
        self.signs = 0
        self.probes = Probes(ours, self._on_sign)

    def _on_sign(self) -> None:
        self.signs += 1

    async def probed(self, size: int = 64) -> list[int]:
        return list(await asyncio.get_running_loop().sock_recv(self.theirs, size))

    def answer(self, *answers: Answer) -> None:
        self.theirs.send(bytes(answers))

    def close(self) -> None:
        self.probes.close()
        self.theirs.close()


@pytest_asyncio.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


@pytest.mark.parametrize(("answer", "ready"), [(Answer.READY, True), (Answer.NOT_READY, False)])
async def test_callers_share_one_answer(peer: Peer, answer: Answer, ready: bool) -> None:
    waiting = [asyncio.ensure_future(peer.probes.ready()) for _ in range(3)]
    assert await peer.probed() == [Probe.READINESS]
    peer.answer(answer)
    assert await asyncio.gather(*waiting) == [ready] * 3
    assert peer.signs == 1


@in_virtual_time
async def test_late_answer_counts_as_not_ready() -> None:
    peer = Peer()
    assert not await peer.probes.ready()
    assert not await peer.probes.ready()
    assert await peer.probed() == [Probe.READINESS]  # once, since it has not answered
    waiting = asyncio.ensure_future(peer.probes.ready())
    await asyncio.sleep(0)
    peer.answer(Answer.READY)
    assert await waiting
    peer.close()


async def test_cancelled_caller_leaves_the_others_waiting(peer: Peer) -> None:
    waiting = [asyncio.ensure_future(peer.probes.ready()) for _ in range(2)]
    assert await peer.probed() == [Probe.READINESS]
    waiting[0].cancel()
    peer.answer(Answer.READY)
    assert await waiting[1]


async def test_liveness_is_probed_once_until_the_answer(peer: Peer) -> None:
    peer.probes.probe_liveness()
    peer.probes.probe_liveness()
    assert await peer.probed() == [Probe.LIVENESS]
    peer.answer(Answer.ALIVE)
    await eventually(lambda: peer.signs == 1)
    peer.probes.probe_liveness()
    assert await peer.probed() == [Probe.LIVENESS]


@pytest.mark.parametrize("ends", [False, True])
async def test_end_of_the_process_means_not_ready(peer: Peer, ends: bool) -> None:
    """Also where the process has ended, and the link has not reported it yet."""
    waiting = asyncio.ensure_future(peer.probes.ready())
    await peer.probed()
    if ends:
        peer.theirs.close()
        peer.probes.probe_liveness()
        await turns()
    peer.probes.close()
    assert not await waiting
    assert not await peer.probes.ready()


def _no_offer(*_: object) -> None:
    raise AssertionError("no region is offered")


async def test_an_offer_comes_with_its_file() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    read, offers = Probes(ours, lambda: None), list[tuple[Offer, int]]()
    Pulse(theirs.detach(), lambda: None, lambda *offer: offers.append(offer))
    region = MessageMemory()
    read.probe_liveness()
    assert read.offer(pack_offer(region, region.file), region.file.descriptor)
    await eventually(lambda: len(offers) == 1)
    ((offer, descriptor),) = offers
    assert offer == (region.number, 0, region.byte_size, True)
    assert os.fstat(descriptor).st_ino == -region.number
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
    read.close()


async def test_process_that_is_gone_takes_no_offer() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    read, region = Probes(ours, lambda: None), MessageMemory()
    theirs.close()
    assert not read.offer(pack_offer(region, region.file), region.file.descriptor)
    read.close()
    assert not read.offer(pack_offer(region, region.file), region.file.descriptor)


async def test_probe_that_a_full_socket_does_not_take_is_not_awaited(peer: Peer) -> None:
    region = MessageMemory()
    while peer.probes.offer(pack_offer(region, region.file), region.file.descriptor):
        pass  # as to a process that is stopped
    peer.probes.probe_liveness()
    assert not await peer.probes.ready()
    seen: list[int] = []
    while seen != [Probe.LIVENESS]:
        seen = await peer.probed()
        peer.probes.probe_liveness()
    waiting = asyncio.ensure_future(peer.probes.ready())
    while seen != [Probe.READINESS]:
        seen = await peer.probed()
    peer.answer(Answer.READY)
    assert await waiting


async def test_both_ends_close_what_they_hold() -> None:
    before = descriptors()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    read = Probes(ours, lambda: None)
    pulse = Pulse(theirs.detach(), lambda: pulse.answer(ready=True), _no_offer)
    assert await read.ready()
    read.close()
    await eventually(lambda: descriptors() == before)


async def test_process_has_its_end_for_itself() -> None:
    """What it starts does not inherit it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    number = theirs.detach()
    os.set_inheritable(number, True)
    Pulse(number, lambda: None, _no_offer)
    assert not os.get_inheritable(number)
    ours.close()
