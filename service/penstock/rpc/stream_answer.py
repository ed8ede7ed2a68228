"""The answer to one request of a `ModelStreamInfer` call, pulled message by message."""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.errors import InferenceError
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream
from penstock.rpc.stream_replies import StreamReplies


class StreamAnswer:
    """The remaining messages for one request.

    `model` and `size` (bytes of its tensors) are the request's. `ordered` answers are written
    after those of the requests before them (GP-16). `error` is the error in the last message.
    `on_close` is called once the answer is complete or cancelled.
    """

    __slots__ = (
        "_empty_final",
        "_refusal",
        "_replies",
        "_stream",
        "done",
        "error",
        "model",
        "on_close",
        "ordered",
        "queued",
        "size",
    )

    def __init__(self, model: str) -> None:
        self.model = model
        self.ordered = True
        self.on_close: Callable[[], None] | None = None
        self.size = 0
        self.done = False
        self.queued = False
        self.error: InferenceError | None = None
        self._empty_final = False
        self._refusal: bytes | None = None
        self._stream: ResponseStream | None = None
        self._replies: StreamReplies

    def refuse(self, message: bytes, error: InferenceError) -> None:
        """Answer with just this message."""
        self._refusal, self.error = message, error

    def connect(self, request: InferenceRequest, stream: ResponseStream, empty_final: bool) -> None:
        """Answer with the responses of `stream`."""
        self._empty_final = empty_final
        self.size = sum(tensor.nbytes for tensor in request.inputs.values())
        self._stream = stream
        self._replies = StreamReplies(request, stream.model_version)

    def close(self) -> None:
        """Cancel the request if it is in flight, and release its resources."""
        self.done = True
        stream, self._stream = self._stream, None  # breaks the reference cycle
        if stream is not None:
            stream.close()
        if self.on_close is not None:
            self.on_close()

    @property
    def ready(self) -> bool:
        """Whether there may be a message now."""
        stream = self._stream
        return stream is None or bool(stream.backlog) or stream.exhausted

    def next(self) -> bytes | None:
        """The next message, if there is one now; `done` after the last."""
        stream = self._stream
        if stream is None:
            self.done = True
            return self._refusal
        response = stream.take_next()
        if response is None:
            return self._end(stream) if stream.exhausted else None
        self.done, self.error = response.final, response.error
        try:
            return self._replies.response(response)
        except InferenceError as error:
            return self._fail(stream, error)

    def _end(self, stream: ResponseStream) -> bytes | None:
        self.done = True
        if stream.error is not None:
            return self._fail(stream, stream.error)
        return self._replies.end() if self._empty_final else None

    def _fail(self, stream: ResponseStream, error: InferenceError) -> bytes:
        self.done, self.error = True, error
        stream.close()
        return self._replies.error(error, final=True)
