"""The call with an iterator of request messages."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from penstock.core.errors import InternalError
from penstock.core.turns import Sliced
from penstock.http2.grpc import PREFIX_SIZE, CallHead, MessageSizeError
from penstock.http2.stream import Buffer
from penstock.rpc.context import Method, Reply, finished_in_turns, parsed
from penstock.rpc.native.call import CallHost, ReadingCall


class StreamCall(ReadingCall):
    """A call with an iterator of requests; those not yet read keep the stream's window closed."""

    def __init__(self, host: CallHost, stream_id: int, head: CallHead, method: Method) -> None:
        super().__init__(host, stream_id, head, method)
        self._messages: deque[tuple[int, Buffer]] = deque()
        self._held = 0
        self._arrival: asyncio.Future[None] | None = None

    def on_open(self) -> None:
        self.run(self._method.handler(self, self))

    def on_data(self, data: memoryview) -> None:
        self._received(len(data), [] if self.finished else self._read_messages((data,), len(data)))

    def on_filled(self, size: int) -> None:
        assert self._reader is not None
        message = self._reader.filled(size)
        self._received(size, [] if message is None else [message])

    def on_end(self) -> None:
        self._wake_reader()

    def returned(self, response: Reply | None) -> None:
        super().returned(response)
        if self.closed or self.finished:
            self._read_no_more()

    def _read_no_more(self) -> None:
        self._messages.clear()
        super()._read_no_more()

    def __aiter__(self) -> StreamCall:
        return self

    async def __anext__(self) -> Any:
        if self._messages and (turn := self._host.server.backlog.take()) is not None:
            await turn
        while not self._messages:
            if self.remote_ended:
                if self._reader is not None and not self._reader.empty:
                    raise InternalError("the client's last message is cut short")
                raise StopAsyncIteration
            self._arrival = self._host.loop.create_future()
            await self._arrival
        flag, data = self._next()
        used = self._held if not self._messages else min(PREFIX_SIZE + len(data), self._held)
        self._held -= used
        self.connection.consumed(self, used)
        self._host.wake()
        if flag:
            return await self._parse(flag, data)
        self._message_read(flag)
        request = parsed(self._method, data)
        return await finished_in_turns(request) if isinstance(request, Sliced) else request

    def _next(self) -> tuple[int, Buffer]:
        """The next message; those that follow it are queued before it is the last one."""
        message = self._messages.popleft()
        if not self._messages and self._reader is not None:
            try:
                self._messages += self._reader.more()
            except MessageSizeError as error:
                self._too_large(error)
        return message

    def _received(self, size: int, messages: list[tuple[int, Buffer]]) -> None:
        """Queue messages; bytes of an incomplete one return credit at once if none is queued."""
        self._held += size
        if messages:
            self._messages += messages
            self._wake_reader()
        elif not self._messages:
            held, self._held = self._held, 0
            self._consumed(held)

    def _wake_reader(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
