"""The process on the other end of a link, and what is sent to it, as the tests say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from fakes import make_inference, make_response
from penstock.core.buffer import Buffer
from penstock.core.request import InferenceRequest
from penstock.hosting.link.arena import Arena, create
from penstock.hosting.link.link import FrameReader, Link
from penstock.hosting.link.memory import SharedMemory
from penstock.hosting.link.messages import Kind, pack_response
from penstock.hosting.parent.answer_types import DECODERS
from penstock.hosting.parent.in_flight import InFlight
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics

QUICK, SLOW = 100_000, 10_000_000
"""Nanoseconds of executions that do, and do not, let the next batch be sent early."""
NOTHING = memoryview(b"")


def nothing() -> None:
    pass


class Peer:
    """The process on the other end of a link: what it reads, and which batch it began last."""

    def __init__(self, begun: int = 0) -> None:
        inputs, outputs = create(1 << 16), create(1 << 16)
        Arena(outputs).begin(begun)
        self.memory = SharedMemory(out=inputs, into=outputs)
        self.link = Link({}, nothing, decoders=DECODERS)
        self.link.connection_made(cast(asyncio.BaseTransport, self))
        self._frames = FrameReader()
        self._messages: list[tuple[int, Any]] = []

    def writelines(self, parts: Sequence[Buffer]) -> None:
        """As of a transport."""
        data = b"".join(parts)
        self._messages += [(kind, header) for kind, header, _ in self._frames.feed(data)]

    @property
    def messages(self) -> list[tuple[int, Any]]:
        """Kinds and headers of the messages that were sent."""
        self.link.flush()
        return self._messages

    @property
    def numbers(self) -> list[int]:
        """Numbers of the requests that were sent, in their order."""
        batches = [header[1] for kind, header in self.messages if kind == Kind.EXECUTE]
        return [request[0] for batch in batches for request in batch]


def in_flight(
    peer: Peer | None = None,
    ahead: int = 1,
    limit: float | None = None,
    on_late: Callable[[], None] = lambda: None,
    *,
    serial: bool = True,
) -> InFlight:
    """Attached to a process."""
    some = InFlight(serial=serial, ahead=ahead, limit=limit)
    attach(some, peer or Peer(), on_late)
    return some


def attach(some: InFlight, peer: Peer, on_late: Callable[[], None] = lambda: None) -> None:
    """A process has started."""
    some.attach(peer.link, peer.memory, on_late)


def batch(rows: int = 1, statistics: Statistics | None = None) -> list[Inference]:
    inference = Inference(InferenceRequest("m"), rows, statistics or Statistics())
    inference.started(1)
    return [inference]


def done(some: InFlight, number: int, duration: int, waited: int = 0) -> None:
    """The process has executed a batch within so many nanoseconds."""
    some.on_done((number, 0, 0, duration, waited), NOTHING)


def done_before(some: InFlight) -> None:
    """A quick execution, so that the next batches may be sent ahead."""
    some.send([make_inference()], nothing)
    done(some, 1, QUICK)


def answer(some: InFlight, number: int, *, final: bool) -> None:
    header, _ = pack_response(make_response(1, final=final))
    some.on_response((number, header), NOTHING)


class Room:
    """How often the scheduler was called back for another batch."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
