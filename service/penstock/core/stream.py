"""`ResponseStream`: a queue of responses between the producer and the reader of one request."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from penstock.core.errors import InferenceError, InternalError, RequestCancelledError
from penstock.core.flow_control import WINDOW, Credit, Window
from penstock.core.request import InferenceResponse

EndCallback = Callable[[InferenceError | None], None]


class ResponseStream:
    """The responses to one request, in order: the producer sends, the reader iterates.

    Unary is a stream of one. Both sides live on one event loop. The reader cancels the request by
    closing the stream, wherever the request is; the producer is notified by `on_close`. A reader
    that wants no more responses and reads to the end calls `stop` instead. `on_end` is called once:
    with `None` after the last response was sent, with the error after a failure, with
    `RequestCancelledError` when the reader closed early.
    `model_version` names the version that answers; `transform`, if set, is applied to every
    response that is sent; `begun` says whether one was. `left_at` is when the reader closed it, in
    nanoseconds of `time.monotonic_ns`, as far as that is known. `window` is the flow control
    window: a producer that can wait stops when it is full.
    """

    __slots__ = (
        "_ended",
        "_error",
        "_held",
        "_measured",
        "_on_close",
        "_on_end",
        "_on_ready",
        "_on_stop",
        "_on_take",
        "_reader",
        "_responses",
        "_window",
        "_writer",
        "begun",
        "left_at",
        "model_version",
        "transform",
    )

    def __init__(
        self, on_end: EndCallback | None = None, model_version: str = "", window: Window = WINDOW
    ) -> None:
        self.model_version = model_version
        self.begun = False
        self.left_at = 0
        self._window = window
        self.transform: Callable[[InferenceResponse], InferenceResponse] | None = None
        self._responses: deque[InferenceResponse] = deque()
        self._measured: Credit | None = None
        self._ended = False
        self._held = False
        self._error: InferenceError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._on_end = on_end
        self._on_close: Callable[[], None] | None = None
        self._on_take: Callable[[int], None] | None = None
        self._on_stop: Callable[[ResponseStream], None] | None = None
        self._on_ready: Callable[[], None] | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will be sent: the last response was, or the reader has left."""
        return self._ended

    @property
    def backlog(self) -> int:
        """The number of responses that the reader can take without waiting."""
        return 0 if self._held else len(self._responses)

    @property
    def full(self) -> bool:
        """Backpressure: whether a producer that can wait should."""
        count = len(self._responses)
        if count < 1 or count >= self._window.responses:
            return count > 0
        measured = self._measured
        if measured is None:
            measured = self._measured = Credit(self._window)
        for place in range(measured.in_flight, count):  # each response is measured once
            measured.spend(self._responses[place].size)
        return not measured.left

    # -- the producer's side ----------------------------------------------------------------

    def connect(
        self,
        on_close: Callable[[], None],
        on_take: Callable[[int], None] | None = None,
        on_stop: Callable[[ResponseStream], None] | None = None,
    ) -> None:
        """Register callbacks: the reader has left, has taken `n` responses, or wants no more.

        The last is for producers that then go on until they end the stream themselves.
        """
        self._on_close = on_close
        self._on_take = on_take
        self._on_stop = on_stop

    def send(self, response: InferenceResponse) -> None:
        """Queue a response; a final one ends the stream. Dropped when the stream has ended."""
        if self._ended:
            return
        if self.transform is not None:
            response = self.transform(response)
        self.begun = True
        self._responses.append(response)
        if response.final:
            self._finish(response.error)
        else:
            self._wake_reader()

    def add_transform(self, transform: Callable[[InferenceResponse], InferenceResponse]) -> None:
        """Apply a transform after the one that is set, also to what is queued already."""
        before = self.transform
        self.transform = transform if before is None else lambda one: transform(before(one))
        self._responses = deque(map(transform, self._responses))
        self._measured = None

    def also_at_end(self, call: EndCallback) -> None:
        """Call back once at the end, behind `on_end`; at once if it has come."""
        if not self._ended:
            before = self._on_end
            self._on_end = call if before is None else _both(before, call)
        elif self._error is None and self._responses:
            call(self._responses[-1].error)
        else:
            call(self._error)

    def end(self) -> None:
        """End without a further response: the end of the stream is the final flag."""
        if not self._ended:
            self._finish(None)

    def fail(self, error: InferenceError) -> None:
        """End with an error, which the reader gets after the responses before it."""
        if not self._ended:
            self._error = error
            self._finish(error)

    async def room(self) -> None:
        """Wait until the window has room, or the stream has ended."""
        while self.full and not self._ended:
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None

    # -- the scheduler's side ----------------------------------------------------------------

    def hold_back(self) -> None:
        """Hide the responses and the end from the reader until `release_held`."""
        self._held = True

    def release_held(self) -> None:
        """Undo `hold_back`, and wake the reader for what was hidden."""
        self._held = False
        if self._responses or self._ended:
            self._wake_reader()

    # -- the reader's side ------------------------------------------------------------------

    def __aiter__(self) -> ResponseStream:
        return self

    async def __anext__(self) -> InferenceResponse:
        while self._held or not self._responses:
            if self._ended and not self._held:
                raise self._stop()
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        response = self._responses.popleft()
        self._taken(1)
        return response

    def take_ready(self, limit: int = 1 << 30) -> list[InferenceResponse]:
        """Take up to `limit` queued responses without waiting; may be empty."""
        if self._held:
            return []
        responses = self._responses
        if len(responses) <= limit:
            ready = list(responses)
            responses.clear()
        else:
            ready = list(islice(responses, max(limit, 0)))
            for _ in ready:
                responses.popleft()
        if ready:
            self._taken(len(ready))
        return ready

    def take_next(self) -> InferenceResponse | None:
        """Take the next response if it is queued already."""
        if self._held or not self._responses:
            return None
        response = self._responses.popleft()
        self._taken(1)
        return response

    def watch(self, on_ready: Callable[[], None]) -> None:
        """Call `on_ready`, instead of waking a waiting reader, on new responses and at the end."""
        self._on_ready = on_ready
        if not self._held and (self._responses or self._ended):
            on_ready()

    @property
    def exhausted(self) -> bool:
        """Whether the stream has ended and no response is left to take."""
        return self._ended and not self._responses and not self._held

    @property
    def error(self) -> InferenceError | None:
        """The failure with which the stream ended; `None` if it has not, or ended well."""
        return self._error

    @property
    def next_error(self) -> InferenceError | None:
        """The error that the reader comes to next; `None` if it is a response, or not yet known."""
        return self._responses[0].error if self._responses else self._error

    def close(self, at: int = 0) -> None:
        """Discard the queued responses, and cancel the request unless it has ended.

        `at` is when the reader left, where that was in another process.
        """
        self.left_at = at
        self._held = False
        self._responses.clear()
        self._measured = None
        self.abort(RequestCancelledError())

    def stop(self) -> None:
        """Notify the producer to stop; what it still sends, its error included, can be read.

        The request is cancelled where no producer has it yet, or one without a callback for this:
        then `RequestCancelledError` follows what was sent.
        """
        if self._ended:
            return
        if self._on_stop is None:
            self.abort(RequestCancelledError())
        else:
            self._on_stop(self)

    def abort(self, error: InferenceError) -> None:
        """Cancel the request unless it has ended; a reader gets what was sent, then the error."""
        if self._ended:
            return
        self._error = error
        on_close = self._on_close
        self._finish(error)
        if on_close is not None:
            on_close()

    # -- both -------------------------------------------------------------------------------

    def _stop(self) -> Exception:
        return StopAsyncIteration() if self._error is None else self._error

    def _finish(self, error: InferenceError | None) -> None:
        self._ended = True
        self._on_close = self._on_take = self._on_stop = None  # breaks reference cycles
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(error)
        self._wake_reader()
        if self._writer is not None:
            self._wake_writer()

    def _taken(self, count: int) -> None:
        if self._measured is not None:
            self._measured.replenish(count)
        if self._writer is not None:
            self._wake_writer()
        if self._on_take is not None:
            self._on_take(count)

    def _wake_reader(self) -> None:
        if self._held:
            return
        if self._on_ready is not None:
            self._on_ready()
        elif self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _wake_writer(self) -> None:
        assert self._writer is not None
        if not self._writer.done():
            self._writer.set_result(None)


def _both(first: EndCallback, second: EndCallback) -> EndCallback:
    def call(error: InferenceError | None) -> None:
        first(error)
        second(error)

    return call


def require_single(
    responses: Sequence[InferenceResponse], error: InferenceError | None = None
) -> InferenceResponse:
    """The one response of a stream that ended, perhaps with `error`, which is raised."""
    if error is not None:
        raise error
    if len(responses) != 1:
        raise InternalError(f"expected a single response, got {len(responses)}")
    if responses[0].error is not None:
        raise responses[0].error
    return responses[0]
