"""Writer of a `ModelStreamInfer` call: orders the responses of its requests in flight."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from typing import Generic, TypeVar

from penstock.core.errors import DeadlineExceededError, ExhaustedError, InferenceError
from penstock.core.request import CALL_ID, RequestScope
from penstock.core.stream import ResponseStream
from penstock.header_forward import HeaderForward
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.call_record import CallRecord, Explanations
from penstock.rpc.context import RpcContext
from penstock.rpc.control_messages import forwarded, wants_empty_final
from penstock.rpc.messages import InferMessage, decode_request
from penstock.rpc.status import retry_metadata
from penstock.rpc.stream_answer import StreamAnswer, refusal
from penstock.server.faces import Inference

MOST_OPEN = 4096
"""Limit of requests in flight on one stream; beyond it, no more are read (backpressure)."""

MOST_BYTES = 64 << 20
"""The same limit for the bytes of their tensors."""

_FAIL_FAST = "triton_grpc_error"
"""Metadata of a call that the first error of an admitted request is to end (GP-19)."""


class StreamWriter:
    """Decides which response is written next, and writes at once if none is queued before it.

    Models that answer once are written in the order of their requests (GP-16), decoupled models
    when a response is ready. `failure` is the error that ends the whole call.
    """

    def __init__(
        self, server: Inference, context: RpcContext, forward: HeaderForward | None
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
        self._read_since = context.opened
        self._explanations = Explanations(context)
        self._retry_sent = False
        tenants = server.tenants
        self._call_id = context.metadata.get(CALL_ID, "")
        self._sender = None if tenants is None else tenants.sender(context.metadata)

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def full(self) -> bool:
        """Whether the limit of requests in flight is reached, so that no more are read."""
        return len(self._open) >= MOST_OPEN or self._open_bytes >= MOST_BYTES

    @property
    def queued(self) -> bool:
        """Whether an answer is queued for the writing task."""
        return bool(self._ready)

    @property
    def blocked(self) -> bool:
        """Whether flow control holds back a transport that writes without a task."""
        return self._writes_at_once and not self._transport_ready

    def unblock(self) -> None:
        """The transport is writable again."""
        self._transport_ready = True

    # -- waiting tasks ------------------------------------------------------------------------

    def wait_for_room(self) -> asyncio.Future[None]:
        """A future that is done when an answer is complete."""
        self._reader = asyncio.get_running_loop().create_future()
        return self._reader

    def wait_for_message(self) -> asyncio.Future[None]:
        """A future that is done when an answer is queued, has failed, or none is left."""
        self._writer = asyncio.get_running_loop().create_future()
        return self._writer

    def wake_writer(self) -> None:
        """End the wait of `wait_for_message`."""
        _wake(self._writer)

    # -- requests -----------------------------------------------------------------------------

    def accept(self, received: InferMessage) -> None:
        """Start to serve a request."""
        message = received.head
        answer = StreamAnswer(message.model_name)
        since, self._read_since = self._read_since, time.monotonic_ns()
        answer.record = CallRecord.begin(
            self._server.tracer, message, "ModelStreamInfer", self._explanations, since
        )
        stream = None
        try:
            stream = self._infer(received, answer)
        except InferenceError as error:
            self._refuse(answer, message, error)
        self._open.add(answer)
        self._open_bytes += answer.size
        if answer.ordered:
            self._ordered.append(answer)
        if stream is None:
            self._schedule(answer)
        else:
            stream.watch(partial(self._schedule, answer))

    def _infer(self, received: InferMessage, answer: StreamAnswer) -> ResponseStream:
        """Hand a request to its model, and connect `answer` to the responses."""
        message = received.head
        model = self._server.find(answer.model, message.model_version)
        headers = forwarded(self._forward, self._context) if self._forward else None
        regions = self._server.regions
        scope = RequestScope(
            self._deadline,
            sender=self._sender,
            call_id=self._call_id,
            headers=self._context.metadata,
        )
        if answer.record is not None:
            scope.timeline = answer.record.timeline
        request = decode_request(received, scope, regions, headers)
        answer.on_close = partial(regions.release, request)
        stream = model.infer(request)
        answer.ordered = not model.decoupled
        answer.connect(request, stream, wants_empty_final(message.parameters))
        return stream

    def _refuse(
        self, answer: StreamAnswer, message: pb.ModelInferRequest, error: InferenceError
    ) -> None:
        """Answer a request that was not admitted with `error`."""
        answer.refuse(refusal(message, error), self._ending(error))
        if answer.record is not None:
            answer.record.explain(error)
            answer.record.finish(error)
            answer.record = None

    def _ending(self, error: InferenceError) -> InferenceError | None:
        """The error, if a refusal with it ends a call that fails fast: one for want of room."""
        if self._fail_fast:
            return error if isinstance(error, ExhaustedError | DeadlineExceededError) else None
        if not self._retry_sent and (later := retry_metadata(error)):
            self._retry_sent = True
            self._context.add_trailing_metadata(later)
        return None

    def close(self) -> None:
        """Cancel the requests in flight."""
        left, self._open = self._open, set()
        for answer in left:  # all of them first: the end of one request may answer another
            answer.done = True
        for answer in left:
            answer.close()

    # -- responses ----------------------------------------------------------------------------

    def next_answer(self) -> StreamAnswer:
        """Remove and return the answer whose turn it is."""
        return self._ready.pop()

    def take_message(self, answer: StreamAnswer) -> bytes | None:
        """The next message of an answer; responses made meanwhile wait for `message_written`.

        Raises the error that ends the call.
        """
        answer.queued = True
        message = answer.next()
        answer.queued = False
        if answer.error is not None and (self._fail_fast or self._deadline_passed(answer.error)):
            raise answer.error
        return message

    def write_nowait(self, message: bytes) -> bool:
        """Write if the transport does so without a task; returns whether it does."""
        if self._writes_at_once:
            self._transport_ready = self._context.write_nowait(message)
        return self._writes_at_once

    def message_written(self, answer: StreamAnswer) -> None:
        """Close an answer after its last message, or queue it if another is ready."""
        if answer.record is not None:
            answer.record.response_sent()
        if answer.done:
            self._close(answer)
        elif answer.ready and not answer.queued:
            self._queue(answer)

    def _schedule(self, answer: StreamAnswer) -> None:
        """Write or queue an answer that may have a response, unless it must keep its order."""
        if answer.queued or answer.done or self.failure is not None:
            return
        if answer.ordered and answer is not self._ordered[0]:
            self._fail_out_of_turn(answer)
            return
        if self._transport_ready and not self._ready:
            self._write_at_once(answer)
        else:
            self._queue(answer)

    def _fail_out_of_turn(self, answer: StreamAnswer) -> None:
        """End a call that fails fast with the error of an answer behind others (GP-19)."""
        if self._fail_fast and (error := answer.next_error) is not None:
            self.failure = error
            self.wake_writer()

    def _queue(self, answer: StreamAnswer) -> None:
        answer.queued = True
        self._ready.push(answer.model, answer)
        self.wake_writer()

    def _write_at_once(self, answer: StreamAnswer) -> None:
        """Write the next message now; further ones are queued for the writing task."""
        try:
            message = self.take_message(answer)
        except Exception as error:  # ends this call, not the sender of the response
            self.failure = error
            self.wake_writer()
            return
        if message is not None:
            self.write_nowait(message)
            if not self._transport_ready:
                self.wake_writer()
        self.message_written(answer)

    def _deadline_passed(self, error: InferenceError) -> bool:
        """Whether an error is the call's own deadline, which no in-band error would reach."""
        return self._deadline is not None and isinstance(error, DeadlineExceededError)

    def _close(self, answer: StreamAnswer) -> None:
        """Retire a finished answer; let the next ordered one write."""
        answer.close()
        self._open.discard(answer)
        self._open_bytes -= answer.size
        _wake(self._reader)
        if not self._open:
            self.wake_writer()  # which may end now
        if answer.ordered:
            self._ordered.popleft()
            if self._ordered and self._ordered[0].ready:
                self._queue(self._ordered[0])


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue that is fair to keys: round-robin over the keys, first in first out within a key."""

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
        """Remove and return the next item; its key moves to the end."""
        key = next(iter(self._queues))
        queue = self._queues.pop(key)
        item = queue.popleft()
        if queue:
            self._queues[key] = queue
        return item
