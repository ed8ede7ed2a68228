"""The link between server and model process: its frames, its asyncio protocol, and its pulse.

A frame is `total length, header length, kind` (two 32-bit little-endian numbers and a byte), a
header of plain values, then the tensors' bytes in the order that the header lists them. A model
process trusts the server, whose headers are marshalled: nothing is faster, and any Python reads it.
The server does not trust the process, in which foreign code runs: what comes from there is msgpack,
decoded into the types of its kind (`parent.answer_types`), in frames of bounded size.

The pulse is a socket beside the link for liveness and readiness probes of a model process.
A thread of the process's own answers, and needs Python's lock for a moment only, so that an answer
waits for no execution; a process that is stopped, or whose code holds the lock, gives none.
Probes and answers are single bytes. Offers of regions come with their files (SCM_RIGHTS), for which
the link itself would need another kind of reads. The socket keeps messages apart (SOCK_SEQPACKET).
"""

from __future__ import annotations

import asyncio
import marshal
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum, unique
from typing import Any, cast

from penstock.core.buffer import Buffer
from penstock.hosting.link.messages import Kind
from penstock.hosting.link.plain_values import dumps
from penstock.hosting.link.region_sharing import OFFER_SIZE, Offer, unpack_offer

_PREFIX = struct.Struct("<IIB")
_MARSHAL_VERSION = 4
"""Readable by every Python this runs on, so that both ends may be of different versions."""

_JOIN_BELOW = 32 * 1024
"""Smaller parts are joined before they are written; larger ones are passed as they are."""

Message = tuple[int, Any, memoryview]
"""Kind, header and payload; the payload's memory stays valid while it has a view."""


LARGEST = 1 << 31
"""Bytes of a frame of a model process; its large tensors lie in shared memory."""

LARGEST_HEAD = 16 << 20
"""Bytes of the header of such a frame, unless it has files."""

_LARGEST_WITH_FILES = 1 << 30
"""Bytes of the header by which a model loads another model, with its files."""

Decode = Callable[[Any], Any]
"""The header in these bytes; raises anything for others."""


class BrokenFrameError(Exception):
    """The peer does not keep to the protocol; nothing that it has sent later can be read."""


def encode(kind: int, header: Any, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Encode a frame of the server, as parts to be written in order."""
    head = marshal.dumps(header, _MARSHAL_VERSION)
    size = _PREFIX.size + len(head) + sum(map(len, payload))
    return [_PREFIX.pack(size, len(head), kind) + head, *payload]


def encode_answer(kind: int, header: Any, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Encode a frame of a model process; raises `ValueError` for what the server would refuse."""
    head = dumps(header)
    size = _PREFIX.size + len(head) + sum(map(len, payload))
    if not _fits(kind, len(head), size):
        raise ValueError(
            f"a message of {size} bytes, {len(head)} of them for names, parameters and texts,"
            f" exceeds the limit of {LARGEST} bytes, {LARGEST_HEAD} of them for these"
        )
    return [_PREFIX.pack(size, len(head), kind) + head, *payload]


def _fits(kind: int, head: int, size: int) -> bool:
    """Whether a frame of a model process may be so large."""
    if head > LARGEST_HEAD and (kind != Kind.CONTROL or head > _LARGEST_WITH_FILES):
        return False
    return size <= LARGEST


def joined(parts: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes in fewer parts: runs of small ones become one."""
    result: list[Buffer] = []
    run: list[Buffer] = []
    for part in parts:
        if len(part) < _JOIN_BELOW:
            run.append(part)
            continue
        if run:
            result.append(b"".join(run))
            run = []
        result.append(part)
    if run:
        result.append(b"".join(run))
    return result


class FrameReader:
    """Parses messages from a stream of bytes, wherever it is cut.

    Without `decoders`, by kinds, they are the server's. Raises `BrokenFrameError` for what is no
    frame, and what a decoder raises.
    """

    def __init__(self, decoders: Mapping[int, Decode] | None = None) -> None:
        self._decoders = decoders
        self._parts: list[bytes | bytearray] = []
        self._have = 0
        self._need = 0

    def feed(self, data: bytes | bytearray) -> Iterator[Message]:
        """Yield every complete message; to be consumed before the next call.

        Payloads are views of `data`, writable when it is a bytearray.
        """
        if self._parts:
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._need:
                return
            data = type(data)().join(self._parts)
            self._parts = []
        view, at, end = memoryview(data), 0, len(data)
        while end - at >= _PREFIX.size:
            size, head, kind = _PREFIX.unpack_from(data, at)
            if end - at < size:
                break
            begin = at + _PREFIX.size
            if size < _PREFIX.size + head:
                raise BrokenFrameError(f"a header of {head} bytes in a frame of {size}")
            header = self._decode(kind, view[begin : begin + head])
            yield kind, header, view[begin + head : at + size]
            at += size
        if at < end:
            self._keep(data[at:])

    def _keep(self, rest: bytes | bytearray) -> None:
        """Buffer an incomplete frame, and how many bytes complete it, or at least its prefix."""
        self._parts = [rest]
        self._have = len(rest)
        whole = len(rest) >= _PREFIX.size
        self._need = _PREFIX.size
        if whole:
            self._need, head, kind = _PREFIX.unpack_from(rest)
            if self._decoders is not None and not _fits(kind, head, self._need):
                raise BrokenFrameError(f"a frame of {self._need} bytes with {head} of a header")

    def _decode(self, kind: int, head: memoryview) -> Any:
        if self._decoders is None:
            return marshal.loads(head)
        decode = self._decoders.get(kind)
        if decode is None:
            raise BrokenFrameError(f"a message of kind {kind}, which is none of a model process")
        return decode(head)


MOST_ITEMS = 4096
"""Items of a list that share a frame."""

Handler = Callable[[Any, memoryview], None]
"""Is called with the header and the payload of a message."""

Unsent = Callable[[int, Any, ValueError], None]
"""Is called with the kind and the header of a message that cannot be sent, and the reason."""


class Link(asyncio.Protocol):
    """One end of the socket. Each message is passed to the handler of its kind.

    Frames that are queued with `hold` are not written while `busy()`, unless another is sent.
    `reads` counts how often something was received. The server's end has `decoders` of what a model
    process sends, which it does not trust: `on_broken` is called with what is wrong with it, be it
    found by a decoder or by a handler, and nothing is read any more. A model process's end calls
    `on_unsent` for each message, or item of a list, that is too large for the server.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        on_lost: Callable[[], None],
        busy: Callable[[], bool] = lambda: False,
        decoders: Mapping[int, Decode] | None = None,
        on_broken: Callable[[Exception], None] | None = None,
        on_unsent: Unsent | None = None,
    ) -> None:
        self._handlers = handlers
        self._on_lost = on_lost
        self._busy = busy
        self._transport: asyncio.WriteTransport | None = None
        self._on_broken = on_broken
        self._on_unsent = on_unsent
        self._encode = encode_answer if decoders is None else encode
        self._frames = FrameReader(decoders)
        self._out: list[Buffer] = []
        self._kind = 0
        self._items: list[Any] = []
        self._payload: list[Buffer] = []
        self._payload_ends: list[int] = []
        self._planned = self._urgent = False
        self._loop = asyncio.get_running_loop()
        self._broken = False
        self.reads = 0

    def send(self, kind: int, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Queue a frame, written with all others of this loop turn; dropped after the end."""
        if self._transport is None:
            return
        self._urgent = True
        self._plan_flush()
        self._append(kind, header, payload)

    def hold(self, kind: int, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Queue a frame that must not wake a busy reader."""
        if self._transport is None:
            return
        self._plan_flush()
        self._append(kind, header, payload)

    def release(self) -> None:
        """Write the held frames in this loop turn: the reader is about to need them."""
        if self._out:
            self._urgent = True
            self._plan_flush()

    def _append(self, kind: int, header: Any, payload: Sequence[Buffer]) -> None:
        if self._items:
            self._end_list()
        self._out += self._encoded(kind, header, header, payload)

    def add(self, kind: int, item: Any, payload: Sequence[Buffer] = ()) -> None:
        """Queue an item of a list; items of one kind that follow each other share a frame."""
        if self._transport is None:
            return
        self._urgent = True
        self._plan_flush()
        if self._items and kind != self._kind:
            self._end_list()
        self._kind = kind
        self._items.append(item)
        self._payload += payload
        self._payload_ends.append(len(self._payload))
        if len(self._items) == MOST_ITEMS:
            self._end_list()

    def _plan_flush(self) -> None:
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._flush_due)

    def _end_list(self) -> None:
        kind, items, payload, ends = self._kind, self._items, self._payload, self._payload_ends
        self._items, self._payload, self._payload_ends = [], [], []
        try:
            self._out += self._encode(kind, items, payload)
        except ValueError:  # each on its own, and those that are too large not at all
            begin = 0
            for item, end in zip(items, ends, strict=True):
                self._out += self._encoded(kind, [item], item, payload[begin:end])
                begin = end

    def _encoded(
        self, kind: int, header: Any, subject: Any, payload: Sequence[Buffer]
    ) -> list[Buffer]:
        """A frame; none if it cannot be sent, of which `on_unsent` is told by its subject."""
        try:
            return self._encode(kind, header, payload)
        except ValueError as error:
            if self._on_unsent is None:
                raise
            self._on_unsent(kind, subject, error)
            return []

    def _flush_due(self) -> None:
        self._planned = False
        if self._urgent or not self._busy():
            self.flush()

    def flush(self) -> None:
        """Write the queued frames."""
        self._urgent = False
        if self._items:
            self._end_list()
        out, self._out = self._out, []
        if out and self._transport is not None:
            self._transport.writelines(out if len(out) == 1 else joined(out))

    def close(self) -> None:
        """Close the socket after the queued frames were written."""
        if self._transport is not None:
            self.flush()
            self._transport.close()

    # -- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        if self._broken:
            return
        try:
            for kind, header, payload in self._frames.feed(data):
                self._handlers[kind](header, payload)
        except Exception as error:  # a peer may send anything
            if self._on_broken is None:
                raise
            self._broken = True
            self._on_broken(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._out.clear()
        self._items.clear()
        self._payload.clear()
        self._payload_ends.clear()
        self._on_lost()


@unique
class Probe(IntEnum):
    """A byte that the server sends; REGION is followed by an offer, and comes with its file."""

    LIVENESS = 1
    READINESS = 2
    REGION = 3


_INT = struct.Struct("i")
_CLOSED_IN_CHILDREN = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


@unique
class Answer(IntEnum):
    """Answers of the model process."""

    ALIVE = 1
    READY = 2
    NOT_READY = 3


class Pulse:
    """The model process's end; its thread answers liveness probes from construction on.

    `on_readiness` is called in that thread for a readiness probe. It must not block, and be
    followed by `answer`, from any thread. `on_offer` gets the offer of a region and its
    descriptor.
    """

    def __init__(
        self,
        descriptor: int,
        on_readiness: Callable[[], object],
        on_offer: Callable[[Offer, int], object],
    ) -> None:
        os.set_inheritable(descriptor, False)
        self._connection = socket.socket(fileno=descriptor)
        self._on_readiness = on_readiness
        self._on_offer = on_offer
        threading.Thread(target=self._serve, name="pulse", daemon=True).start()

    def answer(self, *, ready: bool) -> None:
        """Answer a readiness probe."""
        self._send(Answer.READY if ready else Answer.NOT_READY)

    def _serve(self) -> None:
        # The server or the model has closed the socket; or the event loop to notify is closed.
        with self._connection, suppress(OSError, RuntimeError):
            while received := self._receive():
                self._handle(*received)

    def _receive(self) -> tuple[bytes, list[int]] | None:
        """A message and its descriptors; `None` at the end."""
        # `socket.recv_fds` leaves descriptors open in what the model starts.
        room, flags = socket.CMSG_LEN(_INT.size), _CLOSED_IN_CHILDREN
        message, ancillary, _, _ = self._connection.recvmsg(1 + OFFER_SIZE, room, flags)
        descriptors = [
            _INT.unpack_from(data)[0]
            for level, kind, data in ancillary
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        ]
        return (message, descriptors) if message else None

    def _handle(self, message: bytes, descriptors: list[int]) -> None:
        if message[0] == Probe.LIVENESS:
            self._send(Answer.ALIVE)
        elif message[0] == Probe.READINESS:
            self._on_readiness()
        elif descriptors:  # none, if this process has too many files open
            self._on_offer(unpack_offer(message[1:]), descriptors[0])

    def _send(self, answer: Answer) -> None:
        with suppress(OSError):
            self._connection.send(bytes((answer,)))
