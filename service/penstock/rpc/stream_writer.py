"""The requests of one `ModelStreamInfer` call that are being answered: who may speak, and when."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Generic, TypeVar

from penstock.core.errors import DeadlineExceededError, InferenceError
from penstock.header_forward import HeaderForward
from penstock.rpc.codec import decode_request
from penstock.rpc.context import RpcContext
from penstock.rpc.infer_message import InferMessage
from penstock.rpc.parameters import forwarded, wants_empty_final
from penstock.rpc.stream_answer import StreamAnswer
from penstock.rpc.stream_replies import refusal
from penstock.server.server import InferenceServer

MOST_OPEN = 4096
"""Requests of one stream that are being answered; while there are more, none is read."""

MOST_BYTES = 64 << 20
"""The same for the bytes of their tensors."""

_FAIL_FAST = "triton_grpc_error"


class StreamWriter:
    """Decides what is written next, and writes at once what nothing stands before.

    Answers of models that answer once take turns in the order of their requests (GP-16); those of
    decoupled models speak when they have something to say. `failure` is what the whole call is to
    end with.
    """

    def __init__(
        self, server: InferenceServer, context: RpcContext, forward: HeaderForward | None
    ) -> None:
        self._server = server
        self._forward = forward
        self._context = context
        self._deadline = context.deadline
        self._fail_fast = context.metadata.get(_FAIL_FAST) == "true"
        self._open: set[StreamAnswer] = set()
        self._open_bytes = 0
        self._ordered: deque[StreamAnswer] = deque()
        self._ready: FairQueue[StreamAnswer] = FairQueue()
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._writes_at_once = self._transport_ready = context.writes_at_once
        self.failure: Exception | None = None

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def crowded(self) -> bool:
        """Whether so much is being answered that the client's next requests stay with it."""
        return len(self._open) >= MOST_OPEN or self._open_bytes >= MOST_BYTES

    @property
    def queued(self) -> bool:
        """Whether somebody waits for a turn."""
        return bool(self._ready)

    @property
    def blocked(self) -> bool:
        """Whether a transport that takes messages at once has no room for another."""
        return self._writes_at_once and not self._transport_ready

    def unblock(self) -> None:
        """The transport has room again."""
        self._transport_ready = True

    # -- who waits ----------------------------------------------------------------------------

    def wait_for_room(self) -> asyncio.Future[None]:
        """Done when an answer is complete."""
        self._reader = asyncio.get_running_loop().create_future()
        return self._reader

    def wait_for_message(self) -> asyncio.Future[None]:
        """Done when there is something to write, or nothing to wait for any more."""
        self._writer = asyncio.get_running_loop().create_future()
        return self._writer

    def wake_writer(self) -> None:
        _wake(self._writer)

    # -- requests -----------------------------------------------------------------------------

    def accept(self, received: InferMessage) -> None:
        """Begin to answer a request."""
        message = received.head
        name = message.model_name
        answer = StreamAnswer(name)
        stream = None
        try:
            model = self._server.find(name, message.model_version)
            headers = forwarded(self._forward, self._context)
            regions = self._server.regions
            request = decode_request(received, self._deadline, regions, headers)
            answer.on_close = partial(regions.release, request)
            stream = model.infer(request)
            empty_final = wants_empty_final(message.parameters)
            answer.ordered = not model.decoupled
            answer.connect(request, stream, empty_final)
        except InferenceError as error:
            answer.refuse(refusal(message, error), error)
        self._open.add(answer)
        self._open_bytes += answer.size
        if answer.ordered:
            self._ordered.append(answer)
        if stream is None:
            self._schedule(answer)
        else:
            stream.watch(partial(self._schedule, answer))

    def close(self) -> None:
        """Nobody wants to hear what is left."""
        left, self._open = self._open, set()
        for answer in left:  # first, since the end of one request may answer another
            answer.done = True
        for answer in left:
            answer.close()

    # -- responses ----------------------------------------------------------------------------

    def next_answer(self) -> StreamAnswer:
        """Who speaks next."""
        return self._ready.pop()

    def take_message(self, answer: StreamAnswer) -> bytes | None:
        """The next message; what taking it brings from below waits until `said`.

        Raises what the call is to end with.
        """
        answer.queued = True
        message = answer.next()
        answer.queued = False
        if answer.error is not None and (self._fail_fast or self._deadline_passed(answer.error)):
            raise answer.error
        return message

    def write_nowait(self, message: bytes) -> bool:
        """Write if the transport takes messages at once; whether it does."""
        if self._writes_at_once:
            self._transport_ready = self._context.write_nowait(message)
        return self._writes_at_once

    def message_written(self, answer: StreamAnswer) -> None:
        """The message is written: it was the last word, or there is more."""
        if answer.done:
            self._close(answer)
        elif answer.ready and not answer.queued:
            self._queue(answer)

    def _schedule(self, answer: StreamAnswer) -> None:
        """An answer may have something to say: it gets its turn, unless others come first."""
        if answer.queued or answer.done or self.failure is not None:
            return
        if answer.ordered and answer is not self._ordered[0]:
            return
        if self._transport_ready and not self._ready:
            self._write_at_once(answer)
        else:
            self._queue(answer)

    def _queue(self, answer: StreamAnswer) -> None:
        answer.queued = True
        self._ready.push(answer.model, answer)
        self.wake_writer()

    def _write_at_once(self, answer: StreamAnswer) -> None:
        """Write the next message now; what follows is the writer's."""
        try:
            message = self.take_message(answer)
        except Exception as error:  # a fault of ours ends this call, and not who sent the response
            self.failure = error
            self.wake_writer()
            return
        if message is not None:
            self.write_nowait(message)
            if not self._transport_ready:
                self.wake_writer()
        self.message_written(answer)

    def _deadline_passed(self, error: InferenceError) -> bool:
        """Whether the call has had its time, so that nobody hears what is told in-band."""
        return self._deadline is not None and isinstance(error, DeadlineExceededError)

    def _close(self, answer: StreamAnswer) -> None:
        """All is said about one request, so the one that waits for it may speak."""
        answer.close()
        self._open.discard(answer)
        self._open_bytes -= answer.size
        _wake(self._reader)
        if not self._open:
            self.wake_writer()  # for whom this may be the end
        if answer.ordered:
            self._ordered.popleft()
            if self._ordered and self._ordered[0].ready:
                self._queue(self._ordered[0])


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items by key: the keys take turns, the items of one key follow in their order."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def push(self, key: str, item: T) -> None:
        """Add an item behind the others of its key."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
        queue.append(item)

    def pop(self) -> T:
        """The next item; its key is the last to have another turn."""
        key = next(iter(self._queues))
        queue = self._queues.pop(key)
        item = queue.popleft()
        if queue:
            self._queues[key] = queue
        return item
