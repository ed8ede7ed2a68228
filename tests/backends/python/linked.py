"""A model process's link without a process, and the server's end of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from penstock.core.buffer import Buffer
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.hosting.link.arena import Arena, create
from penstock.hosting.link.link import FrameReader, Message, encode
from penstock.hosting.link.messages import Kind, pack_request, unpack_next_response
from penstock.hosting.link.tensor_codec import TensorCodec
from penstock.hosting.parent.answer_types import DECODERS
from penstock_backends.python.process.linked_runtime import LinkedRuntime
from penstock_backends.python.process.model_link import ModelLink
from penstock_backends.python.process.reply_table import ReplyTable

SIZE = 1 << 20


class Linked:
    """A `ModelLink` with runtime and reply table, and the server's end of it."""

    def __init__(self) -> None:
        self._server, self._connection = socket.socketpair()
        self._inputs, self._outputs = create(SIZE), create(SIZE)
        self.link = ModelLink(self._connection, self._inputs, self._outputs)
        self.runtime = LinkedRuntime(self.link)
        self.runtime.executing = True
        self.replies = ReplyTable(self.link)
        self._codec = TensorCodec(Arena(self._inputs))
        self._heard: list[Message] = []

    @property
    def written(self) -> bool:
        """Whether the memory that the server reads is written to."""
        return any(os.pread(self._outputs, SIZE, 0))

    def batch(self, number: int, *requests: InferenceRequest) -> tuple[Any, memoryview]:
        """Header and payload of an EXECUTE message; requests are numbered from 1."""
        packed = [pack_request(n, r, self._codec) for n, r in enumerate(requests, start=1)]
        payload = b"".join(part for _, parts in packed for part in parts)
        return (number, [header for header, _ in packed]), memoryview(bytearray(payload))

    def receive(self, kind: Kind, header: Any) -> None:
        """Have the link receive a message of the server."""
        self.tell(kind, header)
        self.link.poll()

    def tell(self, kind: Kind, header: Any) -> None:
        """Send a message of the server, for those who wait for it."""
        self._server.sendall(b"".join(encode(kind, header)))

    def hang_up(self) -> None:
        """The server leaves."""
        self._server.close()

    def next_kind(self) -> int:
        """The kind of the next message that the link sends; the test waits for it."""
        while not self._heard:
            self._server.settimeout(20)
            self._heard += messages([self._server.recv(SIZE)])
        return self._heard.pop(0)[0]

    def sent(self) -> list[Message]:
        """The messages that the link has sent since the last call."""
        with suppress(BlockingIOError):
            return messages([self._server.recv(SIZE, socket.MSG_DONTWAIT)])
        return []

    def receive_one(self) -> Message:
        """The next message that the link sends; blocks until it is complete, or the link fails."""
        reader, found = FrameReader(DECODERS), list[Message]()
        self._server.settimeout(30)
        while not found:
            found += reader.feed(bytearray(self._server.recv(SIZE)))
        return found[0]

    def close(self) -> None:
        for end in (self._server, self._connection):
            end.close()
        for descriptor in (self._inputs, self._outputs):
            os.close(descriptor)


def messages(parts: Sequence[Buffer]) -> list[Message]:
    """The messages that the parts encode."""
    return list(FrameReader(DECODERS).feed(bytearray(b"".join(parts))))


def answers(message: Message) -> dict[int, InferenceResponse]:
    """The responses of an EXECUTED message, by the numbers of their requests."""
    kind, (*_, headers), payload = message
    assert kind == Kind.EXECUTED
    return dict(_answers(headers, payload))


def _answers(headers: Any, payload: memoryview) -> Iterable[tuple[int, InferenceResponse]]:
    at = 0
    for number, packed in headers:
        response, at = unpack_next_response(packed, payload, at)
        yield number, response
